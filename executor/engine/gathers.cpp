#include "executor/engine/gathers.h"

#include <cstddef>
#include <span>

#include "executor/engine/moves.h"
#include "executor/net/clock.h"
#include "executor/net/ring.h"
#include "models/base/ids.h"

namespace orrery::executor {

ShardGathers::ShardGathers(const RankView& view, ModelShard& shard, Transport& transport)
    : view_(view), shard_(shard), transport_(transport) {}

void ShardGathers::begin(std::int64_t step) {
  step_ = static_cast<std::uint64_t>(step);
  done_.clear();
  spent_ = {};
}

void ShardGathers::bring(BlockId block, TensorGroup& group) {
  const std::vector<RankView::ShardGather>& all = view_.gathers(block);
  if (all.empty()) return;
  const std::int64_t begin = now_ns();
  const std::int64_t begin_cpu = thread_cpu_ns();
  Backend& backend = shard_.backend();
  std::vector<HeldParameter>& parameters = shard_.parameters(block);
  for (HeldParameter& held : parameters) {
    held.weight = backend.allocate(held.elements(), false);
    for (const UnitRange& range : held.updated) {
      backend.copy(held.own_units(held.shard, range.begin, range.end),
                   held.units(held.weight, range.begin, range.end));
    }
  }
  backend.synchronize();
  for (const RankView::ShardGather& one : all) gather(one, parameters);
  spent_.nanoseconds += now_ns() - begin;
  spent_.cpu_nanoseconds += thread_cpu_ns() - begin_cpu;
  for (const int parameter : view_.kept_by_first(block)) {
    group.broadcast(parameters[parameter].weight);
  }
}

void ShardGathers::gather(const RankView::ShardGather& what,
                          std::vector<HeldParameter>& parameters) {
  Backend& backend = shard_.backend();
  const std::size_t width = backend.element_bytes(false);
  std::vector<Extent> parts;
  std::vector<std::pair<Tensor, std::size_t>> tensors;  ///< With the first element in the buffer.
  std::size_t at = 0;
  for (const std::vector<ir::Region>& regions : what.members) {
    const std::size_t begin = at;
    for (const ir::Region& region : regions) {
      const HeldParameter& held = parameters[region.parameter];
      tensors.emplace_back(held.units(held.weight, region.begin, region.end), at);
      at += tensors.back().first.elements;
    }
    parts.push_back({begin, at});
  }
  std::vector<std::byte> data(at * width);
  const auto bytes = [&](const auto& one) {
    return std::span(data).subspan(one.second * width, one.first.elements * width);
  };
  const Extent own = parts[what.group.position];
  const auto is_own = [&](const auto& one) {
    return one.second >= own.begin && one.second < own.end;
  };
  for (const auto& one : tensors) {
    if (is_own(one)) backend.download(one.first, bytes(one));
  }
  const auto n = static_cast<std::uint64_t>(what.group.size());
  // Parts below 2 n belong to the gradients' collective of this tag.
  const RingTag tag = {step_, what.tag, 2 * n + n * done_[what.tag]++};
  all_gather(transport_, what.group, element_of(backend, false), data, parts, tag);
  for (const auto& one : tensors) {
    if (!is_own(one)) backend.upload(bytes(one), one.first);
  }
  spent_.bytes += static_cast<std::int64_t>(data.size() * (n - 1) / n);
}

void ShardGathers::drop(BlockId block) {
  if (view_.gathers(block).empty()) return;
  shard_.backend().synchronize();
  for (HeldParameter& held : shard_.parameters(block)) held.weight = {};
}

}  // namespace orrery::executor
