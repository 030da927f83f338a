/// The search of the Orrery planner: from seeds, by moves, judged by the evaluator.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "planners/orrery/bound.h"
#include "planners/orrery/moves.h"
#include "planners/orrery/seeds.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Where the search begins.
enum class OrrerySeeds {
  own,    ///< Drafts by counts of GPU types.
  quick,  ///< And what quick planners of the catalog return.
  all,    ///< And the best of eight plans of each planner, judged.
};
ir::EnumNames<OrrerySeeds> enum_names(OrrerySeeds);

enum class OrreryObjective { time, dollars, energy, frontier };
ir::EnumNames<OrreryObjective> enum_names(OrreryObjective);

/// For whom the plan must be executable.
enum class OrreryTarget { any, megatron, flagscale, executor };
ir::EnumNames<OrreryTarget> enum_names(OrreryTarget);

enum class OrreryAllowed { everything, as_others };
ir::EnumNames<OrreryAllowed> enum_names(OrreryAllowed);

enum class OrreryWithout {
  nothing,
  layers,
  batches,
  groups,
  pipelines,
  order,
  placement,
  idle,
  zero,
  schedule,
  transfer,
  experts
};
ir::EnumNames<OrreryWithout> enum_names(OrreryWithout);

struct OrrerySettings {
  std::int64_t budget = 0;
  OrrerySeeds seeds = OrrerySeeds::quick;
  OrreryAllowed allowed = OrreryAllowed::everything;
  OrreryTarget target = OrreryTarget::any;
  OrreryObjective objective = OrreryObjective::time;
  OrreryWithout without = OrreryWithout::nothing;
};
void describe(config::Visitor& v, OrrerySettings& settings);

class OrrerySearch {
 public:
  OrrerySearch(const PlannerInput& input, const OrrerySettings& settings);
  PlannerResult run();

 private:
  /// A plan that the evaluator judged.
  struct Judged {
    double value = kNever;  ///< What is minimized.
    double seconds = kNever;
    double preview = kNever;
    ir::Plan plan;
    std::optional<Draft> draft;  ///< None: the plan is of a kind that moves do not change.
    DraftCosts::View view;
    std::uint64_t structure = 0;
    int parent = -1;   ///< Index into judged_.
    std::string what;  ///< Of a seed: where it comes from.
    models::Evaluation evaluation;
  };
  /// A draft on the way of a walk.
  struct Child {
    double predicted = kNever;  ///< Of what is minimized.
    Draft draft;
    DraftCosts::View view;
    std::vector<MoveKind> kinds;  ///< Moves from the start.
  };

  /// A plan that the evaluator judges meanwhile.
  struct UnderWay {
    Judged made;
    std::vector<MoveKind> kinds;  ///< Moves that made it; none: a seed.
    std::unique_ptr<models::Evaluator::Pending> evaluation;
  };

  /// Whether moves and seeds share experts from here on.
  void set_experts(bool shared);
  bool over() const;
  /// Simulations: as the settings say; and no more than the work budget.
  std::int64_t own_budget() const;
  std::int64_t budget() const;
  /// Whether it may be returned: valid, in memory, executable by the target.
  bool admissible(const ir::Plan& plan);
  /// Has the evaluator judge a plan while the search goes on; of those under way it waits for all
  /// but kUnderWay. False: it may not be returned.
  bool judge(Judged made, std::vector<MoveKind> kinds = {});
  bool judge(Child child, int parent);
  /// Waits until no more than so many are under way.
  void wait(std::size_t most = 0);
  void take(UnderWay one);
  void seed_own();
  void seed_others();
  void seed_plan(const ir::Plan& plan, const std::string& what);
  /// Walks from a draft by moves that the price accepts, ever less of the worse ones (simulated
  /// annealing), and returns the best draft on the way that was not judged before.
  /// `explore`: the best of a structure that was not judged.
  std::optional<Child> walk(int parent, int steps, double heat, bool explore);
  /// The same for drafts that differ by layers, numbers of micro-batches and which devices of a
  /// kind they use.
  std::uint64_t structure(const Draft& draft) const;
  void polish_seeds();
  void climb();
  int pick_parent();
  /// Each cycle of the search begins with long and hot walks from any of the elite, ends with short
  /// ones from the best, and takes twice as long as the one before. So a search does what a shorter
  /// one does, and then goes on. After the first two they begin anew, from the seeds alone: what a
  /// cycle finds depends much on chance, and two that meet late find more than one that is longer.
  /// Plans of former cycles join for the last part.
  struct Cycle {
    int number = 0;
    double done = 0;  ///< Its share.
  };
  Cycle cycle() const;
  /// Judged over priced times: of plans under the schedule.
  double correction(const Draft& draft) const;
  /// Whether the judge would learn nothing new: a draft that was judged, or one of the same price
  /// as two that were (most often the same with devices of a kind exchanged).
  bool known(const Draft& draft, const DraftCosts::View& view) const;
  /// What a second of an iteration on devices counts: 1, or their dollars or joules. Infinite where
  /// one does not say it.
  double rate_of(OrreryObjective objective, const std::vector<DeviceId>& devices) const;
  double rate_of(const Draft& draft) const;
  /// Dollars and energy, as far as they are asked for and known of all devices.
  std::vector<OrreryObjective> others() const;
  /// From here on minimizes that.
  void aim_at(OrreryObjective objective);
  void enter_elite(int index);
  /// The elite of the first so many judged plans.
  void fill_elite(std::size_t count);
  /// The best plan with gradients sent during the backward pass or after it, whole or in pieces,
  /// and with activations sent the other way: of that the price sees little or nothing, so that
  /// walks leave it as it is.
  void vary_transfers();
  /// Of the elite under ZeRO-3 the plan that promises most with as many layers as memory has room
  /// for under ZeRO-1 or 2, whose parameters no pass gathers.
  void lighten();
  /// The most Draft::lighter_layers with which the draft fits.
  int most_lighter(Draft draft) const;
  /// Bytes of state that a switch from PlannerInput::near to the plan moves.
  double moved(int index);
  /// The judged plan that moves least among those within the share of the best.
  int nearest();
  /// Goes on from plans that move less than the nearest, so that they come within the share.
  void approach();
  std::vector<NextStep> next_steps(const Judged& best) const;
  std::vector<FrontierPlan> frontier() const;
  void tell() const;
  PlannerResult finish();
  std::vector<std::string> story(int of) const;

  const PlannerInput& input_;
  const OrrerySettings& settings_;
  OrreryObjective objective_;
  DraftCosts costs_;
  DraftBalance balance_;
  MoveLimits limits_;
  DraftMoves moves_;
  Rng rng_;
  LowerBound bound_;
  bool bounded_;  ///< The bound holds for what judges plans.
  SearchReport report_;
  std::vector<Judged> judged_;
  std::deque<UnderWay> under_way_;  ///< In the order in which they were begun.
  std::vector<int> elite_;          ///< Indices, best first.
  int best_ = -1;                   ///< Of all that were judged; elite_ may have begun anew.
  std::set<Draft> seen_;
  std::map<double, int> seen_price_;    ///< Judged drafts by their price.
  std::map<std::uint64_t, int> tries_;  ///< And by their structure.
  std::vector<double> weight_;          ///< By kind of move.
  int kinds_ = kMoveKinds;              ///< Of moves: the last may be of no use.
  bool experts_later_ = false;          ///< Experts are shared in the second half of the search.
  std::map<std::pair<ir::ScheduleKind, bool>, double> correction_;  ///< By schedule and overlap.
  std::int64_t priced_ = 0;
  std::int64_t borrowed_ = 0;    ///< Simulations of planners that gave seeds.
  std::int64_t refused_ = 0;     ///< Plans that the target cannot run.
  std::int64_t extra_ = 0;       ///< Simulations for plans near another, and pieces of gradients.
  std::int64_t begun_at_ = 0;    ///< Work before this part of the search, of one objective.
  std::int64_t stop_at_ = 0;     ///< Work after which it ends; 0: budget().
  std::map<int, double> moved_;  ///< By index into judged_.
};

}  // namespace orrery::planners
