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

IterationChain::IterationChain(const ProgramTasks::Input& input, FlowEngine& engine, int count)
    : program_(input.program), folding_(input.folding), engine_(engine) {
  for (int i = 0; i < count; ++i) {
    iterations_.push_back(std::make_unique<ProgramTasks>(input, engine));
    iterations_.back()->build();
    if (i > 0) follow(iteration(i - 1), iteration(i));
  }
}

void IterationChain::follow(const ProgramTasks& before, const ProgramTasks& after) {
  for (std::size_t r = 0; r < program_.ranks.size(); ++r) {
    const std::span<const std::uint32_t> begin(&program_.stream_begin[r * ir::kStreams],
                                               ir::kStreams + 1);
    if (begin.front() == begin.back()) continue;
    const TaskId gate = engine_.add_barrier();
    for (int s = 0; s < ir::kStreams; ++s) {
      const std::size_t slot = s;
      for (std::uint32_t i = begin[slot]; i < begin[slot + 1]; ++i) {
        const OpId id{static_cast<std::int32_t>(i)};
        const bool ends_stream = i + 1 == begin[slot + 1];
        if (ends_stream || !in_order(static_cast<ir::Stream>(s))) {
          engine_.add_dependency(before.last(id), gate);
        }
        if (opens(program_, id, begin[slot])) engine_.add_dependency(gate, after.first(id));
      }
    }
  }
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
