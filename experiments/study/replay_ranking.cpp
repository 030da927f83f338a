#include "experiments/study/replay_ranking.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <tuple>

#include "models/base/ids.h"

namespace orrery::experiments {
namespace {

constexpr double kNanoseconds = 1e-9;

double number(const CsvRow& row, const std::string& column) {
  const auto found = row.find(column);
  if (found == row.end() || found->second.empty()) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return std::strtod(found->second.c_str(), nullptr);
}

std::string text(const CsvRow& row, const std::string& column) {
  const auto found = row.find(column);
  return found == row.end() ? "" : found->second;
}

std::vector<double> column_of(const std::vector<const CsvRow*>& rows, const std::string& column) {
  std::vector<double> values;
  for (const CsvRow* row : rows) values.push_back(number(*row, column));
  return values;
}

double sum(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

double mean(const std::vector<double>& values) {
  return sum(values) / static_cast<double>(values.size());
}

double rate(const CsvRow& row) {
  return number(row, "tokens") / (number(row, "horizon_ns") * kNanoseconds);
}

/// Tokens per second of the run's undisturbed plan.
double undisturbed(const CsvRow& row) {
  const double iterations = number(row, "iterations");
  return iterations > 0 ? number(row, "tokens") / iterations / number(row, "reference_s") : 0;
}

/// `fastest`: the most of undisturbed() in the case.
std::array<double, kLosses> losses_of(const CsvRow& row, double fastest) {
  const double horizon = number(row, "horizon_ns");
  const auto share = [&](const char* column) { return number(row, column) / horizon; };
  std::array<double, kLosses> out{};
  const auto at = [&](Loss loss) -> double& { return out[index_of(loss)]; };
  at(Loss::detection) = share("detect_ns");
  at(Loss::restart) = share("decide_ns") + share("reinitialize_ns");
  at(Loss::state) = share("move_state_ns");
  at(Loss::lost_work) = share("rolled_back_ns");
  at(Loss::saves) = share("checkpoint_ns");
  at(Loss::copies) = share("background_ns");
  at(Loss::spares) = share("degraded_ns") - share("background_ns") + share("idle_ns");
  // What is left: productive time at the own pace instead of the fastest.
  double others = 0;
  for (const double each : out) others += each;
  at(Loss::plan) = 1 - (fastest > 0 ? rate(row) / fastest : 0) - others;
  return out;
}

/// "interval=600" of "checkpoint_restart.interval".
std::string axes_text(const CsvRow& row, const std::vector<std::string>& axes) {
  std::string out;
  for (const std::string& axis : axes) {
    const std::string value = text(row, axis);
    if (value.empty()) continue;
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", axis.substr(axis.find('.') + 1), value);
  }
  return out;
}

Standing standing_of(const std::vector<const CsvRow*>& rows, const std::vector<std::string>& axes,
                     double fastest) {
  Standing standing;
  standing.in_case = text(*rows.front(), "case");
  standing.policy = text(*rows.front(), "policy");
  standing.axes = axes_text(*rows.front(), axes);
  standing.seeds = rows.size();
  standing.own_plan = text(*rows.front(), "own_plan");
  std::vector<double> rates;
  for (const CsvRow* row : rows) rates.push_back(rate(*row));
  standing.tokens_per_second = interval_of(rates, 0, fastest);
  standing.goodput = interval_of(column_of(rows, "goodput"), 0, 1);
  standing.ettr = interval_of(column_of(rows, "ettr"), 0, 1);
  std::vector<double> own;
  std::vector<std::string> problems;
  for (const CsvRow* row : rows) {
    if (undisturbed(*row) > 0) own.push_back(undisturbed(*row));
    const std::string problem = text(*row, "first_plan_problem");
    if (rate(*row) == 0 && !problem.empty()) problems.push_back(problem);
  }
  if (!own.empty()) standing.undisturbed_tokens_per_second = mean(own);
  if (!problems.empty()) {
    standing.untrained =
        fmt::format("{} of {} traces: {}", problems.size(), rows.size(), problems.front());
  }
  standing.tokens = mean(column_of(rows, "tokens"));
  standing.dollars_per_million =
      sum(column_of(rows, "dollars")) / (sum(column_of(rows, "tokens")) * 1e-6);
  standing.interruptions = mean(column_of(rows, "interruptions"));
  standing.lost_iterations = mean(column_of(rows, "lost_iterations"));
  const double horizons = sum(column_of(rows, "horizon_ns"));
  for (std::size_t b = 0; b < sim::kBuckets; ++b) {
    const std::string bucket = sim::name_of(static_cast<sim::Bucket>(b));
    standing.wall[b] = sum(column_of(rows, bucket + "_ns")) / horizons;
    standing.gpu_hours[b] = mean(column_of(rows, "gpu_hours." + bucket));
  }
  std::vector<std::array<double, kLosses>> losses;
  for (const CsvRow* row : rows) losses.push_back(losses_of(*row, fastest));
  for (std::size_t l = 0; l < kLosses; ++l) {
    std::vector<double> shares;
    for (const auto& each : losses) shares.push_back(each[l]);
    standing.losses[l] = interval_of(shares, -1, 1);
  }
  standing.spare_gpu_hours = mean(column_of(rows, "gpu_hours.spare"));
  standing.absent_gpu_hours = mean(column_of(rows, "gpu_hours.absent"));
  return standing;
}

/// Seeds that both have.
Interval behind(const std::vector<const CsvRow*>& first, const std::vector<const CsvRow*>& other) {
  std::vector<double> differences;
  for (const CsvRow* mine : other) {
    for (const CsvRow* best : first) {
      if (text(*best, "seed") != text(*mine, "seed")) continue;
      differences.push_back(0 - share_above(rate(*mine), rate(*best)));
    }
  }
  return interval_of(differences, -std::numeric_limits<double>::infinity(), 1);
}

/// Losses of `other` less those of `first`, on the seeds that both have.
std::array<Interval, kLosses> owed(const std::vector<const CsvRow*>& first,
                                   const std::vector<const CsvRow*>& other, double fastest) {
  std::array<std::vector<double>, kLosses> differences;
  for (const CsvRow* mine : other) {
    for (const CsvRow* best : first) {
      if (text(*best, "seed") != text(*mine, "seed")) continue;
      const auto here = losses_of(*mine, fastest);
      const auto there = losses_of(*best, fastest);
      for (std::size_t l = 0; l < kLosses; ++l) differences[l].push_back(here[l] - there[l]);
    }
  }
  std::array<Interval, kLosses> out{};
  for (std::size_t l = 0; l < kLosses; ++l) out[l] = interval_of(differences[l], -1, 1);
  return out;
}

}  // namespace

const char* name_of(Loss loss) {
  constexpr std::array<const char*, kLosses> kNames = {
      "detection", "restart", "state", "lost_work", "saves", "copies", "spares", "plan"};
  return kNames[index_of(loss)];
}

Interval confidence(const std::vector<double>& values, double tail) {
  const double none = std::nan("");
  if (values.empty()) return {none, none, none, none};
  Interval interval{mean(values), none, none, none};
  if (values.size() < 2) return interval;
  double squares = 0;
  for (const double value : values) squares += std::pow(value - interval.mean, 2);
  const auto count = static_cast<double>(values.size());
  const double deviation = std::sqrt(squares / (count - 1));
  const boost::math::students_t distribution(count - 1);
  interval.half = boost::math::quantile(boost::math::complement(distribution, tail)) * deviation /
                  std::sqrt(count);
  interval.low = interval.mean - interval.half;
  interval.high = interval.mean + interval.half;
  return interval;
}

Interval interval_of(const std::vector<double>& values, double least, double most) {
  constexpr std::size_t kEnough = 5;
  Interval interval = confidence(values);
  if (values.size() >= kEnough) {
    interval.low = std::max(interval.low, std::min(least, interval.mean));
    interval.high = std::min(interval.high, std::max(most, interval.mean));
  } else if (!values.empty()) {
    interval.half = std::nan("");
    interval.low = *std::min_element(values.begin(), values.end());
    interval.high = *std::max_element(values.begin(), values.end());
  }
  return interval;
}

double share_above(double value, double other) {
  if (other != 0) return value / other - 1;
  return value > 0 ? 1 : 0;
}

PolicyRanking rank_policies(const std::vector<CsvRow>& rows, const std::vector<std::string>& axes) {
  using Key = std::tuple<std::string, std::string, std::string>;  // case, policy, axes
  PolicyRanking ranking;
  ranking.rows = rows.size();
  std::vector<std::string> cases;
  std::vector<Key> order;
  std::map<Key, std::vector<const CsvRow*>> groups;
  const auto count = [](const CsvRow& row, const char* column) {
    return std::strtoll(text(row, column).c_str(), nullptr, 10);
  };
  for (const CsvRow& row : rows) {
    ranking.searches += count(row, "planner_searches");
    ranking.iterations_simulated += count(row, "iterations_simulated");
    ranking.iterations_asked += count(row, "iterations_asked");
    const Key key{text(row, "case"), text(row, "policy"), axes_text(row, axes)};
    const auto& [name, policy, point] = key;
    if (std::find(cases.begin(), cases.end(), name) == cases.end()) cases.push_back(name);
    if (text(row, "status") == "ok") {
      if (groups[key].empty()) order.push_back(key);
      groups[key].push_back(&row);
      continue;
    }
    const bool known =
        std::any_of(ranking.unable.begin(), ranking.unable.end(), [&key = key](const Unable& each) {
          return Key{each.in_case, each.policy, each.axes} == key;
        });
    if (!known) {
      ranking.unable.push_back({name, policy, point, text(row, "status"), text(row, "reason")});
    }
  }
  for (const std::string& name : cases) {
    std::vector<Standing> of_case;
    double fastest = 0;
    for (const Key& key : order) {
      if (std::get<0>(key) != name) continue;
      for (const CsvRow* row : groups[key]) fastest = std::max(fastest, undisturbed(*row));
    }
    for (const Key& key : order) {
      if (std::get<0>(key) == name) of_case.push_back(standing_of(groups[key], axes, fastest));
    }
    std::stable_sort(of_case.begin(), of_case.end(), [](const Standing& a, const Standing& b) {
      return a.tokens_per_second.mean > b.tokens_per_second.mean;
    });
    const auto rows_of = [&](const Standing& standing) -> const std::vector<const CsvRow*>& {
      return groups[{name, standing.policy, standing.axes}];
    };
    for (std::size_t i = 0; i < of_case.size(); ++i) {
      of_case[i].behind = behind(rows_of(of_case.front()), rows_of(of_case[i]));
      of_case[i].behind_previous =
          behind(rows_of(of_case[i == 0 ? 0 : i - 1]), rows_of(of_case[i]));
      of_case[i].owed = owed(rows_of(of_case.front()), rows_of(of_case[i]), fastest);
    }
    ranking.standings.insert(ranking.standings.end(), of_case.begin(), of_case.end());
  }
  return ranking;
}

void describe(config::Visitor& v, Interval& interval) {
  double mean = std::isfinite(interval.mean) ? interval.mean : 0;
  v.required("mean", mean, "");
  v.required("half_width_95", interval.half, "of five values at least");
  v.required("low", interval.low,
             "of that interval, bounded by what is possible; of fewer the least");
  v.required("high", interval.high, "");
}

void describe(config::Visitor& v, Standing& standing) {
  v.required("case", standing.in_case, "");
  v.required("policy", standing.policy, "");
  v.required("axes", standing.axes, "");
  auto seeds = static_cast<std::int64_t>(standing.seeds);
  v.required("seeds", seeds, "");
  v.optional("own_plan", standing.own_plan,
             "why it did not begin with the plan that the others began with");
  v.optional("untrained", standing.untrained,
             "on how many traces it never began to train, with the first reason");
  v.required("tokens_per_second", standing.tokens_per_second, "");
  v.required("undisturbed_tokens_per_second", standing.undisturbed_tokens_per_second,
             "of the fastest plan of its replays that trained, as if nothing happened");
  v.required("goodput", standing.goodput, "");
  v.required("ettr", standing.ettr, "");
  v.required("behind_first", standing.behind, "");
  v.required("behind_previous", standing.behind_previous, "");
  v.required("tokens", standing.tokens, "");
  v.required("dollars_per_million_tokens", standing.dollars_per_million, "");
  v.required("interruptions", standing.interruptions, "");
  v.required("lost_iterations", standing.lost_iterations, "");
  std::map<std::string, double> wall, gpu_hours;
  for (std::size_t b = 0; b < sim::kBuckets; ++b) {
    const std::string name = sim::name_of(static_cast<sim::Bucket>(b));
    wall[name] = standing.wall[b];
    gpu_hours[name] = standing.gpu_hours[b];
  }
  gpu_hours["spare"] = standing.spare_gpu_hours;
  gpu_hours["absent"] = standing.absent_gpu_hours;
  v.required("wall_share", wall, "");
  v.required("gpu_hours", gpu_hours, "");
  std::map<std::string, Interval> losses, owed;
  for (std::size_t l = 0; l < kLosses; ++l) {
    losses[name_of(static_cast<Loss>(l))] = standing.losses[l];
    owed[name_of(static_cast<Loss>(l))] = standing.owed[l];
  }
  v.required("losses", losses, "");
  v.required("owed", owed, "");
}

void describe(config::Visitor& v, Unable& unable) {
  v.required("case", unable.in_case, "");
  v.required("policy", unable.policy, "");
  v.required("axes", unable.axes, "");
  v.required("status", unable.status, "");
  v.required("reason", unable.reason, "");
}

}  // namespace orrery::experiments
