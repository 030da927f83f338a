#include "traces/generate/spot.h"

#include <algorithm>
#include <cmath>

#include "traces/generate/random.h"
#include "traces/trace.h"

namespace orrery::traces {
namespace {

constexpr std::int64_t kHoursPerDay = 24;

/// Rate of bursts that gives each of `nodes` the rate 1: nodes / E[min(burst, nodes)], where a
/// geometric burst of mean b >= 1 has E[min(burst, n)] = b (1 - (1 - 1/b)^n).
double bursts(double mean, double nodes) {
  return nodes > 0 ? nodes / (mean * (1 - std::pow(1 - 1 / mean, nodes))) : 0;
}

/// The factor on the hazard in an hour counted from midnight of the first day.
double factor_of(const SpotType& type, std::int64_t hour) {
  return type.by_hour.empty() ? 1 : type.by_hour[hour % kHoursPerDay];
}

class SpotProcess {
 public:
  SpotProcess(const SpotType& type, const std::vector<NodeId>& nodes, Nanoseconds horizon, Rng rng)
      : type_(type), end_(to_seconds(horizon).value), horizon_(horizon), rng_(rng) {
    const double hazard = type.leaves_per_hour / kHour;
    const double steady = 1 / (1 + hazard * type.away.value);
    const double share = type.start.value_or(steady);
    for (const NodeId node : nodes) {
      if (rng_.uniform() < share) {
        here_.push_back(node);
      } else {
        away_.push_back(node);
      }
    }
    if (type.start) exact_start(share, nodes.size());
    out_.absent = away_;
    std::sort(out_.absent.begin(), out_.absent.end());
  }

  SpotNodes run() {
    double at = 0;
    for (std::int64_t hour = 0; at < end_; ++hour) {
      const double until = std::min(end_, kHour * static_cast<double>(hour + 1));
      run_hour(at, until, hour);
      at = until;
    }
    return std::move(out_);
  }

 private:
  /// A given share of the nodes, rounded, instead of each with this probability.
  void exact_start(double share, std::size_t count) {
    const std::size_t wanted = std::llround(share * static_cast<double>(count));
    while (here_.size() > wanted) move_one(here_, away_);
    while (here_.size() < wanted) move_one(away_, here_);
  }

  NodeId move_one(std::vector<NodeId>& from, std::vector<NodeId>& to) {
    const auto last = static_cast<std::int64_t>(from.size()) - 1;
    const std::size_t at = rng_.integer(0, last);
    const NodeId node = from[at];
    from[at] = from.back();
    from.pop_back();
    to.push_back(node);
    return node;
  }

  void run_hour(double at, double until, std::int64_t hour) {
    const double factor = factor_of(type_, hour);
    while (true) {
      const double leaves = factor * type_.leaves_per_hour / kHour *
                            bursts(type_.burst, static_cast<double>(here_.size()));
      const double joins =
          bursts(type_.join_burst, static_cast<double>(away_.size())) / type_.away.value;
      if (!(leaves + joins > 0)) return;
      at += rng_.exponential(leaves + joins);
      if (at >= until) return;
      const bool comes = rng_.uniform() * (leaves + joins) >= leaves;
      burst({to_nanoseconds({at}).count}, comes);
    }
  }

  void burst(Instant at, bool comes) {
    std::vector<NodeId>& from = comes ? away_ : here_;
    std::vector<NodeId>& to = comes ? here_ : away_;
    // Two bursts within a nanosecond would be one instant with contradicting events.
    at.nanoseconds = std::max(at.nanoseconds, last_ + 1);
    if (at.nanoseconds >= horizon_.count || from.empty()) return;
    last_ = at.nanoseconds;
    int left = draw_burst(comes ? type_.join_burst : type_.burst, rng_);
    for (; left > 0 && !from.empty(); --left) {
      out_.changes.push_back({at, move_one(from, to), comes});
    }
  }

  const SpotType& type_;
  double end_;
  Nanoseconds horizon_;
  Rng rng_;
  std::vector<NodeId> here_;
  std::vector<NodeId> away_;
  std::int64_t last_ = 0;
  SpotNodes out_;
};

}  // namespace

SpotNodes draw_spot(const SpotType& type, const std::vector<NodeId>& nodes, Nanoseconds horizon,
                    Rng rng) {
  return SpotProcess(type, nodes, horizon, rng).run();
}

const SpotType* spot_type_of(const TraceGenerator& generator, const std::string& gpu_type) {
  const SpotType* any = nullptr;
  for (const SpotType& type : generator.spot) {
    if (type.gpu_type == gpu_type) return &type;
    if (type.gpu_type == "*") any = &type;
  }
  return any;
}

double spot_departures_per_second(const SpotType& type, std::size_t nodes) {
  constexpr int kMostDays = 10'000;
  constexpr double kSettled = 1e-12;
  constexpr int kStepsPerHour = 60;
  constexpr double kStep = kHour / kStepsPerHour;
  const double back = 1 / type.away.value;
  double share = 1 / (1 + type.leaves_per_hour / kHour * type.away.value);
  double mean = 0;
  for (int day = 0; day < kMostDays; ++day) {
    const double before = share;
    double sum = 0;
    for (std::int64_t hour = 0; hour < kHoursPerDay; ++hour) {
      const double hazard = factor_of(type, hour) * type.leaves_per_hour / kHour;
      const double settled = back / (back + hazard);
      const double kept = std::exp(-(back + hazard) * kStep);
      for (int step = 0; step < kStepsPerHour; ++step) {
        sum += hazard * bursts(type.burst, share * static_cast<double>(nodes));
        share = settled + (share - settled) * kept;
      }
    }
    mean = sum / static_cast<double>(kHoursPerDay * kStepsPerHour);
    if (std::abs(share - before) < kSettled) break;
  }
  return mean;
}

std::vector<SpotPrice> draw_prices(const SpotType& type, Nanoseconds horizon, Rng rng) {
  std::vector<SpotPrice> prices;
  if (!type.price) return prices;
  const double sigma = type.price_sigma;
  const double keep = std::exp(-type.price_step.value / type.price_reversion.value);
  const Nanoseconds step = to_nanoseconds(type.price_step);
  double log_price = sigma * rng.normal();
  for (Instant at; at.nanoseconds < horizon.count; at = at + step) {
    prices.push_back({at, *type.price * std::exp(log_price - sigma * sigma / 2)});
    if (sigma == 0) break;
    log_price = keep * log_price + sigma * std::sqrt(1 - keep * keep) * rng.normal();
  }
  return prices;
}

}  // namespace orrery::traces
