#include "planners/kit/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "models/base/check.h"
#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// Runners-up in a report.
constexpr std::size_t kRunnersUp = 5;

}  // namespace

void forbid(SearchReport& report, const char* constraint, Seconds estimate,
            const std::function<std::string()>& witness) {
  auto place =
      std::find_if(report.constraints.begin(), report.constraints.end(),
                   [&](const ConstraintCost& cost) { return cost.constraint == constraint; });
  if (place == report.constraints.end()) {
    place = report.constraints.insert(place, ConstraintCost{constraint, 0, std::nullopt, ""});
  }
  ++place->rejected;
  if (place->best_without && *place->best_without <= estimate) return;
  place->best_without = estimate;
  place->witness = witness();
}

void forbid_by_memory(SearchReport& report, Seconds estimate,
                      const std::function<std::string()>& witness) {
  ++report.rejected_by_memory;
  forbid(report, kDeviceMemory, estimate, witness);
}

bool Ranking::wants(Seconds estimate) const {
  return offers_.size() < most_ || estimate < offers_.front().estimate;
}

void Ranking::offer(Seconds estimate, std::function<ir::Plan()> build,
                    std::function<std::string()> what, int stratum) {
  ++arrivals_;
  if (!wants(estimate)) return;
  if (offers_.size() == most_) {
    std::pop_heap(offers_.begin(), offers_.end());
    offers_.pop_back();
  }
  offers_.push_back({estimate, arrivals_, std::move(build), std::move(what), stratum});
  std::push_heap(offers_.begin(), offers_.end());
}

void Ranking::offer(Seconds estimate, ir::Plan plan, std::string what, int stratum) {
  offer(
      estimate, [plan = std::move(plan)] { return plan; },
      [what = std::move(what)] { return what; }, stratum);
}

Seconds Ranking::best() const {
  ORRERY_CHECK(!offers_.empty(), "a ranking without offers has no best");
  return std::min_element(offers_.begin(), offers_.end())->estimate;
}

/// Another stratum offered the same plan, and it was judged: equal plans have equal estimates.
bool Ranking::judged_before(const std::vector<Candidate>& fitting, const Candidate& candidate) {
  for (auto other = fitting.rbegin(); other != fitting.rend(); ++other) {
    if (other->offer->estimate != candidate.offer->estimate) return false;
    if (other->time && other->offer->stratum != candidate.offer->stratum &&
        other->plan == candidate.plan) {
      return true;
    }
  }
  return false;
}

std::vector<Ranking::Candidate> Ranking::walk(int evaluate_top, SearchReport& report) {
  std::sort(offers_.begin(), offers_.end());
  std::vector<Candidate> fitting;
  int judged = 0;
  std::map<int, int> left;  // To be judged, by stratum; those with nothing left are dropped.
  for (const Offer& offer : offers_) {
    if (evaluate_top != 1) left.try_emplace(offer.stratum, evaluate_top);
  }
  const auto one_less = [&](int stratum) {
    if (--left.at(stratum) == 0) left.erase(stratum);  // From 0 it never comes to 0: all.
  };
  for (const Offer& offer : offers_) {
    const bool judge = left.contains(offer.stratum);
    if (left.empty() && fitting.size() > kRunnersUp) break;
    if (!judge && !left.empty()) continue;
    if (canceled(input_) && !fitting.empty()) break;
    Candidate candidate{&offer, offer.build(), {}, std::nullopt};
    if (judge && judged_before(fitting, candidate)) {
      one_less(offer.stratum);
      continue;
    }
    candidate.memory = models::check_memory(candidate.plan, input_.cluster, input_.workload,
                                            input_.job, input_.profile);
    const char* counted_by = "";
    if (judge && candidate.memory.fits()) {
      const models::Evaluation evaluation = input_.evaluator.evaluate(candidate.plan);
      if (evaluation.memory.fits()) {
        candidate.time = evaluation.iteration_time;
        ++judged;
        one_less(offer.stratum);
      } else {
        candidate.memory = evaluation.memory;
        counted_by = " (as the evaluator counts)";
      }
    }
    if (candidate.memory.fits()) {
      fitting.push_back(std::move(candidate));
    } else {
      forbid_by_memory(report, offer.estimate, [&] {
        return fmt::format("{}: {}{}", offer.what(), candidate.memory.explain(), counted_by);
      });
    }
  }
  if (evaluate_top != 1) {
    report.notes.push_back(fmt::format("{} of the best {} plans were judged by the evaluator ({})",
                                       judged, offers_.size(), input_.evaluator.name()));
  }
  return fitting;
}

PlannerResult Ranking::finish(const char* planner, int evaluate_top, SearchReport report,
                              models::Infeasible none) {
  const bool any = !offers_.empty();
  std::vector<Candidate> fitting = walk(evaluate_top, report);
  if (canceled(input_)) report.complete = false;
  if (fitting.empty()) {
    if (!any) return {std::move(none), std::move(report)};
    if (arrivals_ > offers_.size()) {
      report.complete = false;
      report.notes.push_back(
          fmt::format("only the best {} of {} plans were kept", offers_.size(), arrivals_));
    }
    const auto memory =
        std::find_if(report.constraints.begin(), report.constraints.end(),
                     [](const ConstraintCost& cost) { return cost.constraint == kDeviceMemory; });
    return {models::Infeasible{kDeviceMemory, memory->witness}, std::move(report)};
  }
  // Plans that were not judged come after those that were, in the order of their estimates.
  std::stable_sort(fitting.begin(), fitting.end(), [](const Candidate& a, const Candidate& b) {
    if (a.time.has_value() != b.time.has_value()) return a.time.has_value();
    return a.time && *a.time < *b.time;
  });
  for (std::size_t i = 1; i < std::min(fitting.size(), kRunnersUp + 1); ++i) {
    report.runners_up.push_back(
        {fitting[i].offer->what(), fitting[i].offer->estimate, fitting[i].time});
  }
  Candidate& best = fitting.front();
  report.estimate = best.offer->estimate;
  report.chosen = best.offer->what();
  sign(best.plan, planner, input_, best.offer->estimate, best.memory);
  return {std::move(best.plan), std::move(report)};
}

}  // namespace orrery::planners
