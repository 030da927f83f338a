#include "planners/orrery/draft.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "models/ir/names.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

std::vector<ir::Group> plan_groups(const Draft& draft, const DraftStage& stage,
                                   const PlannerInput& input) {
  std::vector<ir::Group> groups;
  for (const DraftGroup& group : stage.groups) {
    ir::Group& made = groups.emplace_back();
    made.devices = group.devices;
    made.tensor_parallel = group.degree();
    made.samples = group.samples;
    made.sequence = megatron_sequence(input.job, group.degree());
    made.state_weight = state_weight(draft, group, input.cluster);
    made.experts = group.experts;
  }
  return groups;
}

/// Appends the segments of a chunk, one for each of its parts.
void append_segments(const std::vector<DraftPart>& parts, int virtual_stage,
                     const std::vector<ir::Group>& groups, int expert_parallel,
                     const PlannerInput& input, ir::Stage& stage) {
  for (const DraftPart& part : parts) {
    ir::Segment segment = segment_of_layers(input.workload, part.first, part.layers);
    segment.virtual_stage = virtual_stage;
    segment.groups = groups;
    segment.recompute = part.recompute;
    segment.zero = part.zero;
    segment.expert_parallel = expert_parallel;
    stage.segments.push_back(std::move(segment));
  }
}

/// Sets what the plan has of ZeRO; false: no draft has it.
bool take_zero(const ir::Plan& plan, const PlannerInput& input, Draft& draft) {
  const int layers = count_layers(input.workload);
  const std::optional<ir::Zero> lighter = lighter_zero(input.job);
  int heaviest_past = 0, lightest_first = layers;  // Of layers under ZeRO-3 and of the others.
  draft.zero = plan.pipelines.front().stages.front().segments.front().zero;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        const int first = std::max(segment.first_block, input.workload.first_layer()).value -
                          input.workload.first_layer().value;
        const int past = std::min(segment.last_block, input.workload.last_layer()).value -
                         input.workload.first_layer().value + 1;
        if (segment.zero == draft.zero) {
          heaviest_past = std::max(heaviest_past, past);
        } else if (draft.zero == ir::Zero{3, 0} && lighter && segment.zero == *lighter) {
          lightest_first = std::min(lightest_first, first);
        } else {
          return false;
        }
      }
    }
  }
  draft.lighter_layers = layers - lightest_first;
  return draft.lighter_layers == 0 || heaviest_past <= lightest_first;
}

/// The chunks of a stage; none where it cannot be said.
std::optional<std::vector<DraftChunk>> chunks_of(const ir::Stage& stage, const ir::Plan& plan,
                                                 const models::Workload& workload) {
  std::vector<DraftChunk> chunks(static_cast<std::size_t>(plan.virtual_stages), DraftChunk{0});
  for (const ir::Segment& segment : stage.segments) {
    if (segment.groups != stage.segments.front().groups ||
        segment.expert_parallel != stage.segments.front().expert_parallel) {
      return std::nullopt;
    }
    const int layers = std::min(segment.last_block, workload.last_layer()).value -
                       std::max(segment.first_block, workload.first_layer()).value + 1;
    if (layers < 1) return std::nullopt;
    DraftChunk& chunk = chunks[static_cast<std::size_t>(segment.virtual_stage)];
    chunk.layers += layers;
    if (segment.recompute == ir::Recompute::full) chunk.full += layers;
    if (segment.recompute == ir::Recompute::selective) chunk.selective += layers;
  }
  for (const DraftChunk& chunk : chunks) {
    if (chunk.layers == 0) return std::nullopt;
  }
  return chunks;
}

bool plain_group(const ir::Group& group) {
  return group.sequence_degree == 1 && group.sequence != ir::SequenceParallelism::ulysses &&
         group.sequence != ir::SequenceParallelism::ring;
}

/// Weights of shards by GPU type; none where those of a type differ, or where no draft has them.
std::optional<std::vector<int>> weights_of(const Draft& draft, const ir::Plan& plan,
                                           const models::Cluster& cluster) {
  std::vector<int> weights(cluster.gpu_types.size(), 0);
  bool even = true;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Group& group : stage.segments.front().groups) {
        int& known = weights[as_size(cluster.device(group.devices.front()).gpu_type)];
        if (known != 0 && known != group.state_weight) return std::nullopt;
        known = group.state_weight;
        even = even && known == 1;
        if (known > kMostDraftWeight) return std::nullopt;
      }
    }
  }
  if (even) return std::vector<int>{};
  if (!may_weigh_states(draft)) return std::nullopt;
  std::replace(weights.begin(), weights.end(), 0, 1);
  return weights;
}

}  // namespace

int state_weight(const Draft& draft, const DraftGroup& group, const models::Cluster& cluster) {
  if (draft.state_weights.empty()) return 1;
  return draft.state_weights[as_size(cluster.device(group.devices.front()).gpu_type)];
}

bool may_weigh_states(const Draft& draft) {
  return draft.pipelines.size() > 1 && draft.zero.shards_optimizer() &&
         draft.zero.shard_group == 0 && !shares_experts(draft);
}

bool gathers_in_passes(const Draft& draft) { return draft.gathers_next && has_gathers(draft); }

bool has_gathers(const Draft& draft) {
  return draft.overlap && draft.zero.shards_optimizer() &&
         (!draft.zero.shards_parameters() || draft.lighter_layers > 0);
}

std::optional<ir::Zero> lighter_zero(const models::Job& job) {
  std::optional<ir::Zero> found;
  for (const int stage : job.allowed.zero_stages) {
    if (stage != 1 && stage != 2) continue;
    if (!found || stage > found->stage) found = ir::Zero{stage, 0};
  }
  return found;
}

int first_lighter(const Draft& draft, int layers) {
  return draft.zero.shards_parameters() ? layers - draft.lighter_layers : layers;
}

std::vector<DraftPart> parts_of(const Draft& draft, const DraftChunk& chunk, int first, int layers,
                                const models::Job& job) {
  std::vector<DraftPart> parts;
  const int border = first_lighter(draft, layers);
  for (const auto& [count, recompute] : chunk.parts()) {
    const int before = std::clamp(border - first, 0, count);
    if (before > 0) parts.push_back({first, before, recompute, draft.zero});
    if (before < count) {
      parts.push_back({first + before, count - before, recompute, *lighter_zero(job)});
    }
    first += count;
  }
  return parts;
}

models::ExpertShare expert_share(const std::vector<DraftGroup>& groups, int expert_parallel,
                                 std::size_t group) {
  models::ExpertShare share{expert_parallel};
  const std::size_t size = as_size(expert_parallel), first = group / size * size;
  if (size < 2) return share;
  int samples = 0;
  bool even = true;
  for (std::size_t g = first; g < first + size; ++g) {
    samples += groups[g].samples;
    even = even && groups[g].samples == groups[first].samples &&
           groups[g].experts == groups[first].experts;
  }
  if (even) return share;
  share.experts = groups[group].experts;
  share.samples = samples;
  return share;
}

bool can_share_experts(const DraftStage& stage, int degree, const models::Workload& workload) {
  const int experts = workload.shape.experts;
  const bool named = stage.groups.front().experts > 0;
  if (degree == 1) return !named;
  const std::size_t size = as_size(degree);
  if (degree < 1 || experts == 0 || stage.groups.size() % size != 0) return false;
  if (!named && experts % degree != 0) return false;
  int sum = 0;
  for (std::size_t g = 0; g < stage.groups.size(); ++g) {
    const DraftGroup &first = stage.groups[g - g % size], &own = stage.groups[g];
    const bool single = own.degree() == 1;
    if (own.degree() != first.degree() || (!single && own.samples != first.samples)) return false;
    if ((own.experts > 0) != named || (named && !single)) return false;
    sum += own.experts;
    if (named && (g + 1) % size == 0 && std::exchange(sum, 0) != experts) return false;
  }
  return true;
}

bool share_samples(DraftPipeline& pipeline) {
  for (DraftStage& stage : pipeline.stages) {
    const int groups = static_cast<int>(stage.groups.size());
    if (groups > pipeline.micro_batch_size) return false;
    int sum = 0;
    for (const DraftGroup& group : stage.groups) sum += group.samples;
    if (sum == pipeline.micro_batch_size) continue;
    const std::vector<int> shares = even_shares(pipeline.micro_batch_size, groups);
    for (int g = 0; g < groups; ++g) stage.groups[g].samples = shares[g];
  }
  return true;
}

bool has_unlike_shares(const DraftStage& stage) {
  if (stage.expert_parallel == 1) return false;
  for (std::size_t g = 0; g < stage.groups.size(); ++g) {
    if (!expert_share(stage.groups, stage.expert_parallel, g).even()) return true;
  }
  return false;
}

bool shares_experts(const Draft& draft) {
  for (const DraftPipeline& pipeline : draft.pipelines) {
    for (const DraftStage& stage : pipeline.stages) {
      if (stage.expert_parallel > 1) return true;
    }
  }
  return false;
}

int DraftStage::layers() const {
  int sum = 0;
  for (const DraftChunk& chunk : chunks) sum += chunk.layers;
  return sum;
}

ir::Plan plan_of(const Draft& draft, const PlannerInput& input) {
  ir::Plan plan;
  plan.schedule = draft.schedule;
  plan.virtual_stages = draft.virtual_stages;
  plan.communication.activation_transfer = draft.transfer;
  plan.communication.gradient_overlap = draft.overlap;
  plan.communication.parameter_overlap = gathers_in_passes(draft);
  plan.communication.bucket = draft.bucket;
  for (const DraftPipeline& chain : draft.pipelines) {
    ir::Pipeline& pipeline = plan.pipelines.emplace_back();
    pipeline.micro_batches = chain.micro_batches;
    pipeline.micro_batch_size = chain.micro_batch_size;
    pipeline.stages.resize(chain.stages.size());
    int first = 0;
    for (int c = 0; c < draft.virtual_stages; ++c) {
      for (std::size_t s = 0; s < chain.stages.size(); ++s) {
        const DraftStage& stage = chain.stages[s];
        const DraftChunk& chunk = stage.chunks[static_cast<std::size_t>(c)];
        append_segments(parts_of(draft, chunk, first, count_layers(input.workload), input.job), c,
                        plan_groups(draft, stage, input), stage.expert_parallel, input,
                        pipeline.stages[s]);
        first += chunk.layers;
      }
    }
  }
  return plan;
}

std::optional<Draft> draft_of(const ir::Plan& plan, const PlannerInput& input) {
  if (plan.redundancy != ir::Redundancy::none || plan.optimizer != ir::OptimizerStart::together) {
    return std::nullopt;
  }
  Draft draft;
  draft.schedule = plan.schedule;
  draft.virtual_stages = plan.virtual_stages;
  if (!take_zero(plan, input, draft)) return std::nullopt;
  draft.transfer = plan.communication.activation_transfer;
  draft.overlap = plan.communication.gradient_overlap;
  draft.gathers_next = plan.communication.parameter_overlap;
  draft.bucket = plan.communication.bucket;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (!pipeline.reroutes.empty() || pipeline.length_range) return std::nullopt;
    DraftPipeline& chain = draft.pipelines.emplace_back();
    chain.micro_batches = pipeline.micro_batches;
    chain.micro_batch_size = pipeline.micro_batch_size;
    for (const ir::Stage& stage : pipeline.stages) {
      const auto chunks = chunks_of(stage, plan, input.workload);
      if (!chunks) return std::nullopt;
      DraftStage& made = chain.stages.emplace_back();
      made.chunks = *chunks;
      for (const ir::Group& group : stage.segments.front().groups) {
        if (!plain_group(group)) return std::nullopt;
        made.groups.push_back({group.devices, group.samples, group.experts});
      }
      made.expert_parallel = stage.segments.front().expert_parallel;
      if (!can_share_experts(made, made.expert_parallel, input.workload) ||
          (made.expert_parallel > 1 && draft.zero.shards_parameters())) {
        return std::nullopt;
      }
    }
  }
  const auto weights = weights_of(draft, plan, input.cluster);
  if (!weights) return std::nullopt;
  draft.state_weights = *weights;
  return draft;
}

namespace {

/// What differs between drafts of as many pipelines and stages of equal kinds.
std::vector<std::string> what_moved(const Draft& before, const Draft& after) {
  std::vector<std::string> found;
  const auto differ = [&](const auto& number) {
    std::vector<int> of[2];
    for (const int i : {0, 1}) {
      for (const DraftPipeline& pipeline : (i == 0 ? before : after).pipelines) {
        for (const DraftStage& stage : pipeline.stages) number(pipeline, stage, of[i]);
      }
    }
    return of[0] != of[1];
  };
  if (differ([](const DraftPipeline&, const DraftStage& stage, std::vector<int>& out) {
        for (const DraftChunk& chunk : stage.chunks) out.push_back(chunk.layers);
      })) {
    found.push_back("layers moved");
  }
  if (differ([](const DraftPipeline&, const DraftStage& stage, std::vector<int>& out) {
        for (const DraftGroup& group : stage.groups) out.push_back(group.degree());
      })) {
    found.push_back("groups of other widths");
  }
  if (differ([](const DraftPipeline& pipeline, const DraftStage& stage, std::vector<int>& out) {
        out.push_back(pipeline.micro_batches);
        for (const DraftGroup& group : stage.groups) out.push_back(group.samples);
      })) {
    found.push_back("samples moved");
  }
  if (found.empty()) found.push_back("groups on other GPUs");
  return found;
}

}  // namespace

std::string differences(const Draft& before, const Draft& after) {
  std::vector<std::string> found;
  const auto compare = [&](const auto& words) {
    const std::string old = words(before), now = words(after);
    if (old != now) found.push_back(fmt::format("{} instead of {}", now, old));
  };
  const auto range = [](const Draft& draft, const char* one, const char* several,
                        const auto& number) {
    std::set<int> numbers;
    for (const DraftPipeline& pipeline : draft.pipelines) number(pipeline, numbers);
    const int least = *numbers.begin(), most = *numbers.rbegin();
    return least == most ? fmt::format("{} {}", most, most == 1 ? one : several)
                         : fmt::format("{} to {} {}", least, most, several);
  };
  const auto layers = [](const Draft& draft, int DraftChunk::*kind) {
    int sum = 0;
    for (const DraftPipeline& pipeline : draft.pipelines) {
      for (const DraftStage& stage : pipeline.stages) {
        for (const DraftChunk& chunk : stage.chunks) sum += chunk.*kind;
      }
    }
    return sum;
  };
  const auto recomputed = [&](const Draft& draft) {
    return layers(draft, &DraftChunk::full) + layers(draft, &DraftChunk::selective);
  };
  compare([](const Draft& d) {
    return d.virtual_stages > 1
               ? fmt::format("{} of {} chunks", ir::name_of(d.schedule), d.virtual_stages)
               : std::string(ir::name_of(d.schedule));
  });
  compare([](const Draft& d) {
    return fmt::format("{} pipeline{}", d.pipelines.size(), d.pipelines.size() == 1 ? "" : "s");
  });
  compare([&](const Draft& d) {
    return range(d, "stage", "stages", [](const DraftPipeline& p, std::set<int>& out) {
      out.insert(static_cast<int>(p.stages.size()));
    });
  });
  compare([](const Draft& d) {
    std::set<int> degrees;
    for (const DraftPipeline& pipeline : d.pipelines) {
      for (const DraftStage& stage : pipeline.stages) {
        for (const DraftGroup& group : stage.groups) degrees.insert(group.degree());
      }
    }
    return fmt::format("TP {}", fmt::join(degrees, ", "));
  });
  compare([](const Draft& d) {
    std::set<int> degrees;
    bool named = false;
    for (const DraftPipeline& pipeline : d.pipelines) {
      for (const DraftStage& stage : pipeline.stages) {
        degrees.insert(stage.expert_parallel);
        named = named || stage.groups.front().experts > 0;
      }
    }
    return fmt::format("EP {}{}", fmt::join(degrees, ", "),
                       named ? " of unlike numbers of experts" : "");
  });
  compare([&](const Draft& d) {
    return "micro-batches of " +
           range(d, "sample", "samples", [](const DraftPipeline& p, std::set<int>& out) {
             out.insert(p.micro_batch_size);
           });
  });
  compare([](const Draft& d) {
    return fmt::format("ZeRO-{}{}", d.zero.stage,
                       d.lighter_layers > 0
                           ? fmt::format(" of all but {} layer{}", d.lighter_layers,
                                         d.lighter_layers == 1 ? "" : "s")
                           : "");
  });
  compare([](const Draft& d) {
    return d.state_weights.empty()
               ? std::string("even shards")
               : fmt::format("shards of {} by GPU type", fmt::join(d.state_weights, ":"));
  });
  compare([](const Draft& d) { return fmt::format("{} GPUs", devices_of(d).size()); });
  if (recomputed(before) * layers(after, &DraftChunk::layers) !=
      recomputed(after) * layers(before, &DraftChunk::layers)) {
    compare([&](const Draft& d) {
      return fmt::format("{:.0f} % of the layers recomputed",
                         100.0 * recomputed(d) / layers(d, &DraftChunk::layers));
    });
  }
  if (before.bucket != after.bucket) {
    found.push_back(
        after.bucket.value == 0
            ? std::string("gradients of a run of blocks sent together")
            : fmt::format("gradients sent {:.0f} MiB at a time", after.bucket.value / 0x1p20));
  }
  if (before.overlap != after.overlap) {
    found.push_back(after.overlap ? "gradients sent during the backward pass"
                                  : "gradients sent after the backward pass");
  }
  if (gathers_in_passes(before) != gathers_in_passes(after)) {
    found.push_back(gathers_in_passes(after) ? "parameters gathered during the next forward pass"
                                             : "parameters gathered after the optimizer");
  }
  if (before.transfer != after.transfer) {
    found.push_back(after.transfer == ir::ActivationTransfer::sliced
                        ? "activations sent in slices"
                        : "activations sent by one GPU of each group");
  }
  if (found.empty()) found = what_moved(before, after);
  return fmt::format("{}", fmt::join(found, ", "));
}

std::vector<DeviceId> devices_of(const Draft& draft) {
  std::vector<DeviceId> devices;
  for (const DraftPipeline& pipeline : draft.pipelines) {
    for (const DraftStage& stage : pipeline.stages) {
      for (const DraftGroup& group : stage.groups) {
        devices.insert(devices.end(), group.devices.begin(), group.devices.end());
      }
    }
  }
  std::sort(devices.begin(), devices.end());
  return devices;
}

}  // namespace orrery::planners
