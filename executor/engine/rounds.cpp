#include "executor/engine/rounds.h"

#include "models/ir/op_traits.h"

namespace orrery::executor {

void GradientRounds::begin() {
  synchronized_.clear();
  for (auto& [key, earlier] : earlier_) earlier.used = false;
}

void GradientRounds::ended(const ir::Op& op) {
  if (op.purpose != ir::Purpose::data_parallel || op.stream == ir::Stream::compute) return;
  const std::lock_guard lock(mutex_);
  for (const ir::Region& region : view_.regions(op.regions)) {
    if (region.tensor != ir::TensorKind::gradient) continue;
    for (const BlockId b : ids_from_to(region.first_block, region.last_block)) {
      synchronized_.insert({b, region.parameter});
    }
  }
}

void GradientRounds::before(const ir::Op& op) {
  if (!ir::traits(op.kind).weight_gradients) return;
  const ir::SegmentInfo& info = view_.segment(op);
  std::set<Key> begun;
  {
    const std::lock_guard lock(mutex_);
    const auto first = synchronized_.lower_bound({info.first_block, 0});
    const auto end = synchronized_.lower_bound({{info.last_block.value + 1}, 0});
    begun = {first, end};
    synchronized_.erase(first, end);
    // A tied head adds to the embedding's matrix.
    const ir::ProgramHeader& header = view_.program().header;
    const bool head = info.last_block.index() + 1 == header.blocks.size();
    const Key token = {{0}, 0};
    if (header.model.tied_embeddings && head && synchronized_.erase(token) > 0) begun.insert(token);
  }
  Backend& backend = shard_.backend();
  for (const Key& key : begun) {
    const Tensor& of_round = gradient(key);
    Earlier& earlier = earlier_[key];
    if (earlier.sum.memory == nullptr) earlier.sum = backend.allocate(of_round.elements, true);
    if (earlier.used) {
      backend.add(of_round, earlier.sum);
    } else {
      backend.copy(of_round, earlier.sum);
    }
    earlier.used = true;
    backend.fill(of_round, 0);
  }
}

void GradientRounds::finish() {
  for (const auto& [key, earlier] : earlier_) {
    if (earlier.used) shard_.backend().add(earlier.sum, gradient(key));
  }
}

const Tensor& GradientRounds::gradient(const Key& key) {
  return shard_.parameters(key.first)[key.second].gradient;
}

}  // namespace orrery::executor
