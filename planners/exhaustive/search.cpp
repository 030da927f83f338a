// The search of `exhaustive`: structures in the order of their bounds, splits by branch and bound.
#include "planners/exhaustive/search.h"

#include <algorithm>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners::exhaustive {
namespace {

/// Stored times of pipelines (32 MiB of doubles); more are computed anew.
constexpr std::size_t kMostStored = std::size_t{1} << 22;

}  // namespace

/// Least largest time when `a` and `b` train n samples together; times of `limit` and more do not
/// count.
ExhaustiveSearch::Curve ExhaustiveSearch::join(const Curve& a, const Curve& b, double limit) {
  Curve result(a.size(), kNever);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i] < limit)) continue;
    for (std::size_t j = 0; i + j < a.size(); ++j) {
      if (b[j] < limit) result[i + j] = std::min(result[i + j], std::max(a[i], b[j]));
    }
  }
  return result;
}

ExhaustiveSearch::Curve ExhaustiveSearch::nothing(std::size_t size) {
  Curve curve(size, kNever);
  curve.front() = 0;
  return curve;
}

bool ExhaustiveSearch::spend() {
  std::int64_t most = settings_.most_plans;
  if (input_.work_budget > 0) most = std::min(most, input_.work_budget);
  if (report_.work >= most || canceled(input_)) {
    report_.complete = false;
    return false;
  }
  ++report_.work;
  return true;
}

double ExhaustiveSearch::threshold() const {
  const auto wanted = static_cast<std::size_t>(settings_.evaluate_top);
  return wanted == 0 || best_.size() < wanted ? kNever : best_[wanted - 1];
}

bool ExhaustiveSearch::fill(Table& table, int kind, const Replicas& replicas, int pipelines) {
  const std::vector<int>& stages = chain(kind).stages;
  table.relaxed.assign(samples_ + 1, kNever);
  return for_each_composition(
      input_.workload.size(), static_cast<int>(stages.size()), 1,
      [&](const std::vector<int>& split) {
        if (!spend()) return false;
        Curve times = curve(kind, split, replicas);
        if (std::all_of(times.begin(), times.end(), [](double t) { return t == kNever; })) {
          return true;
        }
        double update = 0;
        for (std::size_t s = 0, first = 0; s < stages.size(); ++s) {
          update = std::max(
              update, costs_->optimizer(stages[s], static_cast<int>(first), split[s], pipelines));
          first += static_cast<std::size_t>(split[s]);
        }
        for (std::size_t n = 0; n < times.size(); ++n) {
          table.relaxed[n] = std::min(table.relaxed[n], times[n]);
        }
        table.least_optimizer = std::min(table.least_optimizer, update);
        table.splits.push_back(split);
        table.curves.push_back(std::move(times));
        table.optimizer.push_back(update);
        return true;
      });
}

/// Nothing when the budget ended.
const ExhaustiveSearch::Table* ExhaustiveSearch::table(int kind, int copies, int pipelines) {
  const bool sharded = costs_->common().zero > 0;
  const auto [place, added] =
      tables_.try_emplace({kind, sharded ? copies : 0, sharded ? pipelines : 0});
  if (!added) return &place->second;
  const Replicas same(sharded ? static_cast<std::size_t>(input_.workload.size()) : 0, copies);
  if (!fill(place->second, kind, same, pipelines)) return nullptr;
  stored_ += place->second.curves.size() * (samples_ + 1);
  return &place->second;
}

/// Groups that hold each block under the chosen splits.
Replicas ExhaustiveSearch::replicas() const {
  if (costs_->common().zero == 0) return {};
  Replicas result(static_cast<std::size_t>(input_.workload.size()), 0);
  for (std::size_t p = 0; p < chosen_.size(); ++p) {
    const std::vector<int>& split = chosen_from_[p]->splits[chosen_[p]];
    std::size_t block = 0;
    for (std::size_t s = 0; s < split.size(); ++s) {
      const int stage = chain((*structure_)[p]).stages[s];
      const auto groups = space_.stages[static_cast<std::size_t>(stage)].size();
      for (int b = 0; b < split[s]; ++b) result[block++] += static_cast<int>(groups);
    }
  }
  return result;
}

/// Whether the structure could still win with each pipeline at its best; fills behind_.
bool ExhaustiveSearch::hopeful() {
  const std::size_t pipelines = structure_->size();
  behind_.assign(pipelines + 1, nothing(samples_ + 1));
  for (std::size_t p = pipelines; p-- > 0;) {
    behind_[p] = join(behind_[p + 1], chosen_from_[p]->relaxed, threshold() - rest_);
  }
  return behind_.front()[samples_] + rest_ < threshold();
}

/// False when the budget ended.
bool ExhaustiveSearch::examine(const Structure& structure) {
  if (stored_ > kMostStored) {
    tables_.clear();
    stored_ = 0;
  }
  structure_ = &structure;
  chosen_from_.clear();
  chosen_.assign(structure.size(), 0);
  // With ZeRO: as many shards as the structure can have, so that nothing is refused that fits.
  int copies = 0;
  for (const int kind : structure) {
    std::size_t groups = 0;
    for (const int stage : chain(kind).stages) {
      groups = std::max(groups, space_.stages[static_cast<std::size_t>(stage)].size());
    }
    copies += static_cast<int>(groups);
  }
  double update = 0;
  for (const int kind : structure) {
    const Table* one = table(kind, copies, static_cast<int>(structure.size()));
    if (one == nullptr) return false;
    if (one->splits.empty()) return true;
    chosen_from_.push_back(one);
    update = std::max(update, one->least_optimizer);
  }
  rest_ = update;
  if (!hopeful()) return true;
  gradients_.emplace(input_, space_, structure, costs_->common().zero);
  rest_ += gradients_->least();
  if (!hopeful()) return true;
  return combine(0, nothing(samples_ + 1));
}

/// Chooses splits for the pipelines from `pipeline` on; `before`: what those before it take. Equal
/// pipelines have ascending splits. False when the budget ended.
bool ExhaustiveSearch::combine(std::size_t pipeline, const Curve& before) {
  if (pipeline == structure_->size()) return finish_plan(before);
  const bool again = pipeline > 0 && (*structure_)[pipeline] == (*structure_)[pipeline - 1];
  const Table& table = *chosen_from_[pipeline];
  for (std::size_t i = again ? chosen_[pipeline - 1] : 0; i < table.splits.size(); ++i) {
    const Curve with = join(before, table.curves[i], threshold() - rest_);
    double bound = kNever;
    for (std::size_t n = 0; n <= samples_; ++n) {
      bound = std::min(bound, std::max(with[n], behind_[pipeline + 1][samples_ - n]));
    }
    if (!(bound + rest_ < threshold())) continue;
    chosen_[pipeline] = i;
    if (!combine(pipeline + 1, with)) return false;
  }
  return true;
}

bool ExhaustiveSearch::finish_plan(const Curve& shares) {
  if (!spend()) return false;
  ++report_.plans_examined;
  double update = 0;
  std::vector<const std::vector<int>*> splits;
  for (std::size_t p = 0; p < chosen_.size(); ++p) {
    update = std::max(update, chosen_from_[p]->optimizer[chosen_[p]]);
    splits.push_back(&chosen_from_[p]->splits[chosen_[p]]);
  }
  const double after = gradients_->time(splits) + update;
  if (shares[samples_] + after < threshold()) offer();
  return true;
}

bool ExhaustiveSearch::run(const CommonChoice& common) {
  costs_.emplace(input_, space_, common);
  tables_.clear();
  stored_ = 0;
  struct Bounded {
    double bound;
    std::size_t structure;
  };
  // Structures of one-stage pipelines have one layer split and go first: they bound the rest.
  std::vector<Bounded> simple;
  std::vector<Bounded> rest;
  for (std::size_t i = 0; i < space_.structures.size(); ++i) {
    double rate = 0;
    bool one_stage = true;
    for (const int kind : space_.structures[i]) {
      rate += costs_->rate(kind);
      one_stage = one_stage && chain(kind).stages.size() == 1;
    }
    (one_stage ? simple : rest).push_back({static_cast<double>(samples_) / rate, i});
  }
  for (std::vector<Bounded>* list : {&simple, &rest}) {
    std::stable_sort(list->begin(), list->end(),
                     [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Bounded& next = (*list)[i];
      if (!(next.bound < threshold())) {
        settled_ += static_cast<std::int64_t>(list->size() - i);
        break;
      }
      if (!examine(space_.structures[next.structure])) {
        refused_ += costs_->refused();
        return false;
      }
      ++settled_;
    }
  }
  refused_ += costs_->refused();
  return true;
}

}  // namespace orrery::planners::exhaustive
