// HexiScale's scheduling problem solved exactly: the reference that its heuristic is measured
// against. One mixed-integer program for each number of pipelines; the best plan, and how far from
// the optimum it may be. [HexiScale, Appendix D; cost model of Appendix A]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/hexiscale/costs.h"
#include "planners/hexiscale/search.h"
#include "planners/hexiscale/settings.h"
#include "planners/hexiscale_milp/program.h"
#include "planners/hexiscale_milp/space.h"
#include "planners/kit/milp.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kHexiscale;
extern const PlannerEntry kHexiscaleMilp;

namespace {

/// Devices beyond which not even the classes of devices are formed.
constexpr std::size_t kMostMilpDevices = 1024;

/// Nodes that take as long as a root, by measurement.
constexpr double kRootNodes = 10;

/// Solutions must be better than the best by more than this share.
constexpr double kBetter = 1e-9;

enum class IdleDevices { allowed, forbidden };
enum class MilpStart { chain, hexiscale };

ir::EnumNames<IdleDevices> enum_names(IdleDevices) {
  return {{IdleDevices::allowed, "allowed"}, {IdleDevices::forbidden, "forbidden"}};
}
ir::EnumNames<MilpStart> enum_names(MilpStart) {
  return {{MilpStart::chain, "chain"}, {MilpStart::hexiscale, "hexiscale"}};
}

struct MilpSettings {
  HexiscaleSettings costs;  ///< Of the cost model, and of the two-phase algorithm at the start.
  std::int64_t nodes = 2000;
  double effort = 1500;
  std::int64_t variables = 2500;
  int pipelines = 0;
  IdleDevices idle_devices = IdleDevices::allowed;
  MilpStart start = MilpStart::chain;

  bool use_all() const { return idle_devices == IdleDevices::forbidden; }
  bool from_heuristic() const { return start == MilpStart::hexiscale; }
};

void describe(config::Visitor& v, MilpSettings& s) {
  v.optional("micro_batch_size", s.costs.micro_batch_size,
             "Samples per micro-batch, 1 or more. [3.1: 1]");
  v.optional("nodes", s.nodes,
             "Nodes of all search trees together, 1 or more; a smaller work budget wins. The "
             "paper's program ran for hours [Appendix D].");
  v.optional("effort", s.effort,
             "Most nodes times (variables / 100) squared over all programs, a root counted as ten "
             "nodes, 1 or more. The default ends within about 20 s.");
  v.optional("variables", s.variables,
             "Most variables of a program, 1 or more; numbers of pipelines that need more are not "
             "searched.");
  v.optional("pipelines", s.pipelines, "D_dp: 0 tries all numbers, others only that one.");
  v.optional("idle_devices", s.idle_devices,
             "allowed: a plan may leave devices out, as Eq. 1 does not ask for all; forbidden: "
             "every device works, as in the two-phase algorithm [4.2: a partition of all GPUs].");
  v.optional("start", s.start,
             "Plan that the search begins with, which bounds what it looks for: chain, one "
             "pipeline through all machines, or hexiscale, what the two-phase algorithm finds "
             "(planner hexiscale). With hexiscale the result is never slower than that plan, and "
             "the gap says how far from the optimum it may be.");
  v.optional("memory", s.costs.memory,
             "Memory: timeline, the activations of 1F1B as the simulator counts them, or "
             "equation_11 [Appendix A]. Finished plans must fit by the timeline in both cases.");
  v.optional("recompute", s.costs.recompute,
             "Of what the job allows, for all stages: strongest (full, as in the paper: Appendix "
             "A) or weakest.");
  v.between("micro_batch_size", s.costs.micro_batch_size, 1, 1'000'000);
  v.between("nodes", s.nodes, std::int64_t{1}, std::int64_t{1'000'000'000});
  v.between("effort", s.effort, 1.0, 1e15);
  v.between("variables", s.variables, std::int64_t{1}, std::int64_t{1'000'000});
  v.between("pipelines", s.pipelines, 0, 1'000'000);
}

/// The search on one input.
class MilpSearch {
 public:
  MilpSearch(const PlannerInput& input, const MilpSettings& settings)
      : input_(input),
        settings_(settings),
        costs_(input, settings.costs),
        space_(input, settings.costs, costs_),
        ranking_(input) {
    report_.work_unit = "nodes";
  }
  PlannerResult run();

 private:
  /// The programs for one number of pipelines.
  struct Case {
    int pipelines = 1;
    std::int64_t variables = 0;
    std::int64_t last_nodes = 0;  ///< Of the last attempt.
    Seconds bound;                ///< No plan of this case is faster.
    bool too_large = false;
    bool done = false;
    /// Expected work of one node of the search tree.
    double effort() const { return std::pow(static_cast<double>(variables) / 100, 2); }
  };

  std::optional<models::Infeasible> refuse() const;
  std::vector<Case> cases() const;
  void start();
  void begin_with_heuristic();
  void offer(const PlanChoice& choice);
  void attempt(Case& one, std::int64_t nodes);
  void search(std::vector<Case>& all);
  void explain(const std::vector<Case>& all);
  models::Infeasible nothing(const std::vector<Case>& all) const;

  const PlannerInput& input_;
  const MilpSettings& settings_;
  HexiscaleCosts costs_;
  HexiscaleMilpSpace space_;
  Ranking ranking_;
  SearchReport report_;
  double effort_ = 0;
  bool started_ = false;  // The best plan is the one that the search began with.
};

std::optional<models::Infeasible> MilpSearch::refuse() const {
  const int micro_batch = settings_.costs.micro_batch_size;
  if (input_.job.global_batch % micro_batch != 0 ||
      micro_batch > input_.job.allowed.max_micro_batch_size) {
    return models::Infeasible{
        "micro-batch size",
        fmt::format("the job's batch of {} and its limit of {} do not allow micro-batches of {}",
                    input_.job.global_batch, input_.job.allowed.max_micro_batch_size, micro_batch)};
  }
  if (models::plain_schedules(input_.job.allowed.schedules).empty()) {
    return models::Infeasible{"schedule", "the job allows no schedule without virtual stages"};
  }
  if (space_.too_many_kinds()) {
    return models::Infeasible{
        "size of the program",
        fmt::format("the GPUs of a machine differ by their links: they form more than {} kinds of "
                    "tensor-parallel groups",
                    HexiscaleMilpSpace::kMostKinds)};
  }
  if (space_.kinds().empty()) {
    return models::Infeasible{"dtype", "no device computes in the job's dtype"};
  }
  const int most = std::min({costs_.most_pipelines(), space_.micro_batches(), space_.devices()});
  if (most == 0 || settings_.pipelines > most) {
    return models::Infeasible{
        "device memory",
        fmt::format("{} devices with {} micro-batches have room for the states of {} pipelines, {} "
                    "are asked for",
                    space_.devices(), space_.micro_batches(), most,
                    std::max(1, settings_.pipelines))};
  }
  return std::nullopt;
}

std::vector<MilpSearch::Case> MilpSearch::cases() const {
  const int most = std::min({costs_.most_pipelines(), space_.micro_batches(), space_.devices()});
  const Seconds least{static_cast<double>(space_.micro_batches()) * space_.layers() /
                      space_.most_speed()};
  std::vector<Case> all;
  for (int pipelines = 1; pipelines <= most; ++pipelines) {
    if (settings_.pipelines != 0 && pipelines != settings_.pipelines) continue;
    Case& one = all.emplace_back();
    one.pipelines = pipelines;
    one.variables = HexiscaleMilpProgram::size(space_, pipelines);
    one.bound = least;
    one.too_large = one.variables > settings_.variables;
  }
  return all;
}

void MilpSearch::offer(const PlanChoice& choice) {
  ir::Plan plan = space_.plan(choice);
  const Seconds estimate = costs_.estimate(plan).iteration;
  ++report_.plans_examined;
  ranking_.offer(estimate, std::move(plan), space_.describe(choice));
}

/// The plan of the two-phase algorithm.
void MilpSearch::begin_with_heuristic() {
  HexiscaleSettings settings = settings_.costs;
  settings.evaluate_top = 1;
  PlannerInput input = input_;
  input.work_budget = 0;  // The budget counts nodes of the program.
  PlannerResult result = HexiscaleSearch(input, settings, kHexiscale).run();
  auto* plan = std::get_if<ir::Plan>(&result.outcome);
  if (plan == nullptr) return;
  if (settings_.pipelines > 0 && std::ssize(plan->pipelines) != settings_.pipelines) return;
  if (settings_.use_all() && ir::devices_of(*plan) != input_.devices) return;
  ++report_.plans_examined;
  const Seconds estimate = costs_.estimate(*plan).iteration;
  std::string what = in_words(*plan, input_.workload);
  ranking_.offer(estimate, std::move(*plan), std::move(what));
}

/// A plan to begin with, which bounds the objective.
void MilpSearch::start() {
  if (settings_.from_heuristic()) begin_with_heuristic();
  started_ = !ranking_.empty();
  if (started_ || settings_.pipelines > 1) return;
  for (const int degree : costs_.tensor_degrees()) {
    const PlanChoice choice = space_.chain(degree);
    if (choice.empty()) continue;
    if (settings_.use_all() && ir::devices_of(space_.plan(choice)) != input_.devices) continue;
    offer(choice);
  }
  started_ = !ranking_.empty();
}

void MilpSearch::attempt(Case& one, std::int64_t nodes) {
  const Seconds limit = ranking_.empty() ? Seconds{kUnbounded} : ranking_.best();
  const HexiscaleMilpProgram program(space_, one.pipelines, limit, settings_.use_all());
  MilpLimits limits;
  limits.nodes = nodes;
  limits.canceled = input_.canceled;
  limits.cutoff = limit / program.unit() * (1 - kBetter);
  const MilpResult result = solve(program.model(), limits);
  report_.work += result.nodes;
  effort_ += (static_cast<double>(result.nodes) - 1 + kRootNodes) * one.effort();
  one.last_nodes = result.nodes;
  one.done = result.status == MilpStatus::optimal || result.status == MilpStatus::infeasible;
  if (!result.values.empty()) {
    const Seconds before = limit;
    offer(program.decode(result.values));
    if (ranking_.best() < before) started_ = false;
  }
  if (one.done) {
    one.bound = Seconds{kUnbounded};  // Proved: no better plan than the best is left here.
  } else {
    one.bound = std::max(one.bound, result.bound * program.unit());
  }
  if (result.status == MilpStatus::numerical_trouble) {
    report_.notes.push_back(
        fmt::format("the solver gave up on {} pipelines for numerical reasons", one.pipelines));
  }
}

/// Shares the nodes that are left equally among the numbers of pipelines that are not done, and
/// starts those again with what remains; drops those whose next attempt would be too much effort.
void MilpSearch::search(std::vector<Case>& all) {
  std::int64_t nodes = settings_.nodes;
  if (input_.work_budget > 0) nodes = std::min(nodes, input_.work_budget);
  std::vector<Case*> open;
  for (Case& one : all) {
    if (!one.too_large) open.push_back(&one);
  }
  while (!open.empty() && report_.work < nodes && !canceled(input_)) {
    std::vector<Case*> again;
    for (std::size_t i = 0; i < open.size() && report_.work < nodes && !canceled(input_); ++i) {
      Case& one = *open[i];
      const auto rest = static_cast<std::int64_t>(open.size() - i);
      const std::int64_t left = nodes - report_.work;
      std::int64_t share =
          std::clamp<std::int64_t>(std::max(left / rest, 2 * one.last_nodes), 1, left);
      const double effort = settings_.effort - effort_;
      const auto affordable = [&](double part) {
        return part * effort / one.effort() - kRootNodes + 1;
      };
      // An attempt that reaches no further than the last one would be wasted.
      const auto further = static_cast<double>(one.last_nodes + 1);
      if (affordable(1) < further) continue;
      share = static_cast<std::int64_t>(
          std::min(static_cast<double>(share),
                   std::max(further, affordable(1 / static_cast<double>(rest)))));
      attempt(one, share);
      if (!one.done) again.push_back(&one);
    }
    open = std::move(again);
  }
}

void MilpSearch::explain(const std::vector<Case>& all) {
  Seconds bound{kUnbounded};
  std::vector<const Case*> skipped;
  for (const Case& one : all) {
    if (one.done) continue;
    report_.complete = false;
    bound = std::min(bound, one.bound);
    if (one.last_nodes == 0) {
      skipped.push_back(&one);
    } else {
      report_.notes.push_back(fmt::format(
          "D_dp = {} was not searched to the end: a program of {} variables, {} nodes in the last "
          "attempt",
          one.pipelines, one.variables, one.last_nodes));
    }
  }
  if (!skipped.empty()) {
    report_.notes.push_back(fmt::format(
        "not searched: D_dp from {} to {}, programs of {} to {} variables (limits: {} variables, "
        "{} effort)",
        skipped.front()->pipelines, skipped.back()->pipelines, skipped.front()->variables,
        skipped.back()->variables, settings_.variables, settings_.effort));
  }
  if (ranking_.empty()) return;
  if (started_ && !report_.complete) {
    report_.notes.push_back(
        settings_.from_heuristic()
            ? "the plan is the one that the search began with, of the two-phase algorithm: the "
              "solver found no better one"
            : "the plan is the one that the search began with, one pipeline through all machines: "
              "the solver found no better one");
  }
  const Seconds best = ranking_.best();
  bound = std::min(bound, best);
  report_.notes.push_back(
      fmt::format("gap {:.2f} %: no plan is faster than {:.6g} s by HexiScale's Eq. 10, this one "
                  "takes {:.6g} s",
                  100 * std::max(0.0, 1 - bound / best), bound.value, best.value));
}

models::Infeasible MilpSearch::nothing(const std::vector<Case>& all) const {
  const auto searched = std::find_if(all.begin(), all.end(),
                                     [](const Case& one) { return !one.too_large && !one.done; });
  if (searched != all.end()) {
    return {"search budget", fmt::format("model of {} variables: no incumbent within {} nodes",
                                         searched->variables, report_.work)};
  }
  const auto large =
      std::find_if(all.begin(), all.end(), [](const Case& one) { return !one.done; });
  if (large != all.end()) {
    return {"size of the program",
            fmt::format("model of {} variables for {} pipeline{}: not searched (options variables, "
                        "{}, and effort, {})",
                        large->variables, large->pipelines, large->pipelines == 1 ? "" : "s",
                        settings_.variables, settings_.effort)};
  }
  return {"device memory", fmt::format("no division of {} layers over {} devices fits: proved",
                                       space_.layers(), space_.devices())};
}

PlannerResult MilpSearch::run() {
  if (auto refused = refuse()) {
    report_.complete = !space_.too_many_kinds();
    return {std::move(*refused), report_};
  }
  if (canceled(input_)) {
    report_.complete = false;
    return {models::Infeasible{"search", "canceled before it began"}, report_};
  }
  std::vector<Case> all = cases();
  const bool any =
      std::any_of(all.begin(), all.end(), [](const Case& one) { return !one.too_large; });
  if (any || settings_.from_heuristic()) start();
  if (any) search(all);
  explain(all);
  if (input_.job.lengths) {
    report_.notes.push_back("the length distribution is ignored: all samples count as the longest");
  }
  return ranking_.finish(kHexiscaleMilp.name, 1, std::move(report_), nothing(all));
}

class HexiscaleMilp final : public Planner {
 public:
  using Settings = MilpSettings;
  explicit HexiscaleMilp(MilpSettings settings) : settings_(std::move(settings)) {}

  PlannerResult plan(const PlannerInput& input) const override {
    SearchReport report;
    report.work_unit = "nodes";
    report.complete = false;
    if (!milp_available()) {
      return {models::Infeasible{"this build has no MILP solver",
                                 "install coinor-libcbc-dev and configure again"},
              report};
    }
    const models::Workload& workload = input.workload;
    if (workload.shape.hidden == 0 || workload.shape.heads == 0) {
      report.complete = true;
      return {models::Infeasible{"cost model",
                                 fmt::format("HexiScale's cost model knows transformers only, {} "
                                             "is none",
                                             workload.name)},
              report};
    }
    if (input.devices.empty() || input.devices.size() > kMostMilpDevices) {
      return {models::Infeasible{"number of devices",
                                 fmt::format("the program is formed for 1 to {} devices, not for "
                                             "{}",
                                             kMostMilpDevices, input.devices.size())},
              report};
    }
    return MilpSearch(input, settings_).run();
  }

 private:
  MilpSettings settings_;
};

}  // namespace

const PlannerEntry kHexiscaleMilp = planner_entry<HexiscaleMilp>(
    "hexiscale_milp", "HexiScale, Appendix D (cost model: Appendix A)",
    "HexiScale's space exactly: pipelines, stages, tensor-parallel groups, layers and batch of "
    "each pipeline, by mixed-integer programs with a bound on the optimum",
    "experts (layers count as dense), contention between flows, work of embedding and head; large "
    "clusters",
    /*estimate=*/nullptr, /*takes_lengths=*/true, /*draws=*/true);

}  // namespace orrery::planners
