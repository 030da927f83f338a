#include "planners/hexiscale/history.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// 1 to `most`: all when these are at most `limit`, else about `limit` in geometric steps.
std::vector<int> spread(int most, int limit) {
  std::vector<int> values;
  if (most <= limit || limit < 2) {
    values.resize(most);
    std::iota(values.begin(), values.end(), 1);
    return values;
  }
  for (int i = 0; i < limit; ++i) {
    const double exponent = static_cast<double>(i) / (limit - 1);
    values.push_back(static_cast<int>(std::lround(std::pow(most, exponent))));
  }
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

CutObjective other(CutObjective cut) {
  return cut == CutObjective::kMinimize ? CutObjective::kMaximize : CutObjective::kMinimize;
}

}  // namespace

HexiscaleHistory::HexiscaleHistory(const HexiscaleSettings& settings, int rounds,
                                   int most_pipelines, int devices, int layers)
    : settings_(settings),
      most_(most_pipelines),
      candidates_(spread(most_pipelines, std::max(1, 3 * rounds / 10))),
      data_parallel_(settings.smoothing),
      pipeline_(settings.smoothing) {
  const int low = std::min(devices / layers + 1, most_);
  walk_range_ = {low, std::clamp(devices / 5, low, most_)};
  walk_ = low;
}

int HexiscaleHistory::pipelines(int round, Rng& rng) {
  if (settings_.num_pipelines == NumPipelines::random_walk_public) {
    const int chosen = walk_;
    walk_ =
        std::clamp(walk_ + (rng.bernoulli(0.5) ? 1 : -1), walk_range_.first, walk_range_.second);
    return chosen;
  }
  const int count = static_cast<int>(candidates_.size());
  if (round < 2 * count || best_.empty()) {
    return candidates_[round % count];
  }
  return refined(round);
}

int HexiscaleHistory::refined(int round) const {
  std::vector<std::pair<Seconds, int>> ranked;
  for (const auto& [pipelines, time] : best_) ranked.emplace_back(time, pipelines);
  std::sort(ranked.begin(), ranked.end());
  static constexpr std::array kSteps = {0, 1, -1, 2, -2};
  const auto turn = as_size(round) % (kSteps.size() + 1);
  if (turn == kSteps.size()) return ranked[std::min<std::size_t>(1, ranked.size() - 1)].second;
  return std::clamp(ranked.front().second + kSteps[turn], 1, most_);
}

CutObjective HexiscaleHistory::by_costs() const {
  if (!data_parallel_.value()) return CutObjective::kMinimize;
  return *data_parallel_.value() > *pipeline_.value() ? CutObjective::kMaximize
                                                      : CutObjective::kMinimize;
}

CutObjective HexiscaleHistory::cut(int pipelines) const {
  if (settings_.cut == CutRule::minimize) return CutObjective::kMinimize;
  if (settings_.cut == CutRule::maximize) return CutObjective::kMaximize;
  const CutObjective first = by_costs();
  if (settings_.cut == CutRule::compare_costs) return first;
  const auto untried = [&](CutObjective cut) {
    const auto found = past_.find({pipelines, cut});
    return found == past_.end() || !found->second.tried;
  };
  if (untried(first)) return first;
  if (untried(other(first))) return other(first);
  const auto average = [&](CutObjective cut) {
    const Past& past = past_.at({pipelines, cut});
    return past.iteration ? past.iteration->value().value_or(HUGE_VAL) : HUGE_VAL;
  };
  return average(other(first)) < average(first) ? other(first) : first;
}

void HexiscaleHistory::add(int pipelines, CutObjective cut,
                           const std::optional<models::HexiscaleEstimate>& estimate) {
  Past& past = past_[{pipelines, cut}];
  past.tried = true;
  if (!estimate) return;
  if (!past.iteration) past.iteration.emplace(settings_.smoothing);
  past.iteration->add(estimate->iteration.value);
  data_parallel_.add(estimate->data_parallel.value);
  pipeline_.add(std::max_element(estimate->pipelines.begin(), estimate->pipelines.end())->value);
  const auto [place, added] = best_.try_emplace(pipelines, estimate->iteration);
  if (!added) place->second = std::min(place->second, estimate->iteration);
}

}  // namespace orrery::planners
