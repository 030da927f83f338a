#include "executor/engine/activations.h"

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {

ActivationStore::ActivationStore(const RankView& view, Backend& backend)
    : view_(view), backend_(backend) {
  for (const ir::Op& op : view.ops()) {
    for (const ActivationKey& key : view.touches(op)) ++uses_[key];
  }
}

void ActivationStore::reset() {
  const std::lock_guard lock(mutex_);
  entries_.clear();
  for (const auto& [key, uses] : uses_) entries_[key].uses = uses;
}

std::int64_t ActivationStore::rows_of(const ActivationKey& key) const {
  const auto& pipeline = view_.program().pipelines[key.pipeline];
  return pipeline.micro_batch_size * view_.program().header.sequence_length;
}

Tensor ActivationStore::rows(const ActivationKey& key, std::int64_t first, std::int64_t last) {
  const std::size_t width = view_.program().header.model.hidden;
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  ORRERY_CHECK(it != entries_.end(), "activation of block {} is not there any more", key.block);
  Tensor& tensor = it->second.tensor;
  if (!tensor.memory) {
    tensor = backend_.allocate(as_size(rows_of(key)) * width, false);
  }
  return part(tensor, as_size(first) * width, as_size(last) * width);
}

void ActivationStore::adopt(const ActivationKey& key, const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  const auto it = entries_.find(key);
  ORRERY_CHECK(it != entries_.end(), "activation of block {} is of no use", key.block);
  it->second.tensor = tensor;
}

void ActivationStore::release(const ir::Op& op) {
  for (const ActivationKey& key : view_.touches(op)) {
    const std::lock_guard lock(mutex_);
    const auto it = entries_.find(key);
    if (--it->second.uses == 0) entries_.erase(it);
  }
}

}  // namespace orrery::executor
