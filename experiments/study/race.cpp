#include "experiments/study/race.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "models/base/check.h"

namespace orrery::experiments {
namespace {

/// Samples of each finalist before differences are tested: fewer say little of their spread.
constexpr std::size_t kBeforeTests = 3;
/// Candidates that get a sample at once, beside the leader.
constexpr std::size_t kAtOnce = 3;

double mean_of(const std::vector<double>& values, std::size_t count) {
  return std::accumulate(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(count), 0.0) /
         static_cast<double>(count);
}

/// Sum of squares around the mean over (count - 1).
double variance_of(const std::vector<double>& values, std::size_t count) {
  const double mean = mean_of(values, count);
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) squares += std::pow(values[i] - mean, 2);
  return squares / static_cast<double>(count - 1);
}

}  // namespace

std::size_t Race::add() {
  candidates_.emplace_back();
  settled_ = false;
  return candidates_.size() - 1;
}

void Race::take(std::size_t candidate, std::optional<double> value) {
  ORRERY_CHECK(candidate < candidates_.size(), "candidate {} of {}", candidate, candidates_.size());
  ++samples_;
  if (value) {
    candidates_[candidate].values.push_back(*value);
  } else {
    candidates_[candidate].out = true;
    candidates_[candidate].values.clear();
  }
}

std::vector<std::size_t> Race::live() const {
  std::vector<std::size_t> list;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    if (candidates_[c].live()) list.push_back(c);
  }
  return list;
}

Race::Difference Race::difference(std::size_t a, std::size_t b) const {
  const std::vector<double>& left = candidates_[a].values;
  const std::vector<double>& right = candidates_[b].values;
  const std::size_t count = std::min(left.size(), right.size());
  if (count == 0) return {};
  std::vector<double> differences(count);
  for (std::size_t i = 0; i < count; ++i) differences[i] = left[i] - right[i];
  Difference out{mean_of(differences, count), 0, count};
  if (count < 2) return out;
  const double error = std::sqrt(variance_of(differences, count) / static_cast<double>(count));
  if (error > 0) {
    out.errors = out.mean / error;
  } else if (out.mean != 0) {
    out.errors = std::copysign(std::numeric_limits<double>::infinity(), out.mean);
  }
  return out;
}

std::size_t Race::leader(const std::vector<std::size_t>& among) const {
  std::size_t best = among.front();
  // Each change of the leader is an improvement over it; a cycle of means over different seeds ends
  // with the bound.
  for (std::size_t round = 0; round < among.size(); ++round) {
    const std::size_t before = best;
    for (const std::size_t each : among) {
      if (difference(each, best).mean > 0) best = each;
    }
    if (best == before) break;
  }
  return best;
}

void Race::halve() {
  std::vector<std::size_t> order = live();
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return mean_of(candidates_[a].values, rung_) > mean_of(candidates_[b].values, rung_);
  });
  const std::size_t keep = std::max(settings_.finalists, (order.size() + 1) / 2);
  for (std::size_t i = keep; i < order.size(); ++i) candidates_[order[i]].stopped = true;
}

std::vector<Race::Sample> Race::within_budget(std::vector<Sample> samples) const {
  const std::int64_t left = std::max<std::int64_t>(settings_.budget - samples_, 0);
  if (static_cast<std::int64_t>(samples.size()) > left) samples.resize(left);
  return samples;
}

std::vector<Race::Sample> Race::next() {
  settled_ = false;
  while (true) {
    const std::vector<std::size_t> running = live();
    if (running.empty()) return {};
    std::vector<Sample> due;
    for (const std::size_t c : running) {
      for (std::size_t seed = candidates_[c].values.size(); seed < rung_; ++seed) {
        due.push_back({c, static_cast<int>(seed)});
        break;  // One at a time: the first may say that it cannot run.
      }
    }
    if (!due.empty()) return within_budget(std::move(due));
    const bool full = rung_ >= static_cast<std::size_t>(settings_.most);
    if (running.size() > settings_.finalists && !full) {
      halve();
      ++rung_;
      continue;
    }
    if (running.size() > 1 && rung_ < kBeforeTests && !full) {
      ++rung_;
      continue;
    }
    if (running.size() == 1) {
      settled_ = true;
      return {};
    }
    const std::size_t best = leader(running);
    std::vector<std::pair<double, std::size_t>> open;
    bool all_significant = true;
    for (const std::size_t c : running) {
      if (c == best) continue;
      const Difference lead = difference(best, c);
      if (lead.seeds < 2) {
        all_significant = false;
        continue;
      }
      const boost::math::students_t distribution(static_cast<double>(lead.seeds - 1));
      const double tail = settings_.tail / static_cast<double>(running.size() - 1);
      if (lead.errors > boost::math::quantile(boost::math::complement(distribution, tail))) {
        continue;
      }
      all_significant = false;
      // The same value under every seed: more seeds will not tell them apart.
      if (lead.mean == 0 && lead.errors == 0 && candidates_[c].values == candidates_[best].values) {
        continue;
      }
      open.emplace_back(lead.errors, c);
    }
    settled_ = all_significant;
    std::stable_sort(open.begin(), open.end());
    std::vector<Sample> samples;
    const auto sample = [&](std::size_t c) {
      const auto seeds = static_cast<int>(candidates_[c].values.size());
      if (seeds < settings_.most) samples.push_back({c, seeds});
    };
    for (std::size_t i = 0; i < open.size() && i < kAtOnce; ++i) {
      const std::size_t c = open[i].second;
      if (candidates_[c].values.size() <= candidates_[best].values.size()) sample(c);
    }
    const bool leader_is_short = std::any_of(open.begin(), open.end(), [&](const auto& each) {
      return candidates_[each.second].values.size() >= candidates_[best].values.size();
    });
    if (leader_is_short) sample(best);
    return within_budget(std::move(samples));
  }
}

std::vector<std::size_t> Race::ranking() const {
  std::vector<std::size_t> running = live();
  std::erase_if(running, [&](std::size_t c) { return candidates_[c].values.empty(); });
  std::vector<std::size_t> stopped;
  for (std::size_t c = 0; c < candidates_.size(); ++c) {
    if (candidates_[c].stopped) stopped.push_back(c);
  }
  if (running.empty()) std::swap(running, stopped);
  if (running.empty()) return {};
  const std::size_t best = leader(running);
  const auto worse = [&](std::size_t a, std::size_t b) {
    if (candidates_[a].stopped && candidates_[b].stopped &&
        candidates_[a].values.size() != candidates_[b].values.size()) {
      return candidates_[a].values.size() > candidates_[b].values.size();
    }
    return difference(a, best).mean > difference(b, best).mean;
  };
  std::stable_sort(running.begin(), running.end(), worse);
  std::stable_sort(stopped.begin(), stopped.end(), worse);
  std::rotate(running.begin(), std::find(running.begin(), running.end(), best),
              std::find(running.begin(), running.end(), best) + 1);
  running.insert(running.end(), stopped.begin(), stopped.end());
  return running;
}

}  // namespace orrery::experiments
