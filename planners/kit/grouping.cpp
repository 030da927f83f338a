#include "planners/kit/grouping.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "models/base/check.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Relative differences below this are rounding.
constexpr double kTolerance = 1e-12;
/// Calls of `stop` are this many units of work apart.
constexpr std::int64_t kStopInterval = 1024;

struct CountsHash {
  std::size_t operator()(const UnitCounts& counts) const {
    std::size_t hash = 0xcbf29ce484222325;
    for (const int count : counts) hash = (hash ^ count) * 0x100000001b3;
    return hash;
  }
};

/// A group that may be part of a grouping.
struct Pattern {
  UnitCounts counts;
  double power = 0;   // G.
  double excess = 0;  // Of weight over need, at the theta of the decision under way.
  double spare = 0;   // Memory beyond the least, each unit counted up to the least.
};

/// Everything about one number of groups. Kinds are in the order of `problem`.
class Solver {
 public:
  Solver(const GroupingProblem& problem, const GroupingLimits& limits);
  GroupingResult solve();

 private:
  /// Weights of the covering problem at one theta.
  struct Weights {
    double need = 0;
    std::vector<double> of;      // By kind: K g - theta.
    std::vector<double> capped;  // Between 0 and need.
    double slack = 0;            // Waste that all groups together may have, by `of`.
    double capped_slack = 0;     // The same by `capped`.
  };
  std::size_t kinds() const { return problem_.counts.size(); }
  double product(const std::vector<double>& values, const UnitCounts& counts) const {
    return std::inner_product(values.begin(), values.end(), counts.begin(), 0.0);
  }
  bool spend();
  bool ended() const { return stopped_ || paused_; }
  Weights weights(double theta, int groups) const;
  bool possible(int groups, double theta) const;
  double bound(int groups) const;
  bool allowed(const UnitCounts& group, int groups) const;
  std::optional<std::vector<UnitCounts>> balanced(int groups,
                                                  const std::vector<double>& share) const;
  void start_with_balanced_groups(const std::vector<std::pair<double, int>>& bounds);
  std::vector<std::pair<double, int>> bounds() const;
  bool enumerate(int groups, double theta);
  void extend(std::size_t kind, UnitCounts& counts, int units, double capped, double spare,
              const Weights& weights, int groups, double theta);
  void prepare(double theta, int groups);
  bool coverable(const UnitCounts& left, int groups);
  bool reachable(const UnitCounts& left, int groups, std::vector<UnitCounts>* taken);
  void improve(int groups);
  void collect(int groups);
  void list(const UnitCounts& left, int groups, std::size_t kind, std::size_t from,
            std::vector<UnitCounts>& taken);
  double weakest(const std::vector<UnitCounts>& groups) const;

  const GroupingProblem& problem_;
  const GroupingLimits& limits_;
  int units_ = 0;
  std::vector<std::size_t> order_;  // Kinds, strongest first.
  std::vector<double> capped_memory_;
  double memory_slack_per_group_ = 0;
  std::vector<Pattern> patterns_;
  // At the theta of the decision under way:
  Weights now_;
  std::vector<std::vector<const Pattern*>> by_kind_;  // By first kind; least waste first.
  std::unordered_map<UnitCounts, const Pattern*, CountsHash> index_;
  std::vector<std::unordered_map<UnitCounts, bool, CountsHash>> known_;  // By groups left.
  GroupingResult result_;
  bool stopped_ = false;
  std::int64_t pause_at_ =
      std::numeric_limits<std::int64_t>::max();  // Work at which this number of groups is put off.
  bool paused_ = false;
};

Solver::Solver(const GroupingProblem& problem, const GroupingLimits& limits)
    : problem_(problem),
      limits_(limits),
      units_(std::accumulate(problem.counts.begin(), problem.counts.end(), 0)),
      order_(problem.counts.size()) {
  ORRERY_CHECK(problem.power.size() == kinds() && problem.memory.size() == kinds() &&
                   problem.micro_batches >= 1 && limits.most_work >= 1,
               "{} kinds, {} powers, {} memories, {} micro-batches", kinds(), problem.power.size(),
               problem.memory.size(), problem.micro_batches);
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) {
    return problem.power[a] > problem.power[b];
  });
  for (const double memory : problem.memory) {
    capped_memory_.push_back(std::min(memory, problem.least_memory));
  }
}

/// Counts one unit of work; false when the search has to end.
bool Solver::spend() {
  if (ended()) return false;
  if (result_.work == pause_at_ && pause_at_ < limits_.most_work) {
    paused_ = true;
    return false;
  }
  if (result_.work == limits_.most_work ||
      (result_.work % kStopInterval == 0 && limits_.stop && limits_.stop())) {
    stopped_ = true;
    result_.ended_early = true;
    return false;
  }
  ++result_.work;
  return true;
}

Solver::Weights Solver::weights(double theta, int groups) const {
  const double k = problem_.micro_batches;
  Weights w;
  w.need = theta * (k - 1);
  for (const double power : problem_.power) {
    w.of.push_back(k * power - theta);
    w.capped.push_back(std::clamp(w.of.back(), 0.0, w.need));
  }
  w.slack = product(w.of, problem_.counts) - groups * w.need;
  w.capped_slack = product(w.capped, problem_.counts) - groups * w.need;
  // Room for rounding, of the order of what is summed.
  const double scale = kTolerance * k * (theta + product(problem_.power, problem_.counts));
  w.slack += scale;
  w.capped_slack += scale;
  return w;
}

/// Necessary for groups of at least theta each.
bool Solver::possible(int groups, double theta) const {
  const Weights w = weights(theta, groups);
  return w.slack >= 0 && w.capped_slack >= 0;
}

/// Upper bound of D min G by bisection on theta, tight to within rounding.
double Solver::bound(int groups) const {
  const double k = problem_.micro_batches;
  double low = 0;
  double high = k * product(problem_.power, problem_.counts) / (groups * (k - 1) + units_);
  if (possible(groups, high)) return groups * high;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (possible(groups, middle) ? low : high) = middle;
  }
  return groups * high;
}

bool Solver::allowed(const UnitCounts& group, int groups) const {
  const int size = std::accumulate(group.begin(), group.end(), 0);
  return size >= 1 && size <= problem_.most_units &&
         product(problem_.memory, group) >= problem_.least_memory &&
         (!problem_.admits || problem_.admits(group, groups));
}

double Solver::weakest(const std::vector<UnitCounts>& groups) const {
  double least = std::numeric_limits<double>::infinity();
  for (const UnitCounts& group : groups) {
    least = std::min(least, effective_power(problem_, group));
  }
  return least;
}

/// Kinds in order, each unit to the group with the least of `share` so far; of equal ones the
/// first.
std::optional<std::vector<UnitCounts>> Solver::balanced(int groups,
                                                        const std::vector<double>& share) const {
  std::vector<UnitCounts> result(groups, UnitCounts(kinds()));
  using Sum = std::pair<double, std::size_t>;  // Of a group.
  std::priority_queue<Sum, std::vector<Sum>, std::greater<>> sums;
  for (std::size_t group = 0; group < result.size(); ++group) sums.emplace(0.0, group);
  for (const std::size_t kind : order_) {
    for (int i = 0; i < problem_.counts[kind]; ++i) {
      const auto [sum, least] = sums.top();
      sums.pop();
      ++result[least][kind];
      sums.emplace(sum + share[kind], least);
    }
  }
  for (const UnitCounts& group : result) {
    if (!allowed(group, groups)) return std::nullopt;
  }
  return result;
}

/// A first grouping, so that bounds have something to beat. Numbers of groups whose bound is no
/// better than what others have are not tried.
void Solver::start_with_balanced_groups(const std::vector<std::pair<double, int>>& bounds) {
  for (const auto& [bound, groups] : bounds) {
    for (const std::vector<double>* share : {&problem_.power, &problem_.memory}) {
      if (groups == 1 && share == &problem_.memory) continue;
      if (!spend() || bound <= result_.objective) continue;
      const auto found = balanced(groups, *share);
      if (!found || groups * weakest(*found) <= result_.objective) continue;
      result_.objective = groups * weakest(*found);
      result_.groupings = {*found};
    }
  }
}

/// All patterns with G >= theta that waste allows. False when a limit ended it.
bool Solver::enumerate(int groups, double theta) {
  patterns_.clear();
  memory_slack_per_group_ =
      product(capped_memory_, problem_.counts) - groups * problem_.least_memory;
  UnitCounts counts(kinds());
  extend(0, counts, 0, 0, 0, weights(theta, groups), groups, theta);
  return !ended();
}

void Solver::extend(std::size_t position, UnitCounts& counts, int units, double capped,
                    double spare, const Weights& w, int groups, double theta) {
  if (position == kinds()) {
    if (units == 0 || !spend()) return;
    Pattern pattern{counts, effective_power(problem_, counts), 0, spare - problem_.least_memory};
    if (pattern.power < theta * (1 - kTolerance)) return;
    if (product(w.of, counts) - w.need > w.slack) return;
    if (allowed(counts, groups)) patterns_.push_back(std::move(pattern));
    return;
  }
  const std::size_t kind = order_[position];
  const double room = kTolerance * (w.need + 1) + w.capped_slack;
  const double memory_room = kTolerance * (problem_.least_memory + 1) + memory_slack_per_group_;
  for (int count = 0; count <= problem_.counts[kind]; ++count) {
    const double capped_now = capped + count * w.capped[kind];
    const double spare_now = spare + count * capped_memory_[kind];
    if (ended() || units + count > problem_.most_units || capped_now - w.need > room ||
        spare_now - problem_.least_memory > memory_room) {
      break;
    }
    counts[kind] = count;
    extend(position + 1, counts, units + count, capped_now, spare_now, w, groups, theta);
  }
  counts[kind] = 0;
}

/// Sets up the decision whether all groups can have theta.
void Solver::prepare(double theta, int groups) {
  now_ = weights(theta, groups);
  by_kind_.assign(kinds(), {});
  index_.clear();
  known_.assign(groups + 1, {});
  for (Pattern& pattern : patterns_) {
    if (pattern.power < theta * (1 - kTolerance)) continue;
    pattern.excess = product(now_.of, pattern.counts) - now_.need;
    const auto first = std::find_if(order_.begin(), order_.end(),
                                    [&](std::size_t kind) { return pattern.counts[kind] > 0; });
    by_kind_[*first].push_back(&pattern);
    index_[pattern.counts] = &pattern;
  }
  for (auto& patterns : by_kind_) {
    std::stable_sort(patterns.begin(), patterns.end(),
                     [](const Pattern* a, const Pattern* b) { return a->excess < b->excess; });
  }
}

/// Bounds alone: units, waste and memory of what is left.
bool Solver::coverable(const UnitCounts& left, int groups) {
  const int units = std::accumulate(left.begin(), left.end(), 0);
  if (units < groups || units > static_cast<std::int64_t>(groups) * problem_.most_units) {
    return false;
  }
  const double room = kTolerance * (now_.need + 1) * problem_.micro_batches;
  return product(now_.capped, left) + room >= groups * now_.need &&
         product(capped_memory_, left) * (1 + kTolerance) >= groups * problem_.least_memory;
}

/// What is left can be dealt out to that many groups. With `taken` the groups are appended to it.
bool Solver::reachable(const UnitCounts& left, int groups, std::vector<UnitCounts>* taken) {
  if (groups == 1) {
    if (!spend() || index_.find(left) == index_.end()) return false;
    if (taken != nullptr) taken->push_back(left);
    return true;
  }
  if (!coverable(left, groups)) return false;
  auto& known = known_[groups];
  const auto place = known.find(left);
  if (place != known.end() && (!place->second || taken == nullptr)) return place->second;
  const auto first =
      std::find_if(order_.begin(), order_.end(), [&](std::size_t kind) { return left[kind] > 0; });
  const double slack = product(now_.of, left) - groups * now_.need +
                       kTolerance * (now_.need + 1) * problem_.micro_batches;
  UnitCounts rest(kinds());
  for (const Pattern* pattern : by_kind_[*first]) {
    if (pattern->excess > slack) break;
    if (!spend()) return false;
    bool inside = true;
    for (std::size_t kind = 0; kind < kinds() && inside; ++kind) {
      rest[kind] = left[kind] - pattern->counts[kind];
      inside = rest[kind] >= 0;
    }
    if (!inside) continue;
    if (taken != nullptr) taken->push_back(pattern->counts);
    if (reachable(rest, groups - 1, taken)) {
      known[left] = true;
      return true;
    }
    if (taken != nullptr) taken->pop_back();
  }
  if (!ended()) known[left] = false;
  return false;
}

/// The best grouping into that many groups, if it is as good as the best so far.
void Solver::improve(int groups) {
  const double theta = result_.objective / groups * (1 - kTolerance);
  if (!possible(groups, theta) || !enumerate(groups, theta)) return;
  std::vector<double> values;
  for (const Pattern& pattern : patterns_) {
    if (possible(groups, pattern.power)) values.push_back(pattern.power);
  }
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  auto low = values.begin();  // Values before it can be reached.
  auto high = values.end();   // Values from it on cannot.
  while (low != high && !ended()) {
    const auto middle = low + (high - low) / 2;
    std::vector<UnitCounts> taken;
    prepare(*middle, groups);
    if (!reachable(problem_.counts, groups, &taken)) {
      high = middle;  // Of no consequence when the search has ended.
      continue;
    }
    const double least = weakest(taken);
    low = std::upper_bound(middle + 1, high, least);
    if (groups * least <= result_.objective * (1 + kTolerance)) continue;
    result_.objective = groups * least;
    result_.groupings = {std::move(taken)};
  }
}

/// All groupings into that many groups that are as good as the best.
void Solver::collect(int groups) {
  const double theta = result_.objective / groups * (1 - kTolerance);
  if (!possible(groups, theta) || !enumerate(groups, theta)) return;
  prepare(theta, groups);
  std::vector<UnitCounts> taken;
  list(problem_.counts, groups, kinds(), 0, taken);
}

/// Patterns that begin with the same kind are taken in the order of their list.
void Solver::list(const UnitCounts& left, int groups, std::size_t kind, std::size_t from,
                  std::vector<UnitCounts>& taken) {
  if (groups == 0) {
    if (static_cast<int>(result_.groupings.size()) == limits_.most_ties) {
      result_.all_ties = false;
    } else {
      result_.groupings.push_back(taken);
    }
    return;
  }
  const std::size_t first =
      *std::find_if(order_.begin(), order_.end(), [&](std::size_t k) { return left[k] > 0; });
  UnitCounts rest(kinds());
  for (std::size_t i = first == kind ? from : 0; i < by_kind_[first].size(); ++i) {
    if (!result_.all_ties || !spend()) return;
    const Pattern& pattern = *by_kind_[first][i];
    bool inside = true;
    int units = 0;
    for (std::size_t k = 0; k < kinds(); ++k) {
      rest[k] = left[k] - pattern.counts[k];
      inside = inside && rest[k] >= 0;
      units += rest[k];
    }
    if (!inside || (groups == 1) != (units == 0)) continue;
    if (groups > 1 && !reachable(rest, groups - 1, nullptr)) continue;
    taken.push_back(pattern.counts);
    list(rest, groups - 1, first, i, taken);
    taken.pop_back();
  }
}

/// Numbers of groups with what they can reach at most, most promising first.
std::vector<std::pair<double, int>> Solver::bounds() const {
  std::vector<std::pair<double, int>> result;
  for (int groups = problem_.least_groups; groups <= problem_.most_groups; ++groups) {
    if (product(capped_memory_, problem_.counts) * (1 + kTolerance) <
        groups * problem_.least_memory) {
      break;
    }
    result.emplace_back(bound(groups), groups);
  }
  std::sort(result.begin(), result.end(), std::greater<>());
  return result;
}

/// Each number of groups gets a first share of work, so that a hard one does not keep the search
/// from the others; those that did not end start again, one after the other.
GroupingResult Solver::solve() {
  std::vector<std::pair<double, int>> open = bounds();
  start_with_balanced_groups(open);
  std::vector<int> tied;
  const auto worse = [&](const auto& entry) {
    return entry.first < result_.objective * (1 - kTolerance);
  };
  for (const bool first_pass : {true, false}) {
    std::vector<std::pair<double, int>> left;
    for (const auto& entry : open) {
      if (worse(entry)) continue;
      pause_at_ = first_pass ? std::min(limits_.most_work, result_.work + limits_.first_share)
                             : limits_.most_work;
      paused_ = false;
      if (!stopped_) improve(entry.second);
      if (ended()) {
        left.push_back(entry);
      } else {
        tied.push_back(entry.second);
      }
    }
    open = std::move(left);
  }
  paused_ = false;
  pause_at_ = limits_.most_work;
  open.erase(std::remove_if(open.begin(), open.end(), worse), open.end());
  result_.bound = result_.objective;
  for (const auto& [most, groups] : open) result_.bound = std::max(result_.bound, most);
  // What was left open may have been excluded by what was found since.
  result_.exact = open.empty();
  if (stopped_ || result_.objective <= 0) {
    result_.all_ties = !stopped_;
    return std::move(result_);
  }
  const std::vector<UnitCounts> found = result_.groupings.front();
  result_.groupings.clear();
  std::sort(tied.begin(), tied.end());
  for (const int groups : tied) collect(groups);
  if (stopped_) {
    result_.all_ties = false;
    if (result_.groupings.empty()) result_.groupings = {found};
  }
  return std::move(result_);
}

}  // namespace

double effective_power(const GroupingProblem& problem, const UnitCounts& group) {
  const int units = std::accumulate(group.begin(), group.end(), 0);
  if (units == 0) return 0;
  const double power = std::inner_product(group.begin(), group.end(), problem.power.begin(), 0.0);
  return power * problem.micro_batches / (problem.micro_batches + units - 1.0);
}

GroupingResult best_groupings(const GroupingProblem& problem, const GroupingLimits& limits) {
  return Solver(problem, limits).solve();
}

}  // namespace orrery::planners
