/// Consecutive iterations of one Program as tasks of the flow engine; each rank begins an iteration
/// when it has finished all its own ops of the one before. Private to sim/iteration.
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "models/base/ids.h"
#include "sim/iteration/pace.h"
#include "sim/iteration/program_tasks.h"

namespace orrery::sim {

class IterationChain {
 public:
  /// Keeps references. Adds the tasks of `count` >= 1 iterations to `engine`. All have the same
  /// prices, noise included.
  IterationChain(const ProgramTasks::Input& input, FlowEngine& engine, int count);

  int count() const { return static_cast<int>(iterations_.size()); }
  ProgramTasks& iteration(int i) { return *iterations_[i]; }
  SimulatedWork work() const;
  /// After the run, which began at `start`: when each rank began iteration 0, then when it ended
  /// iterations 0, 1, ... A rank without ops ends with the last one.
  std::vector<RankEnds> ends(Seconds start) const;

 private:
  void follow(const ProgramTasks& before, const ProgramTasks& after);

  const ir::Program& program_;
  const Folding* folding_;
  FlowEngine& engine_;
  std::vector<std::unique_ptr<ProgramTasks>> iterations_;
};

}  // namespace orrery::sim
