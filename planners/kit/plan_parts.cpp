#include "planners/kit/plan_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "models/ir/names.h"
#include "planners/kit/integers.h"

namespace orrery::planners {

int count_layers(const models::Workload& workload) {
  return workload.last_layer().value - workload.first_layer().value + 1;
}

std::vector<int> tensor_degrees(const models::Workload& workload, const models::Job& job,
                                int limit) {
  const int job_limit = job.allowed.max_tensor_parallel;
  if (job_limit > 0) limit = std::min(limit, job_limit);
  const auto whole = [&](int degree) {
    if (workload.shape.heads % degree != 0 || workload.shape.kv_heads % degree != 0) return false;
    for (const BlockId b : ids_from_to(workload.first_layer(), workload.last_layer())) {
      for (const models::Parameter& parameter : workload.block(b).parameters) {
        if (parameter.split_length % degree != 0) return false;
      }
    }
    return true;
  };
  std::vector<int> degrees;
  for (int degree = 1; degree <= limit; ++degree) {
    if (whole(degree)) degrees.push_back(degree);
  }
  return degrees;
}

ir::Recompute strongest_recompute(const models::Job& job) {
  const auto& allowed = job.allowed.recompute;
  return allowed.empty() ? ir::Recompute::none
                         : *std::max_element(allowed.begin(), allowed.end(), ir::weaker);
}

std::string recompute_in_words(ir::Recompute recompute) {
  return recompute == ir::Recompute::none ? "no" : ir::name_of(recompute);
}

ir::Recompute weakest_recompute(const models::Job& job) {
  const auto& allowed = job.allowed.recompute;
  return allowed.empty() ? ir::Recompute::none
                         : *std::min_element(allowed.begin(), allowed.end(), ir::weaker);
}

int smallest_zero_stage(const models::Job& job) {
  const auto& stages = job.allowed.zero_stages;
  return stages.empty() ? 0 : *std::min_element(stages.begin(), stages.end());
}

std::vector<int> zero_stages_up_to_1(const models::Job& job) {
  std::vector<int> stages = job.allowed.zero_stages;
  std::erase_if(stages, [](int stage) { return stage > 1; });
  if (stages.empty()) stages = {smallest_zero_stage(job)};
  return stages;
}

ir::Segment segment_of_layers(const models::Workload& workload, int first, int layers) {
  ir::Segment segment;
  const BlockId start = workload.first_layer();
  segment.first_block = first == 0 ? BlockId{0} : BlockId{start.value + first};
  segment.last_block = first + layers == count_layers(workload)
                           ? BlockId{workload.size() - 1}
                           : BlockId{start.value + first + layers - 1};
  return segment;
}

ir::SequenceParallelism megatron_sequence(const models::Job& job, int tensor) {
  const bool split =
      tensor > 1 && job.allowed.sequence_parallel && job.sequence_length % tensor == 0;
  return split ? ir::SequenceParallelism::megatron : ir::SequenceParallelism::none;
}

std::vector<ir::Group> tensor_groups(std::span<const DeviceId> devices, int tensor, int samples,
                                     ir::SequenceParallelism sequence) {
  std::vector<ir::Group> groups;
  for (std::size_t i = 0; i < devices.size(); i += tensor) {
    const auto members = devices.subspan(i, tensor);
    ir::Group& group = groups.emplace_back();
    group.devices.assign(members.begin(), members.end());
    group.tensor_parallel = tensor;
    group.samples = samples;
    group.sequence = sequence;
  }
  return groups;
}

ir::Segment segment_of_layers(const models::Workload& workload, int first, int layers,
                              std::vector<ir::Group> groups, ir::Recompute recompute,
                              int zero_stage) {
  ir::Segment segment = segment_of_layers(workload, first, layers);
  segment.groups = std::move(groups);
  segment.recompute = recompute;
  segment.zero.stage = zero_stage;
  return segment;
}

ir::Stage stage_of_layers(const models::Workload& workload, int first, int layers,
                          std::vector<ir::Group> groups, ir::Recompute recompute, int zero_stage) {
  return {{segment_of_layers(workload, first, layers, std::move(groups), recompute, zero_stage)}};
}

bool one_vendor_per_group(std::span<const DeviceId> devices, int tensor,
                          const models::Cluster& cluster) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::size_t leader = i - i % tensor;
    if (cluster.gpu(devices[i]).vendor != cluster.gpu(devices[leader]).vendor) return false;
  }
  return true;
}

std::vector<std::string> count_repeats(const std::vector<std::string>& texts) {
  std::vector<std::string> result;
  for (std::size_t i = 0; i < texts.size();) {
    std::size_t end = i;
    while (end < texts.size() && texts[end] == texts[i]) ++end;
    result.push_back(end - i > 1 ? fmt::format("{} times {}", end - i, texts[i]) : texts[i]);
    i = end;
  }
  return result;
}

void sign(ir::Plan& plan, const char* planner, const PlannerInput& input, Seconds estimate,
          const ir::MemoryVerdict& memory) {
  Bytes peak;
  for (const ir::MemoryUse& use : memory.by_gpu_type) peak = std::max(peak, use.need);
  plan.predicted = ir::Prediction{estimate, peak};
  plan.planner = planner;
  plan.cluster_hash = input.cluster.hash;
  plan.workload_hash = input.workload.hash;
}

bool canceled(const PlannerInput& input) {
  return input.canceled != nullptr && input.canceled->load();
}

bool must_end(const PlannerInput& input, std::int64_t work) {
  return canceled(input) || (input.work_budget > 0 && work >= input.work_budget);
}

namespace {

/// "4", "2x1" of two equal groups, "(4,2)".
std::string degrees_of(const ir::Stage& stage) {
  std::vector<int> groups;
  for (const ir::Group& group : stage.segments.front().groups) {
    groups.push_back(group.tensor_parallel * group.sequence_degree);
  }
  if (groups.size() == 1) return std::to_string(groups.front());
  const bool equal =
      std::all_of(groups.begin(), groups.end(), [&](int group) { return group == groups.front(); });
  const int shared = stage.segments.front().expert_parallel;
  std::string experts = shared > 1 ? fmt::format(" EP {}", shared) : "";
  std::vector<int> held;
  for (const ir::Group& group : stage.segments.front().groups) held.push_back(group.experts);
  if (held.front() > 0) experts += fmt::format(" of {} experts", fmt::join(held, "+"));
  return (equal ? fmt::format("{}x{}", groups.size(), groups.front())
                : fmt::format("({})", fmt::join(groups, ","))) +
         experts;
}

/// "TP 4+2, 20+10 layers", "40 stages of TP 2 (32), 1 (8) and 1 to 2 layers".
std::string in_words(const ir::Pipeline& chain, const models::Workload& workload) {
  constexpr std::size_t kSpelledOut = 6;
  std::vector<std::string> degrees;
  std::vector<int> layers;
  for (const ir::Stage& stage : chain.stages) {
    degrees.push_back(degrees_of(stage));
    layers.push_back(layers_of(stage, workload));
  }
  if (chain.stages.size() <= kSpelledOut) {
    return fmt::format("TP {}, {} layers", fmt::join(degrees, "+"), fmt::join(layers, "+"));
  }
  std::map<std::string, int> counts;
  for (const std::string& degree : degrees) ++counts[degree];
  std::vector<std::string> parts;
  for (const auto& [degree, count] : counts) parts.push_back(fmt::format("{} ({})", degree, count));
  const auto [least, most] = std::minmax_element(layers.begin(), layers.end());
  return fmt::format(
      "{} stages of TP {} and {} layers", chain.stages.size(),
      counts.size() == 1 ? degrees.front() : fmt::format("{}", fmt::join(parts, ", ")),
      *least == *most ? std::to_string(*least) : fmt::format("{} to {}", *least, *most));
}

}  // namespace

int layers_of(const ir::Stage& stage, const models::Workload& workload) {
  int layers = 0;
  for (const ir::Segment& segment : stage.segments) {
    layers += std::max(0, std::min(segment.last_block, workload.last_layer()).value -
                              std::max(segment.first_block, workload.first_layer()).value + 1);
  }
  return layers;
}

std::optional<models::Infeasible> one_group_a_stage(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      if (stage.segments.size() != 1) return not_expressible("a stage of several segments");
      if (stage.segments.front().groups.size() != 1) {
        return not_expressible("a stage of several groups");
      }
    }
  }
  return std::nullopt;
}

bool shares_experts(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.expert_parallel > 1) return true;
      }
    }
  }
  return false;
}

models::Infeasible not_expressible(std::string why) { return {"not expressible", std::move(why)}; }

std::string in_words(const ir::Plan& plan, const models::Workload& workload) {
  constexpr std::size_t kSpelledOut = 3;
  std::vector<std::pair<std::string, int>> kinds;
  for (const ir::Pipeline& chain : plan.pipelines) {
    const std::string text = fmt::format("{}, {} micro-batches of {}", in_words(chain, workload),
                                         chain.micro_batches, chain.micro_batch_size);
    const auto known = std::find_if(kinds.begin(), kinds.end(),
                                    [&](const auto& kind) { return kind.first == text; });
    if (known == kinds.end()) {
      kinds.emplace_back(text, 1);
    } else {
      ++known->second;
    }
  }
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < std::min(kinds.size(), kSpelledOut); ++i) {
    parts.push_back(kinds[i].second == 1
                        ? fmt::format("({})", kinds[i].first)
                        : fmt::format("{} x ({})", kinds[i].second, kinds[i].first));
  }
  if (kinds.size() > kSpelledOut) {
    parts.push_back(fmt::format("and {} more kinds", kinds.size() - kSpelledOut));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace orrery::planners
