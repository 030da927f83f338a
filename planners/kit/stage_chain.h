/// Exact dynamic programs over pipelines whose stages choose how many devices they take: the core
/// of Alpa (minimize sum + (B - 1) largest stage cost over all devices) and of Piper (minimize the
/// largest stage cost over at most that many devices). Devices are only counted: all are equal.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace orrery::planners {

/// A way to run a stage: devices that it takes, and what it adds to the load of itself and of the
/// stages before it. The load of a stage is the sum of the degrees from it to the last stage; its
/// cost may depend on it, because stages ahead make it hold more activations. Alpa: degree 1, so
/// that the load is the number of stages left. Piper: the data-parallel degree.
struct StageChoice {
  int devices = 1;
  int degree = 1;
};

/// The stage costs `cost` as long as its load is at most `most`. Several steps trade cost for load
/// (other logical shapes, more recomputation); the cheapest one that the load allows is taken.
struct StageStep {
  int most = 0;
  double cost = 0;  ///< >= 0, finite.
  int variant = 0;  ///< Of the caller; returned with the pick.
};

struct StagePick {
  int first = 0;
  int last = 0;  ///< Inclusive.
  int choice = 0;
  int variant = 0;
  double cost = 0;
  bool operator==(const StagePick&) const = default;
};

/// A chain of stages over all layers, in order.
struct ChainPick {
  std::vector<StagePick> stages;
  double sum = 0;
  double largest = 0;
  int devices = 0;
};

class StageChain {
 public:
  /// Steps of the layers first ... last (0-based, inclusive) under a choice; none: impossible.
  using Steps = std::function<std::vector<StageStep>(int first, int last, int choice)>;

  /// Asks for each (first, last, choice) once. `devices` and `load`: the most of each in all.
  StageChain(int layers, std::vector<StageChoice> choices, int devices, int load,
             const Steps& steps);

  /// Least sum of costs, none above `cap`, over exactly `devices` devices (at most those of the
  /// constructor). Ties: fewer stages' load, then shorter first stages, earlier choices.
  /// O(layers^2 choices load devices), less where the cap forbids long stages.
  std::optional<ChainPick> cheapest(double cap, int devices);
  /// The most devices, a multiple of `unit`, that some chain uses exactly; 0: none. One table.
  int most_devices(int unit);
  /// Fewest devices, at most the constructor's, no cost above `cap`; of those the least load.
  /// O(layers^2 choices load).
  std::optional<ChainPick> fewest_devices(double cap) const;
  /// All step costs, ascending, each once.
  const std::vector<double>& costs() const { return costs_; }

 private:
  std::size_t range(int first, int last, int choice) const;
  std::span<const StageStep> steps(int first, int last, int choice) const;
  /// The cheapest step that load and cap allow, or null.
  const StageStep* step(int first, int last, int choice, int load, double cap) const;
  std::size_t row(int layer, int load) const;
  void fill(double cap);
  void extend(int first, int last, int choice, double cap);

  int layers_;
  std::vector<StageChoice> choices_;
  int devices_;
  int load_;
  std::vector<std::size_t> offsets_;
  std::vector<StageStep> steps_;
  std::vector<double> costs_;
  /// Least sum by (layer, load, devices) for the layers from `layer` on, under filled_cap_.
  std::vector<double> table_;
  std::vector<char> used_;  ///< By (layer, load): some entry is finite.
  std::optional<double> filled_cap_;
};

/// Asked before each table; false ends the search.
using Proceed = std::function<bool()>;

/// The best chain found, and whether the search came to its end.
struct ChainSearch {
  std::optional<ChainPick> best;
  bool complete = true;
};

/// Minimizes sum + (micro_batches - 1) largest over exactly `devices` devices [Alpa, OSDI 2022,
/// Eq. 2 and Algorithm 1]. Alpa raises a cap on the largest cost over the sorted distinct costs,
/// skips caps closer than `gap` and stops when cap x micro_batches cannot win. Here the least cap
/// comes from bisection, and the caps above it are walked downwards from one point of the front of
/// (largest, sum) to the next, starting at the largest cap that can still win: the same optimum
/// (within micro_batches x gap, exact for gap 0) from fewer tables. `visit` sees each chain
/// met, once.
ChainSearch least_pipeline_time(StageChain& chain, int devices, int micro_batches, double gap,
                                const Proceed& proceed,
                                const std::function<void(const ChainPick&)>& visit);

/// Minimizes the largest cost over at most the chain's devices, then the devices, then the load.
/// [Piper, NeurIPS 2021, section 4] by bisection over the distinct costs: whether a cap can be kept
/// needs no table over devices, only the fewest that keep it.
ChainSearch least_bottleneck(const StageChain& chain, const Proceed& proceed);

}  // namespace orrery::planners
