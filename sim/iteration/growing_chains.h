/// Chains of iterations that grow while the engine runs, until the caller has seen enough. Private
/// to sim/iteration.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "sim/flow/engine.h"
#include "sim/iteration/iteration_chain.h"

namespace orrery::sim {

/// Ranks always find their next iteration: a chain is extended when the first rank begins the last
/// iteration that it has.
class GrowingChains {
 public:
  /// All ranks of a chain have ended the iteration, counted from 0, the last one at `time`. True:
  /// it is enough.
  using Finished = std::function<bool(std::size_t chain, int iteration, Seconds time)>;

  GrowingChains(FlowEngine& engine, Finished finished)
      : engine_(engine), finished_(std::move(finished)) {}
  /// Before the run: a chain with ops, numbered from 0. It must outlive the run.
  void add(IterationChain& chain);
  /// Runs the engine until it is enough, and cancels what has not ended then.
  void run();

 private:
  /// A barrier that ranks pass from one iteration to the next.
  struct Gate {
    std::size_t chain;
    int iteration;  ///< That they have ended.
  };
  void extend(std::size_t chain);
  void passed(TaskId task);

  FlowEngine& engine_;
  Finished finished_;
  std::vector<IterationChain*> chains_;
  std::unordered_map<std::int32_t, Gate> gates_;
  std::map<std::pair<std::size_t, int>, std::size_t> left_;  ///< Gates of an iteration not passed.
  bool enough_ = false;
};

}  // namespace orrery::sim
