/// Plans that a search found, best first by the planner's own estimate: checks memory in that
/// order, lets the evaluator judge as many as the planner wants, and writes what lost and why.
#pragma once
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

/// The constraint of plans that do not fit in memory.
inline constexpr const char* kDeviceMemory = "device memory";

/// Counts a plan that a constraint forbids; the best of them by the planner's estimate becomes the
/// constraint's witness. `witness` is called only for that one.
void forbid(SearchReport& report, const char* constraint, Seconds estimate,
            const std::function<std::string()>& witness);
/// The constraint of check_memory(); counts in rejected_by_memory too.
void forbid_by_memory(SearchReport& report, Seconds estimate,
                      const std::function<std::string()>& witness);

class Ranking {
 public:
  /// In a report.
  static constexpr std::size_t kRunnersUp = 5;
  /// Room for all plans of any search.
  static constexpr std::size_t kAll = std::size_t{1} << 20;

  /// Keeps the `most` best offers; of equal ones the earlier.
  explicit Ranking(const PlannerInput& input, std::size_t most = kAll)
      : input_(input), most_(most) {}

  /// `what` names the plan in words ("TP 4 x PP 2 x DP 3, micro-batch 1"), `build` makes it; both
  /// are called only if the offer is still among the best when the search ends. A `stratum` is a
  /// part of the space that the planner wants judged, however it compares by estimate: strata take
  /// turns with the evaluator. Stratum 0 is what the planner searches without an evaluator.
  void offer(Seconds estimate, std::function<ir::Plan()> build, std::function<std::string()> what,
             int stratum = 0);
  /// As above, for a plan that is already there.
  void offer(Seconds estimate, ir::Plan plan, std::string what, int stratum = 0);

  bool empty() const { return offers_.empty(); }
  /// Estimate of the best offer. Not empty.
  Seconds best() const;
  /// An offer with this estimate would be kept.
  bool wants(Seconds estimate) const;

  /// Walks the offers in order. Those that check_memory() refuses are counted (device memory is a
  /// constraint of the report, with the best of them as witness); of those that fit, `evaluate_top`
  /// in all (0: all) are judged by the evaluator, the best of each stratum, then the second of
  /// each, and so on, and the fastest wins; a plan that two strata offer is judged once. With
  /// evaluate_top 1 the planner's own estimate decides and the evaluator is not asked, so that the
  /// number means the same access to the judge for every planner. The winner is signed. Without any
  /// offer that fits: Infeasible, with the best offer that did not, or with `none` if there was
  /// none; if worse offers had been dropped before, the search counts as incomplete. `report` is
  /// completed: estimate, judged, own_choice, chosen, runners-up, rejected_by_memory, notes, and
  /// after Ctrl-C `complete`. To be called once, as the last.
  PlannerResult finish(const char* planner, int evaluate_top, SearchReport report,
                       models::Infeasible none);

 private:
  struct Offer {
    Seconds estimate;
    std::size_t order;  // Of arrival.
    std::function<ir::Plan()> build;
    std::function<std::string()> what;
    int stratum = 0;
    bool operator<(const Offer& other) const {
      return estimate != other.estimate ? estimate < other.estimate : order < other.order;
    }
  };
  /// An offer that fits.
  struct Candidate {
    const Offer* offer;
    ir::Plan plan;
    ir::MemoryVerdict memory;
    std::optional<Seconds> time;  // By the evaluator.
  };
  std::vector<const Offer*> in_turns() const;
  std::vector<Candidate> walk(int evaluate_top, SearchReport& report);
  bool check(Candidate& candidate, bool judge, SearchReport& report);

  const PlannerInput& input_;
  std::size_t most_;
  std::size_t arrivals_ = 0;
  std::vector<Offer> offers_;  // A heap with the worst on top, until finish() sorts it.
};

}  // namespace orrery::planners
