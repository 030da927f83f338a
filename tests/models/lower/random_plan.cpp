#include "tests/models/lower/random_plan.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/ir/op_traits.h"
#include "models/schedule/schedule.h"
#include "tests/models/lower/number_model.h"

namespace orrery::models {
namespace {

/// Cuts `total` into `parts` positive integers.
std::vector<int> cut(int total, int parts, Rng& rng) {
  std::vector<int> out(parts, 1);
  for (int i = 0; i < total - parts; ++i) {
    ++out[rng.integer(0, parts - 1)];
  }
  return out;
}

class PlanMaker {
 public:
  PlanMaker(std::uint64_t seed, const Features& features) : rng_(seed), features_(features) {}

  RandomPlan make() {
    const int blocks = integer(features_.tied || features_.redundancy ? 2 : 1, 5);
    out_.workload = number_workload(blocks, kMachineWidth, kMachineInner,
                                    features_.sequence ? 12 : 2, features_.experts);
    out_.workload.shape.tied_embeddings = features_.tied;
    ir::Plan& plan = out_.plan;
    plan.schedule = static_cast<ir::ScheduleKind>(integer(0, 5));
    if (features_.redundancy) plan.redundancy = ir::Redundancy::next_stage;
    if (models::schedule_entry(plan.schedule).uses_chunks) {
      const bool both_ways = models::schedule_entry(plan.schedule).both_ways;
      if (blocks == 1 || features_.redundancy ||
          (both_ways && (features_.one_way || features_.reroutes))) {
        plan.schedule = ir::ScheduleKind::one_f_one_b;
      } else {
        plan.virtual_stages =
            models::schedule_entry(plan.schedule).folds_back ? 2 : integer(2, std::min(3, blocks));
      }
    }
    plan.communication.activation_transfer = rng_.bernoulli(0.5)
                                                 ? ir::ActivationTransfer::leader_broadcast
                                                 : ir::ActivationTransfer::sliced;
    plan.communication.gradient_overlap = rng_.bernoulli(0.5);
    if (rng_.bernoulli(0.5)) plan.communication.bucket = Bytes{100};
    zero_.stage = features_.redundancy ? 0 : integer(0, 3);
    if (rng_.bernoulli(0.5)) zero_.shard_group = integer(1, 3);
    const int pipelines = integer(1, 3);
    for (int p = 0; p < pipelines; ++p) {
      if (p > 0 && features_.reroutes) {
        add_copy();
      } else {
        add_pipeline(blocks);
      }
    }
    if (features_.reroutes) add_reroutes();
    shuffle_devices();
    plan.communication.parameter_overlap =
        plan.communication.gradient_overlap && rng_.bernoulli(0.5);
    if (rng_.fork(1).bernoulli(0.5)) draw_state_weights(plan, rng_.fork(2));
    if (rng_.fork(3).bernoulli(0.5)) draw_experts(rng_.fork(4));
    return std::move(out_);
  }

 private:
  int integer(int low, int high) { return static_cast<int>(rng_.integer(low, high)); }

  void add_pipeline(int blocks) {
    ir::Pipeline pipeline;
    const bool both_ways = models::schedule_entry(out_.plan.schedule).both_ways;
    pipeline.micro_batches = both_ways ? 2 * integer(2, 3) : integer(1, 4);
    pipeline.micro_batch_size = integer(1, features_.experts > 0 ? 4 : 3);
    int first = 0;
    if (out_.plan.virtual_stages > 1) {
      add_chunks(pipeline, blocks);
    } else {
      const int fewest = features_.redundancy ? 2 : 1;
      for (const int count : cut(blocks, integer(fewest, std::min(3, blocks)), rng_)) {
        pipeline.stages.push_back(stage(first, count, pipeline.micro_batch_size));
        first += count;
      }
    }
    out_.plan.pipelines.push_back(std::move(pipeline));
  }

  /// The first pipeline again, on other devices and with another number of micro-batches.
  void add_copy() {
    ir::Pipeline copy = out_.plan.pipelines.front();
    copy.micro_batches = integer(1, 4);
    const int base = out_.devices;
    for (ir::Stage& stage : copy.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) {
            device.value += base;
            out_.devices = std::max(out_.devices, device.value + 1);
          }
        }
      }
    }
    out_.plan.pipelines.push_back(std::move(copy));
  }

  void add_reroutes() {
    auto& pipelines = out_.plan.pipelines;
    if (pipelines.size() < 2) return;
    for (std::size_t s = 0; s < pipelines[0].stages.size(); ++s) {
      const int last = static_cast<int>(pipelines.size()) - 1;
      const bool chain = rng_.bernoulli(0.3);  // Each to the next one, the last to the first.
      const int keeps = integer(0, last);      // Else one takes those of all others.
      for (std::size_t p = 0; p < pipelines.size(); ++p) {
        if (!chain && static_cast<int>(p) == keeps) continue;
        const int to = chain ? (static_cast<int>(p) + 1) % (last + 1) : keeps;
        const bool all = zero_.stage == 0 && rng_.bernoulli(0.3);
        for (int m = 0; m < pipelines[p].micro_batches - (all ? 0 : 1); ++m) {
          if (!all && rng_.bernoulli(0.6)) continue;
          pipelines[p].reroutes.push_back({static_cast<int>(s), m, to});
        }
      }
    }
  }

  /// Stages with a segment for each chunk, on the same groups.
  void add_chunks(ir::Pipeline& pipeline, int blocks) {
    const int chunks = out_.plan.virtual_stages;
    const models::ScheduleEntry& schedule = models::schedule_entry(out_.plan.schedule);
    const bool both_ways = schedule.both_ways;  // Each chunk has all blocks.
    const int stages = both_ways ? 2 : integer(1, std::min(3, blocks / chunks));
    int first = 0;
    const std::vector<int> counts = cut(blocks, both_ways ? stages : stages * chunks, rng_);
    for (int s = 0; s < stages; ++s) {
      pipeline.stages.push_back(stage(0, 1, pipeline.micro_batch_size));
    }
    for (int chunk = 0; chunk < chunks; ++chunk) {
      if (both_ways) first = 0;
      for (int step = 0; step < stages; ++step) {
        ir::Stage& at = pipeline.stages[as_size(schedule.stage_at(chunk, step, stages))];
        const int count = counts[as_size((both_ways ? 0 : chunk * stages) + step)];
        if (chunk > 0) at.segments.push_back(at.segments.front());
        ir::Segment& segment = at.segments.back();
        segment.virtual_stage = chunk;
        segment.first_block = {first};
        segment.last_block = {first + count - 1};
        if (rng_.bernoulli(0.3)) segment.recompute = ir::Recompute::full;
        first += count;
      }
    }
  }

  /// A group of random degrees, without devices.
  ir::Group group() {
    ir::Group group;
    group.tensor_parallel = integer(1, features_.experts > 0 ? 3 : 4);
    if (!features_.sequence) return group;
    group.sequence = static_cast<ir::SequenceParallelism>(integer(0, 3));
    if (group.sequence == ir::SequenceParallelism::ulysses ||
        group.sequence == ir::SequenceParallelism::ring) {
      group.tensor_parallel = integer(1, 2);
      group.sequence_degree = integer(1, 3);
    }
    return group;
  }

  ir::Stage stage(int first, int count, int samples) {
    ir::Segment segment;
    segment.first_block = {first};
    segment.last_block = {first + count - 1};
    segment.zero = zero_;
    segment.recompute = rng_.bernoulli(0.5) ? ir::Recompute::full : ir::Recompute::none;
    int groups = integer(1, std::min(2, samples));
    if (features_.experts > 0) {
      constexpr int kDegrees[] = {1, 2, 4};
      segment.expert_parallel = kDegrees[integer(0, 2)];
      while (segment.expert_parallel > samples) segment.expert_parallel /= 2;
      groups = segment.expert_parallel * integer(1, samples / segment.expert_parallel);
    }
    const int base = out_.devices;
    for (const int share : cut(samples, groups, rng_)) {
      const auto at = segment.groups.size();
      const bool same = at % as_size(segment.expert_parallel) != 0;
      segment.groups.push_back(same ? segment.groups.back() : group());
      ir::Group& added = segment.groups.back();
      added.samples = share;
      added.devices.clear();
      for (int i = 0; i < added.tensor_parallel * added.sequence_degree; ++i) {
        added.devices.push_back({out_.devices++});
      }
    }
    ir::Stage stage;
    stage.segments.push_back(segment);
    if (count > 1 && !features_.redundancy &&
        rng_.bernoulli(0.4)) {  // Two segments on the same devices.
      stage.segments.front().last_block = {first};
      segment.first_block = {first + 1};
      const int devices = out_.devices - base;
      if (rng_.bernoulli(0.5) && devices <= 4) {  // As one group of another degree.
        ir::Group all;
        all.tensor_parallel = features_.experts > 0 ? std::min(devices, 3) : devices;
        all.samples = samples;
        for (int i = 0; i < devices; ++i) all.devices.push_back({base + i});
        if (all.tensor_parallel == devices) {
          segment.groups = {all};
          segment.expert_parallel = 1;
        }
      }
      stage.segments.push_back(std::move(segment));
    }
    return stage;
  }

  /// Unlike numbers of experts in groups of single devices.
  void draw_experts(Rng rng) {
    for (ir::Pipeline& pipeline : out_.plan.pipelines) {
      for (ir::Stage& stage : pipeline.stages) {
        for (ir::Segment& segment : stage.segments) {
          const std::size_t degree = as_size(segment.expert_parallel);
          const bool single = std::all_of(segment.groups.begin(), segment.groups.end(),
                                          [](const auto& g) { return g.devices.size() == 1; });
          if (degree < 2 || !single || features_.reroutes) continue;
          for (std::size_t first = 0; first < segment.groups.size(); first += degree) {
            std::size_t next = first;
            for (const int held : cut(features_.experts, segment.expert_parallel, rng)) {
              segment.groups[next++].experts = held;
            }
          }
        }
      }
    }
  }

  /// Device ids in no order: nothing may rest on pipelines having ascending ones.
  void shuffle_devices() {
    std::vector<int> ids(out_.devices);
    std::iota(ids.begin(), ids.end(), 0);
    for (std::size_t i = ids.size(); i > 1; --i) {
      std::swap(ids[i - 1], ids[integer(0, static_cast<int>(i) - 1)]);
    }
    for (ir::Pipeline& pipeline : out_.plan.pipelines) {
      for (ir::Stage& stage : pipeline.stages) {
        for (ir::Segment& segment : stage.segments) {
          for (ir::Group& group : segment.groups) {
            for (DeviceId& device : group.devices) device = {ids[device.index()]};
          }
        }
      }
    }
  }

  Rng rng_;
  Features features_;
  RandomPlan out_;
  ir::Zero zero_;
};

}  // namespace

RandomPlan random_plan(std::uint64_t seed, const Features& features) {
  return PlanMaker(seed, features).make();
}

void draw_state_weights(ir::Plan& plan, Rng rng) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        const ir::Zero& zero = segment.zero;
        if (zero.stage == 0 || zero.shard_group != 0 || segment.expert_parallel > 1) continue;
        for (ir::Group& group : segment.groups) {
          group.state_weight = static_cast<int>(rng.integer(1, 4));
        }
      }
    }
  }
}

bool is_first_gather(const ir::Program& program, OpId id) {
  const ir::Op& op = program.op(id);
  if (op.purpose != ir::Purpose::zero || ir::is_pass(op.kind)) return false;
  const auto before = program.dependencies_of(id);
  return std::none_of(before.begin(), before.end(),
                      [&](OpId one) { return program.op(one).kind == ir::OpKind::optimizer_step; });
}

}  // namespace orrery::models
