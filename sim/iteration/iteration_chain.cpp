#include "sim/iteration/iteration_chain.h"

#include <algorithm>
#include <span>

namespace orrery::sim {
namespace {

/// Streams but p2p run their ops one after the other.
bool in_order(ir::Stream stream) { return stream != ir::Stream::p2p; }

/// No op of its rank comes before it in its iteration.
bool opens(const ir::Program& program, OpId id, std::uint32_t stream_begin) {
  const ir::Op& op = program.op(id);
  if (in_order(op.stream) && id.index() > stream_begin) return false;
  const std::span<const OpId> before = program.dependencies_of(id);
  return std::none_of(before.begin(), before.end(),
                      [&](OpId other) { return program.op(other).rank == op.rank; });
}

}  // namespace

IterationChain::IterationChain(const ProgramTasks::Input& input, FlowEngine& engine, int count,
                               Next next)
    : input_(input),
      program_(input.program),
      folding_(input.folding),
      engine_(engine),
      next_(next) {
  add_backgrounds();
  for (int i = 0; i < count; ++i) extend();
}

/// Of ranks that have collectives, and lose speed beside them.
void IterationChain::add_backgrounds() {
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const RankId rank{static_cast<std::int32_t>(r)};
    if (program_.stream_ops(rank, ir::Stream::collective).empty()) continue;
    if (input_.prices.overlap_loss(rank) <= 0) continue;
    backgrounds_.resize(program_.ranks.size());
    backgrounds_[r] = engine_.add_background();
  }
  input_.backgrounds = backgrounds_;
}

std::vector<TaskId> IterationChain::extend() {
  iterations_.push_back(std::make_unique<ProgramTasks>(input_, engine_));
  iterations_.back()->build();
  if (count() == 1) return {};
  return follow(iteration(count() - 2), iteration(count() - 1));
}

template <class Take>
void IterationChain::for_each_opening(std::size_t rank, Take take) const {
  for (std::size_t slot = rank * ir::kStreams; slot < (rank + 1) * ir::kStreams; ++slot) {
    const std::uint32_t begin = program_.stream_begin[slot];
    for (std::uint32_t i = begin; i < program_.stream_begin[slot + 1]; ++i) {
      const OpId id{static_cast<std::int32_t>(i)};
      if (opens(program_, id, begin)) take(id);
    }
  }
}

void IterationChain::delay(Seconds start) {
  const TaskId wait = engine_.add_delay(start);
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    for_each_opening(r, [&](OpId id) { engine_.add_dependency(wait, iteration(0).first(id)); });
  }
}

std::vector<TaskId> IterationChain::follow(const ProgramTasks& before, const ProgramTasks& after) {
  std::vector<TaskId> gates;
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const std::span<const std::uint32_t> begin(&program_.stream_begin[r * ir::kStreams],
                                               ir::kStreams + 1);
    if (begin.front() == begin.back()) continue;
    if (gates.empty() || next_ == Next::after_own_ops) gates.push_back(engine_.add_barrier());
    const TaskId gate = gates.back();
    for (int s = 0; s < ir::kStreams; ++s) {
      const std::size_t slot = s;
      for (std::uint32_t i = begin[slot]; i < begin[slot + 1]; ++i) {
        const OpId id{static_cast<std::int32_t>(i)};
        const bool ends_stream = i + 1 == begin[slot + 1];
        if (ends_stream || !in_order(static_cast<ir::Stream>(s))) {
          engine_.add_dependency(before.last(id), gate);
        }
      }
    }
    for_each_opening(r, [&](OpId id) { engine_.add_dependency(gate, after.first(id)); });
  }
  return gates;
}

SimulatedWork IterationChain::work() const {
  SimulatedWork all;
  for (const auto& one : iterations_) {
    all.timers += one->work().timers;
    all.flows += one->work().flows;
    all.barriers += one->work().barriers;
  }
  return all;
}

std::vector<RankEnds> IterationChain::ends(Seconds start) const {
  std::vector<RankEnds> all(iterations_.size() + 1, RankEnds(program_.ranks.size(), start));
  for (std::size_t i = 0; i < iterations_.size(); ++i) {
    RankEnds& ends = all[i + 1];
    Seconds latest = start;
    for (std::size_t op = 0; op < program_.ops.size(); ++op) {
      const TaskId last = iterations_[i]->last({static_cast<std::int32_t>(op)});
      Seconds& end = ends[program_.ops[op].rank.index()];
      end = std::max(end, engine_.end_time(last));
      latest = std::max(latest, end);
    }
    for (std::size_t r = 0; r < ends.size(); ++r) {
      const RankId rank{static_cast<std::int32_t>(r)};
      if (folding_ != nullptr && !folding_->is_built(rank)) {
        ends[r] = ends[folding_->same_rank[r].index()];
        continue;
      }
      const bool idle =
          program_.stream_begin[r * ir::kStreams] == program_.stream_begin[(r + 1) * ir::kStreams];
      if (idle) ends[r] = latest;
    }
  }
  return all;
}

}  // namespace orrery::sim
