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
  /// What a rank waits for before it begins its next iteration: for its own ops, as if the program
  /// were staggered, or for all ops.
  enum class Next { after_own_ops, after_all_ops };

  /// Keeps references. Adds the tasks of `count` >= 1 iterations to `engine`. All have the same
  /// prices, noise included.
  IterationChain(const ProgramTasks::Input& input, FlowEngine& engine, int count,
                 Next next = Next::after_own_ops);

  /// Adds another iteration, also while the engine runs. Returns the barriers that end when ranks
  /// have finished the iteration before it: one for all, or one for each that has ops.
  std::vector<TaskId> extend();
  /// Before the run: the first iteration begins `start` after it.
  void delay(Seconds start);

  int count() const { return static_cast<int>(iterations_.size()); }
  ProgramTasks& iteration(int i) { return *iterations_[i]; }
  SimulatedWork work() const;
  /// After the run, which began at `start`: when each rank began iteration 0, then when it ended
  /// iterations 0, 1, ... A rank without ops ends with the last one.
  std::vector<RankEnds> ends(Seconds start) const;

 private:
  void add_backgrounds();
  std::vector<TaskId> follow(const ProgramTasks& before, const ProgramTasks& after);
  /// Calls take(op) for the ops of a rank that no op of the rank comes before.
  template <class Take>
  void for_each_opening(std::size_t rank, Take take) const;

  ProgramTasks::Input input_;
  const ir::Program& program_;
  const Folding* folding_;
  FlowEngine& engine_;
  Next next_;
  std::vector<BackgroundId> backgrounds_;  ///< ProgramTasks::Input::backgrounds.
  std::vector<std::unique_ptr<ProgramTasks>> iterations_;
};

}  // namespace orrery::sim
