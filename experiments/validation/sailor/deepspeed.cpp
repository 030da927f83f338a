#include "experiments/validation/sailor/deepspeed.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/check.h"

namespace orrery::experiments {
namespace {

using ir::OpKind;

/// Stages of each pipeline.
std::vector<int> stages_of(const ir::Program& program) {
  std::vector<int> stages(program.pipelines.size(), 0);
  for (const ir::Rank& rank : program.ranks) {
    int& count = stages[static_cast<std::size_t>(rank.pipeline)];
    count = std::max(count, rank.stage + 1);
  }
  return stages;
}

/// Whether what moves are gradients of activations.
bool moves_gradients(const ir::Program& program, std::int32_t regions) {
  ORRERY_CHECK(regions != ir::kNone, "a transfer says not what it moves");
  return program.region_sets[static_cast<std::size_t>(regions)].front().tensor ==
         ir::TensorKind::activation_gradient;
}

enum class Role { forward, backward, send, receive, gather };

/// The ops of one rank by what they do; those of the p2p stream by whether they move gradients.
class RankOps {
 public:
  RankOps(const ir::Program& program, RankId rank) {
    for (std::size_t i = 0; i < program.ops.size(); ++i) {
      const ir::Op& op = program.ops[i];
      if (op.rank != rank) continue;
      const OpId id{static_cast<std::int32_t>(i)};
      if (op.kind == OpKind::forward || op.kind == OpKind::backward) {
        const bool backward = op.kind == OpKind::backward;
        add(backward ? Role::backward : Role::forward, backward, op.micro_batch, id);
      } else if (op.purpose == ir::Purpose::pipeline) {
        const bool gradient = moves_gradients(program, op.regions);
        const Role role = op.kind == OpKind::send   ? Role::send
                          : op.kind == OpKind::recv ? Role::receive
                                                    : Role::gather;
        add(role, gradient, op.micro_batch, id);
      } else {
        rest_.push_back(id);
      }
    }
  }

  /// Appends them and takes them out.
  void take(Role role, bool gradient, int micro_batch, std::vector<OpId>& order) {
    const auto found = ops_.find({role, gradient, micro_batch});
    if (found == ops_.end()) return;
    order.insert(order.end(), found->second.begin(), found->second.end());
    ops_.erase(found);
  }
  bool empty() const { return ops_.empty(); }
  /// Gradient synchronization and optimizer step.
  const std::vector<OpId>& rest() const { return rest_; }

 private:
  void add(Role role, bool gradient, MicroBatchId micro_batch, OpId id) {
    ops_[{role, gradient, micro_batch.value}].push_back(id);
  }
  std::map<std::tuple<Role, bool, int>, std::vector<OpId>> ops_;
  std::vector<OpId> rest_;
};

/// In the order of DeepSpeed's TrainSchedule.
std::vector<OpId> instruction_order(RankOps& ops, int stage, int stages, int micro_batches) {
  std::vector<OpId> order;
  const auto exists = [&](int m) { return m >= 0 && m < micro_batches; };
  int before = -1;  // Micro-batch of the step before.
  for (int step = 0; step < 2 * (micro_batches + stages - 1); ++step) {
    const bool forward = (step - stage) % 2 == 0;
    const int own = forward ? (step - stage) / 2 : (step + stage + 1) / 2 - stages;
    if (forward) {
      if (exists(before)) ops.take(Role::send, true, before, order);
      if (exists(own)) {
        ops.take(Role::receive, false, own, order);
        ops.take(Role::gather, false, own, order);
        ops.take(Role::forward, false, own, order);
      }
    } else {
      if (exists(own)) ops.take(Role::receive, true, own, order);
      if (exists(before)) ops.take(Role::send, false, before, order);
      if (exists(own)) {
        ops.take(Role::gather, true, own, order);
        ops.take(Role::backward, true, own, order);
      }
    }
    before = own;
  }
  return order;
}

/// Shapes are shared by micro-batches, but not by directions: their regions differ.
void double_gradient_gathers(ir::Program& program) {
  for (ir::CollectiveShape& shape : program.collective_shapes) {
    if (shape.purpose != ir::Purpose::pipeline || !moves_gradients(program, shape.regions)) {
      continue;
    }
    for (ir::CollectiveShape::Part& part : shape.parts) part.bytes *= 2;
  }
  for (ir::Op& op : program.ops) {
    if (op.kind == OpKind::collective && op.purpose == ir::Purpose::pipeline &&
        moves_gradients(program, op.regions)) {
      op.bytes *= 2;
    }
  }
}

void add_flat_buffers(ir::Program& program) {
  const Bytes most{kDeepSpeedBucketElements * ir::size_of(program.header.dtype).value};
  for (auto& resident : program.resident) {
    Bytes gradients;
    std::int32_t segment = ir::kNone;
    for (const ir::BufferEffect& effect : resident) {
      if (effect.kind != ir::BufferKind::gradients) continue;
      gradients += effect.bytes;
      segment = effect.segment;
    }
    if (segment == ir::kNone) continue;
    resident.push_back({ir::BufferKind::communication, ir::BufferEffect::Action::allocate, false,
                        segment, std::min(gradients, most)});
  }
}

/// Adds, for each op, the op of its rank that DeepSpeed runs before it.
void add_order(ir::Program& program) {
  const std::vector<int> stages = stages_of(program);
  std::vector<std::vector<OpId>> added(program.ops.size());
  for (std::size_t r = 0; r < program.ranks.size(); ++r) {
    const ir::Rank& rank = program.ranks[r];
    const auto pipeline = static_cast<std::size_t>(rank.pipeline);
    RankOps ops(program, {static_cast<std::int32_t>(r)});
    const std::vector<OpId> order = instruction_order(ops, rank.stage, stages[pipeline],
                                                      program.pipelines[pipeline].micro_batches);
    ORRERY_CHECK(ops.empty(), "rank {} has ops that DeepSpeed's schedule does not", r);
    for (std::size_t i = 1; i < order.size(); ++i) added[order[i].index()].push_back(order[i - 1]);
    for (const OpId op : ops.rest()) added[op.index()].push_back(order.back());
  }
  std::vector<std::uint32_t> begin = {0};
  std::vector<OpId> dependencies;
  for (std::size_t i = 0; i < program.ops.size(); ++i) {
    const auto known = program.dependencies_of({static_cast<std::int32_t>(i)});
    std::vector<OpId> all(known.begin(), known.end());
    for (const OpId before : added[i]) {
      if (std::find(all.begin(), all.end(), before) == all.end()) all.push_back(before);
    }
    dependencies.insert(dependencies.end(), all.begin(), all.end());
    begin.push_back(static_cast<std::uint32_t>(dependencies.size()));
  }
  program.dependency_begin = std::move(begin);
  program.dependencies = std::move(dependencies);
}

}  // namespace

ir::Program as_deepspeed(ir::Program program, bool blocking) {
  ORRERY_CHECK(program.header.collapsed && program.header.schedule == ir::ScheduleKind::one_f_one_b,
               "only collapsed 1F1B programs");
  if (blocking) add_order(program);
  for (ir::Op& op : program.ops) op.inner = ir::kNone;
  double_gradient_gathers(program);
  add_flat_buffers(program);
  const std::string defect = ir::find_defect(program);
  ORRERY_CHECK(defect.empty(), "DeepSpeed's order: {}", defect);
  return program;
}

}  // namespace orrery::experiments
