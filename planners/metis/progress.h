/// What all parts of Metis's search work on, and how far it is: the work done, the best plans.
#pragma once
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/kit/ranking.h"
#include "planners/metis/settings.h"
#include "planners/metis/tables.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Fixed for a whole search. Refers to objects that outlive it.
struct MetisProblem {
  const PlannerInput& input;
  const MetisSettings& settings;
  const MetisTables& tables;
  ir::ScheduleKind schedule;
  ir::Recompute recompute;
  std::vector<std::int64_t> batches;  ///< Numbers of micro-batches, descending.
};

class MetisProgress {
 public:
  /// Keeps references. Plans that fit in memory go to `ranking`, of which `wanted` are kept. The
  /// search ends when report.work reaches `budget` (0: no end), and already at `patience` (0: none)
  /// if nothing was found by then.
  MetisProgress(const PlannerInput& input, std::size_t wanted, std::int64_t budget,
                std::int64_t patience, Ranking& ranking, SearchReport& report)
      : input_(input),
        wanted_(wanted),
        budget_(budget),
        patience_(patience),
        ranking_(ranking),
        report_(report) {}

  SearchReport& report() { return report_; }
  std::int64_t work() const { return report_.work; }
  std::int64_t budget() const { return budget_; }

  /// True when the search must end; the report then says that it is incomplete.
  bool stop();
  /// Counts work that is done whether or not the budget has room for all of it.
  void charge(std::int64_t units);
  /// Takes units of work from `most` (negative: no end); false if there are none left. Of the last
  /// ones it may take fewer.
  bool spend(std::int64_t& most, std::int64_t units);

  /// As many plans as are wanted were found, so that others must beat worst().
  bool full() const { return best_.size() == wanted_; }
  /// Milliseconds of the worst of the best plans.
  double worst() const { return *best_.rbegin(); }
  /// Ranks a plan that takes `ms` by Metis's estimate, if it is wanted and fits in memory.
  void offer(double ms, const std::function<ir::Plan()>& build);

  std::int64_t broken = 0;         ///< Intra-stage plans at which the public code stops.
  std::int64_t inexpressible = 0;  ///< Its plans that lose layers or samples.

 private:
  const PlannerInput& input_;
  std::size_t wanted_;
  std::int64_t budget_;
  std::int64_t patience_;
  Ranking& ranking_;
  SearchReport& report_;
  std::multiset<double> best_;  ///< Estimates of the best plans, milliseconds.
};

}  // namespace orrery::planners
