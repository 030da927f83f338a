#include "sim/iteration/memory_timeline.h"

#include <algorithm>

namespace orrery::sim {

MemoryTimeline::MemoryTimeline(const ir::Program& program) : program_(program) {
  changes_.reserve(program.buffer_sets.size());
  for (const std::vector<ir::BufferEffect>& set : program.buffer_sets) {
    Change change;
    for (const ir::BufferEffect& effect : set) {
      if (effect.action != ir::BufferEffect::Action::free) change.at_start += effect.bytes;
      if (effect.action != ir::BufferEffect::Action::allocate) change.at_end -= effect.bytes;
    }
    changes_.push_back(change);
  }
}

std::size_t MemoryTimeline::max_samples() const {
  std::size_t count = program_.ranks.size();
  for (const ir::Op& op : program_.ops) {
    if (op.stream != ir::Stream::compute || op.buffers == ir::kNone) continue;
    const Change& effects = changes_[op.buffers];
    count += (effects.at_start.value != 0 ? 1 : 0) + (effects.at_end.value != 0 ? 1 : 0);
  }
  return count;
}

Bytes MemoryTimeline::replay(RankId rank, Instant begin, std::span<const ir::Span> spans,
                             std::vector<ir::MemorySample>* samples) const {
  Bytes held;
  if (rank.index() < program_.resident.size()) {
    for (const ir::BufferEffect& effect : program_.resident[rank.index()]) held += effect.bytes;
  }
  Bytes peak = held;
  const std::size_t first = samples != nullptr ? samples->size() : 0;
  const auto change = [&](Instant at, Bytes by) {
    held += by;
    peak = std::max(peak, held);
    if (samples == nullptr) return;
    if (samples->size() > first && samples->back().at == at) {
      samples->back().allocated = held;
    } else {
      samples->push_back({rank, at, held});
    }
  };
  change(begin, {});
  for (const ir::Span& span : spans) {
    const ir::Op& op = program_.op(span.op);
    if (op.stream != ir::Stream::compute || op.buffers == ir::kNone) continue;
    const Change& effects = changes_[op.buffers];
    if (effects.at_start.value != 0) change(span.start, effects.at_start);
    if (effects.at_end.value != 0) change(span.end, effects.at_end);
  }
  return peak;
}

}  // namespace orrery::sim
