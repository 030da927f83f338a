#include "planners/metis/full.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/base/ids.h"
#include "models/cost/memory.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

constexpr double kSumRounding = 1e-12;  ///< Relative; sums of stage times in different orders.
constexpr std::size_t kMostTables = 4096;

using Count = MetisFullSize::Count;

Count binomial(int n, int k) {
  Count result = 1;
  for (int i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return result;
}

std::string in_digits(Count number) {
  std::string digits;
  for (; number > 0 || digits.empty(); number /= 10) {
    digits.push_back(static_cast<char>('0' + static_cast<int>(number % 10)));
  }
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace

MetisFull::MetisFull(const MetisProblem& problem, MetisStages& stages, MetisBounds& bounds,
                     MetisPaths& paths, MetisProgress& progress)
    : problem_(problem),
      tables_(problem.tables),
      stages_(stages),
      bounds_(bounds),
      paths_(paths),
      progress_(progress) {}

/// A choice of degrees for each stage, with what its divisions need.
class MetisFull::Divisions {
 public:
  Divisions(MetisFull& search, const MetisPath& path)
      : search_(search),
        stages_(path.stages()),
        layers_(search.tables_.layers),
        more_(static_cast<double>(search.problem_.batches[path.batch] - 1)) {
    for (int s = 0; s < stages_; ++s) {
      choices_.push_back(&search.paths_.choice(path, s));
      times_.push_back(&search.stage_times(path, s));
      reach_.push_back(&search.stage_reach(path, s));
      head_.push_back(s + 2 == stages_
                          ? search.paths_.hop(path, s, layers_ - 1) - search.paths_.hop(path, s, 0)
                          : 0);
    }
  }

  /// One after another; the first of the best that fit. None: nothing fits, or the budget ended.
  std::vector<int> look_at_each() {
    cuts_ = {0};
    visit(0, {}, true);
    return best_;
  }

  /// The same, without looking at what costs `most` or more together with `constant`.
  std::vector<int> find(double constant, double most);

 private:
  /// The part of Metis's cost (Eq. 1) that depends on the division of layers. Milliseconds.
  struct Terms {
    double sum = 0;      ///< Of stage times.
    double slowest = 0;  ///< Stage.
    double reduce = 0;   ///< Longest all-reduce of gradients.
    double update = 0;   ///< Longest optimizer step.
    double total(double more) const { return sum + more * slowest + reduce + update; }
    bool no_worse_than(const Terms& other) const {
      return sum <= other.sum && slowest <= other.slowest && reduce <= other.reduce &&
             update <= other.update;
    }
  };
  struct Label {
    Terms terms;
    int end = 0;
    int parent = -1;
  };

  Terms with(const Terms& before, int stage, int begin, int end) const {
    const MetisStageChoice& each = *choices_[stage];
    const double time = (*times_[stage])[begin * (layers_ + 1) + end];
    const double reduce =
        each.reduce_ms_per_byte * (search_.stages_.parameters(begin, end) / each.tensor);
    const double update =
        search_.tables_.optimizer_ms / each.tensor * (static_cast<double>(end - begin) / layers_);
    return {before.sum + time + head(stage, end), std::max(before.slowest, time),
            std::max(before.reduce, reduce), std::max(before.update, update)};
  }
  /// What the hop of a stage that ends before the head costs more than others.
  double head(int stage, int end) const { return end == layers_ - 1 ? head_[stage] : 0; }
  bool fits(int stage, int begin, int end) const { return end <= (*reach_[stage])[begin]; }

  void visit(int stage, const Terms& before, bool fitting) {
    const int begin = cuts_.back();
    if (stage + 1 == stages_) {
      if (search_.ended_ || (search_.ended_ = search_.progress_.stop())) return;
      ++search_.progress_.report().plans_examined;
      search_.progress_.charge(1);
      if (!fitting || !fits(stage, begin, layers_)) return;
      const double total = with(before, stage, begin, layers_).total(more_);
      if (!(total < least_)) return;
      least_ = total;
      best_ = cuts_;
      best_.push_back(layers_);
      return;
    }
    for (int end = begin + 1; end < layers_ - (stages_ - 2 - stage); ++end) {
      if (search_.ended_) return;
      cuts_.push_back(end);
      visit(stage + 1, with(before, stage, begin, end), fitting && fits(stage, begin, end));
      cuts_.pop_back();
    }
  }

  void weigh_rest();
  void extend(int stage, int begin, const std::vector<int>& from,
              std::vector<std::vector<int>>& next, double most);

  MetisFull& search_;
  int stages_ = 0;
  int layers_ = 0;
  double more_ = 0;  ///< Micro-batches but one.
  std::vector<const MetisStageChoice*> choices_;
  std::vector<const std::vector<double>*> times_;
  std::vector<const std::vector<int>*> reach_;
  std::vector<double> head_;  ///< By stage.
  std::vector<int> cuts_;
  std::vector<int> best_;
  double least_ = kNever;
  std::vector<double> rest_sum_;      ///< By stage and first layer: least sum of what is left,
  std::vector<double> rest_slowest_;  ///< and least slowest stage.
  std::vector<Label> labels_;
};

void MetisFull::Divisions::weigh_rest() {
  const int width = layers_ + 1;
  rest_sum_.assign(as_size((stages_ + 1) * width), kNever);
  rest_slowest_.assign(as_size((stages_ + 1) * width), kNever);
  rest_sum_.back() = rest_slowest_.back() = 0;
  for (int s = stages_; s-- > 0;) {
    const std::vector<double>& times = *times_[s];
    for (int begin = s; begin + (stages_ - s) <= layers_; ++begin) {
      double& sum = rest_sum_[s * width + begin];
      double& slowest = rest_slowest_[s * width + begin];
      const int first = s + 1 == stages_ ? layers_ : begin + 1;
      const int last = std::min(layers_ - (stages_ - 1 - s), (*reach_[s])[begin]);
      for (int end = first; end <= last; ++end) {
        const double time = times[begin * width + end];
        sum = std::min(sum, time + head(s, end) + rest_sum_[(s + 1) * width + end]);
        slowest = std::min(slowest, std::max(time, rest_slowest_[(s + 1) * width + end]));
      }
    }
  }
}

/// From all labels that end at `begin`, one stage further.
void MetisFull::Divisions::extend(int stage, int begin, const std::vector<int>& from,
                                  std::vector<std::vector<int>>& next, double most) {
  const int width = layers_ + 1;
  const int first = stage + 1 == stages_ ? layers_ : begin + 1;
  const int last = std::min(layers_ - (stages_ - 1 - stage), (*reach_[stage])[begin]);
  for (int end = first; end <= last; ++end) {
    const std::size_t rest = as_size((stage + 1) * width + end);
    for (const int label : from) {
      const Terms terms = with(labels_[label].terms, stage, begin, end);
      Terms least = terms;
      least.sum += rest_sum_[rest];
      least.slowest = std::max(least.slowest, rest_slowest_[rest]);
      if (!(least.total(more_) < most)) continue;
      const bool beaten = std::any_of(next[end].begin(), next[end].end(), [&](int other) {
        return labels_[other].terms.no_worse_than(terms);
      });
      if (beaten) continue;
      std::erase_if(next[end],
                    [&](int other) { return terms.no_worse_than(labels_[other].terms); });
      next[end].push_back(static_cast<int>(labels_.size()));
      labels_.push_back({terms, end, label});
      search_.progress_.charge(1);
    }
  }
}

std::vector<int> MetisFull::Divisions::find(double constant, double most) {
  weigh_rest();
  labels_ = {{}};
  std::vector<std::vector<int>> here(as_size(layers_ + 1)), next(as_size(layers_ + 1));
  here[0] = {0};
  for (int s = 0; s < stages_; ++s) {
    for (std::vector<int>& each : next) each.clear();
    for (int begin = s; begin < layers_; ++begin) {
      if (!here[begin].empty()) extend(s, begin, here[begin], next, most - constant);
    }
    here.swap(next);
  }
  search_.progress_.report().plans_examined += std::ssize(here[layers_]);
  int best = -1;
  for (const int label : here[layers_]) {
    const double total = labels_[label].terms.total(more_);
    if (!(total < least_)) continue;
    least_ = total;
    best = label;
  }
  for (; best >= 0; best = labels_[best].parent) best_.push_back(labels_[best].end);
  std::reverse(best_.begin(), best_.end());
  return best_;
}

/// Times of all ranges of layers on the stage, milliseconds, at begin * (layers + 1) + end.
const std::vector<double>& MetisFull::stage_times(const MetisPath& path, int stage) {
  const MetisStageChoice& each = paths_.choice(path, stage);
  const auto [place, added] = times_.try_emplace(&each);
  if (added) {
    place->second.resize(as_size((tables_.layers + 1) * (tables_.layers + 1)));
    for (int begin = 0; begin < tables_.layers; ++begin) {
      for (int end = begin + 1; end <= tables_.layers; ++end) {
        place->second[begin * (tables_.layers + 1) + end] = stages_.time(each, begin, end);
      }
    }
  }
  return place->second;
}

/// By first layer the end of the longest range that fits in memory.
const std::vector<int>& MetisFull::stage_reach(const MetisPath& path, int stage) {
  const MetisStageChoice& each = paths_.choice(path, stage);
  const int in_flight = models::micro_batches_in_flight(
      problem_.schedule, path.stages(), stage, static_cast<int>(problem_.batches[path.batch]), 1);
  const auto [place, added] = reach_.try_emplace({&each, in_flight});
  if (!added) return place->second;
  for (int begin = 0; begin < tables_.layers; ++begin) {
    int end = begin;
    while (end < tables_.layers) {
      std::pair<double, double> memory;
      if (stages_.device_rule()) {
        memory = stages_.device_memory(each, begin, end + 1, in_flight);
      } else {
        memory = {stages_.group_memory(path.first[stage], path.size(stage)),
                  stages_.layer_memory(each, begin, end + 1)};
      }
      if (memory.first < memory.second) break;
      ++end;
    }
    place->second.push_back(end);
  }
  return place->second;
}

/// The part of the cost that does not depend on the division of layers.
double MetisFull::fixed_cost(const MetisPath& path) const {
  const int stages = path.stages();
  const auto batches = static_cast<double>(problem_.batches[path.batch]);
  double hops = 0;
  for (int s = 0; s + 1 < stages; ++s) hops += paths_.hop(path, s, 0);
  return hops + (paths_.choice(path, stages - 1).sync_ms + tables_.batch_generator_ms) * batches;
}

void MetisFull::explore(MetisPath& path, int stage) {
  const int stages = path.stages();
  if (times_.size() > kMostTables || reach_.size() > kMostTables) {
    times_.clear();
    reach_.clear();
  }
  if (stage == stages) {
    Divisions divisions(*this, path);
    progress_.charge(problem_.settings.bounds ? 1 : 0);
    const double most = !progress_.full() ? kNever : progress_.worst() * (1 + kSumRounding);
    const std::vector<int> cuts = problem_.settings.bounds ? divisions.find(fixed_cost(path), most)
                                                           : divisions.look_at_each();
    if (!cuts.empty()) paths_.offer(path, cuts);
    return;
  }
  for (int step = 0; step < stages_.steps(path.size(stage)); ++step) {
    path.step[stage] = step;
    const MetisStageChoice& each = paths_.choice(path, stage);
    if (!each.valid || each.broken || bounds_.hopeless(path)) continue;
    explore(path, stage + 1);
    ended_ = ended_ || progress_.stop();
    if (ended_) break;
  }
  path.step[stage] = 0;
}

/// Calls visit(state, next state, choices of degrees of the stages between) for all states.
template <class Visit>
void MetisFull::count_orders(const MetisLattice& lattice, int batch, const Visit& visit) const {
  for (std::size_t state = 0; state < lattice.rank.size(); ++state) {
    for (std::size_t g = 0; g < lattice.groups.size(); ++g) {
      if (lattice.placed(g, static_cast<int>(state)) == lattice.counts[g]) continue;
      int choices = 1, rank = lattice.rank[state];
      for (const int size : lattice.groups[g]) {
        int valid = 0;
        for (int step = 0; step < stages_.steps(size); ++step) {
          const MetisStageChoice& each = stages_.choice(rank, size, batch, step);
          valid += each.valid && !each.broken ? 1 : 0;
        }
        choices *= valid;
        rank += size;
      }
      visit(state, state + as_size(lattice.strides[g]), choices);
    }
  }
}

void MetisFull::count(int stages, int devices, MetisFullSize& size) const {
  Count ways = 0;
  DeviceGroups groups(stages, devices, problem_.settings.variance,
                      problem_.settings.max_permute_length);
  std::vector<int> sizes;
  while (groups.next_leader(sizes)) {
    if (canceled(problem_.input)) return;
    const MetisLattice lattice(groups);
    std::vector<Count> orders(lattice.rank.size());
    for (int batch = 0; batch < static_cast<int>(problem_.batches.size()); ++batch) {
      if (!bounds_.possible(lattice, batch)) continue;
      std::vector<Count> degrees(lattice.rank.size());
      orders.assign(lattice.rank.size(), 0);
      orders.front() = degrees.front() = 1;
      count_orders(lattice, batch, [&](std::size_t from, std::size_t to, int choices) {
        orders[to] += orders[from];
        degrees[to] += degrees[from] * choices;
      });
      size.nodes += orders.back();
      ways += degrees.back();
    }
  }
  size.combinations += ways;
  size.plans += ways * binomial(tables_.layers - 1, stages - 1);
}

std::string MetisFullSize::in_words() const {
  return fmt::format(
      "full search space: {} plans; {} combinations of device groups, micro-batches and degrees; "
      "{} of device groups and micro-batches",
      in_digits(plans), in_digits(combinations), in_digits(nodes));
}

}  // namespace orrery::planners
