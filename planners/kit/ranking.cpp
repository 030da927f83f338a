#include "planners/kit/ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "models/base/check.h"
#include "models/cost/memory.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

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

/// The best offer of each stratum, then the second of each, and so on; sorted offers.
std::vector<const Ranking::Offer*> Ranking::in_turns() const {
  std::map<int, int> seen;  // By stratum.
  std::vector<std::pair<int, const Offer*>> turns;
  for (const Offer& offer : offers_) turns.emplace_back(seen[offer.stratum]++, &offer);
  std::stable_sort(turns.begin(), turns.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first, a.second->stratum) < std::pair(b.first, b.second->stratum);
  });
  std::vector<const Offer*> offers;
  for (const auto& turn : turns) offers.push_back(turn.second);
  return offers;
}

/// Whether a plan fits: for the planners, and, if it is to `judge`, for the evaluator too.
bool Ranking::check(Candidate& candidate, bool judge, SearchReport& report) {
  const Offer& offer = *candidate.offer;
  candidate.memory = models::check_memory(candidate.plan, input_.cluster, input_.workload,
                                          input_.job, input_.profile);
  const char* counted_by = "";
  if (judge && candidate.memory.fits()) {
    const models::Evaluation evaluation = input_.evaluator.evaluate(candidate.plan);
    if (offer.stratum == 0 && !report.own_choice) report.own_choice = evaluation.iteration_time;
    if (evaluation.memory.fits()) {
      candidate.time = evaluation.iteration_time;
      ++report.judged;
    } else {
      candidate.memory = evaluation.memory;
      counted_by = " (as the evaluator counts)";
    }
  }
  if (candidate.memory.fits()) return true;
  forbid_by_memory(report, offer.estimate, [&] {
    return fmt::format("{}: {}{}", offer.what(), candidate.memory.explain(), counted_by);
  });
  return false;
}

/// What fits, judged plans first in the order of their turns, then others as a report has room.
std::vector<Ranking::Candidate> Ranking::walk(int evaluate_top, SearchReport& report) {
  std::sort(offers_.begin(), offers_.end());
  std::vector<Candidate> fitting;
  std::set<const Offer*> seen;
  const auto same = [&](const Candidate& candidate) {
    return std::any_of(fitting.begin(), fitting.end(), [&](const Candidate& other) {
      return other.offer->stratum != candidate.offer->stratum &&
             other.offer->estimate == candidate.offer->estimate && other.plan == candidate.plan;
    });
  };
  for (const Offer* offer : in_turns()) {
    if (evaluate_top == 1 || (evaluate_top > 0 && report.judged == evaluate_top)) break;
    if (canceled(input_) && !fitting.empty()) break;
    seen.insert(offer);
    Candidate candidate{offer, offer->build(), {}, std::nullopt};
    if (same(candidate)) continue;
    if (check(candidate, true, report)) fitting.push_back(std::move(candidate));
  }
  for (const Offer& offer : offers_) {
    if (fitting.size() > kRunnersUp || (canceled(input_) && !fitting.empty())) break;
    if (seen.contains(&offer)) continue;
    Candidate candidate{&offer, offer.build(), {}, std::nullopt};
    if (!same(candidate) && check(candidate, false, report)) {
      fitting.push_back(std::move(candidate));
    }
  }
  if (evaluate_top != 1) {
    report.notes.push_back(fmt::format("the {} judged the top {} of {} candidate plans",
                                       input_.evaluator.name(), report.judged, offers_.size()));
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
