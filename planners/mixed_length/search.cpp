#include "planners/mixed_length/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/candidates.h"
#include "planners/mixed_length/quick_estimate.h"

namespace orrery::planners {
namespace {

using Steps = std::span<const std::vector<std::int64_t>>;

/// Relative: simulations that follow each other on one clock differ in their last bits.
constexpr double kSameTime = 1e-9;

/// A candidate for an interval of lengths.
struct IntervalEntry {
  const PreparedStrategy* strategy = nullptr;
  std::size_t candidate = 0;
  std::vector<Seconds> by_step;  ///< Time of its part of each sample; 0: it has none.
  Seconds sum;
  Seconds one;  ///< A single sequence of the longest length: decides among equals.
};

/// A chain of borders, and for each interval one of its entries.
struct ChainOfBorders {
  std::vector<std::size_t> borders;  ///< Ascending; the last one is the context.
  std::vector<std::size_t> entries;
  Seconds time;
};

class StrategySetSearch {
 public:
  StrategySetSearch(const StrategySearchInput& input, const StrategyRule& rule)
      : in_(input),
        rule_(rule),
        options_(input.input.set.search),
        borders_(rule.packed ? std::vector<std::int64_t>{input.input.context}
                             : search_borders(options_, input.input.context, input.input.multiple)),
        candidates_(candidates()),
        quick_(input.input) {
    for (const auto& step : input.steps) {
      if (rule.packed) {
        steps_.emplace_back(pack_windows(step, input.input.context).size(), input.input.context);
        continue;
      }
      steps_.push_back(step);
      std::sort(steps_.back().begin(), steps_.back().end(), std::greater<>());
    }
  }

  StrategySearchResult run() {
    for (std::size_t last = 0; last < borders_.size(); ++last) {
      for (std::size_t first = 0; first <= last; ++first) fill(first, last);
    }
    const std::vector<ChainOfBorders> best = best_sets();
    if (best.empty()) {
      return models::Infeasible{"device memory",
                                fmt::format("none of {} strategies holds sequences of {} tokens",
                                            candidates_.size(), in_.input.context)};
    }
    FoundStrategies found;
    for (const ChainOfBorders& set : best) {
      std::vector<PreparedStrategy> prepared;
      for (const IntervalEntry* entry : entries_of(set)) prepared.push_back(*entry->strategy);
      const auto planner = rule_.with(std::move(prepared), in_.input.context);
      const Seconds time =
          judged_time(*planner, in_.input.pricer.job().state_bytes, in_.steps, in_.judge);
      if (!found.set.strategies.empty() && time >= (1 - kSameTime) * found.simulated) continue;
      found.simulated = time;
      found.modeled = set.time;
      found.set = in_.input.set;
      found.set.strategies.clear();
      const auto entries = entries_of(set);
      for (std::size_t i = 0; i < entries.size(); ++i) {
        found.set.strategies.push_back(
            {borders_[set.borders[i]], candidates_[entries[i]->candidate]});
      }
    }
    found.strategies = static_cast<std::int64_t>(prepared_.size());
    found.sets = examined_;
    return found;
  }

 private:
  using Interval = std::pair<std::size_t, std::size_t>;  ///< First and last border inside.

  std::vector<std::vector<PipelineKind>> candidates() const {
    const int devices = in_.input.pricer.cluster().size();
    const int layers = count_layers(in_.input.pricer.workload(in_.input.context));
    if (rule_.candidates != nullptr) return rule_.candidates(devices, layers, options_);
    return candidate_pipelines(devices, layers, options_,
                               rule_.homogeneous ? 1 : options_.max_kinds);
  }

  /// The sequences of a sample that the interval's strategy runs, longest first.
  std::vector<std::int64_t> part(const std::vector<std::int64_t>& step, Interval interval) const {
    const std::int64_t above = interval.first == 0 ? 0 : borders_[interval.first - 1];
    const std::int64_t most = borders_[interval.second];
    if (!rule_.by_interval) {
      const bool ours = !step.empty() && step.front() > above && step.front() <= most;
      return ours ? step : std::vector<std::int64_t>{};
    }
    std::vector<std::int64_t> own;
    std::copy_if(step.begin(), step.end(), std::back_inserter(own),
                 [&](std::int64_t length) { return length > above && length <= most; });
    return own;
  }

  /// Both rules skip strategies without sequences; the update runs under the shortest interval's.
  bool skipped(const std::vector<std::int64_t>& own, Interval interval) const {
    return own.empty() && !(rule_.by_interval && interval.first == 0);
  }

  void fill(std::size_t first, std::size_t last) {
    const Interval interval{first, last};
    std::vector<std::vector<std::int64_t>> parts;
    for (const auto& step : steps_) parts.push_back(part(step, interval));
    std::vector<std::pair<Seconds, std::size_t>> order;
    for (std::size_t c = 0; c < candidates_.size(); ++c) {
      Seconds sum;
      bool fits = true;
      for (const auto& own : parts) {
        const auto time = quick_(candidates_[c], borders_[last], own);
        fits = time.has_value();
        if (!fits) break;
        sum += *time;
      }
      if (fits) order.emplace_back(sum, c);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    auto& entries = entries_[interval];
    for (const auto& [estimate, candidate] : order) {
      if (std::ssize(entries) >= options_.balanced) break;
      if (auto entry = balanced(candidate, interval, parts)) entries.push_back(std::move(*entry));
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const IntervalEntry& a, const IntervalEntry& b) {
                       return std::pair(a.sum, a.one) < std::pair(b.sum, b.one);
                     });
  }

  std::optional<IntervalEntry> balanced(std::size_t candidate, Interval interval,
                                        const std::vector<std::vector<std::int64_t>>& parts) {
    const PreparedStrategy* strategy = prepared(candidate, interval.second);
    if (strategy == nullptr) return std::nullopt;
    IntervalEntry entry{strategy, candidate, {}, {}, {}};
    for (std::size_t s = 0; s < parts.size(); ++s) {
      Seconds time;
      if (!skipped(parts[s], interval)) {
        time = overhead(candidate, interval) + load(candidate, interval, s, parts[s]);
      }
      entry.by_step.push_back(time);
      entry.sum += time;
    }
    const std::vector<std::int64_t> one = {strategy->longest()};
    entry.one = longest_load(*strategy, balance(*strategy, one));
    return entry;
  }

  const PreparedStrategy* prepared(std::size_t candidate, std::size_t border) {
    const auto [place, added] = prepared_.try_emplace({candidate, border});
    if (added) {
      auto made = PreparedStrategy::make(in_.input, {borders_[border], candidates_[candidate]});
      if (auto* strategy = std::get_if<PreparedStrategy>(&made)) {
        place->second = std::move(*strategy);
      }
    }
    return place->second ? &*place->second : nullptr;
  }

  /// Time of a phase without its passes: the judge runs it without sequences. Weights that ZeRO
  /// gathers in a pass are gathered then too; they belong to the passes.
  Seconds overhead(std::size_t candidate, Interval interval) {
    const models::StepEnd end = rule_.by_interval && interval.first > 0
                                    ? models::StepEnd::accumulate
                                    : models::StepEnd::update;
    const auto [place, added] = overheads_.try_emplace({candidate, interval.second, end});
    if (added) {
      const PreparedStrategy& strategy = *prepared(candidate, interval.second);
      const models::MicroBatchLengths nothing(strategy.pipelines(), {0});
      const Seconds alone = in_.judge.phase_time(strategy, nothing, end);
      place->second = std::max(Seconds{}, alone - longest_load(strategy, nothing));
    }
    return place->second;
  }

  /// The load of whole steps does not depend on where the interval begins.
  Seconds load(std::size_t candidate, Interval interval, std::size_t step,
               const std::vector<std::int64_t>& own) {
    const std::size_t first = rule_.by_interval ? interval.first : 0;
    const auto [place, added] = loads_.try_emplace({candidate, first, interval.second, step});
    if (added) {
      const PreparedStrategy& strategy = *prepared(candidate, interval.second);
      place->second = longest_load(strategy, balance(strategy, own));
    }
    return place->second;
  }

  std::vector<const IntervalEntry*> entries_of(const ChainOfBorders& set) const {
    std::vector<const IntervalEntry*> out;
    for (std::size_t i = 0; i < set.borders.size(); ++i) {
      const std::size_t first = i == 0 ? 0 : set.borders[i - 1] + 1;
      out.push_back(&entries_.at({first, set.borders[i]})[set.entries[i]]);
    }
    return out;
  }

  /// Sum over the samples without switches: no more than with them.
  Seconds bound(const ChainOfBorders& set) const {
    Seconds sum;
    for (const IntervalEntry* entry : entries_of(set)) sum += entry->sum;
    return sum;
  }

  /// Sum over the samples with switches.
  Seconds time_of(const ChainOfBorders& set) {
    const std::vector<const IntervalEntry*> entries = entries_of(set);
    Seconds sum = bound(set);
    std::optional<std::size_t> current;
    for (std::size_t s = 0; s < steps_.size(); ++s) {
      bool inside = false;
      for (std::size_t i = entries.size(); i-- > 0;) {
        const std::size_t first = i == 0 ? 0 : set.borders[i - 1] + 1;
        const Interval interval{first, set.borders[i]};
        if (skipped(part(steps_[s], interval), interval)) continue;
        if (current && *current != i) sum += switch_time(*entries[*current], *entries[i], inside);
        current = i;
        inside = true;
      }
    }
    return sum;
  }

  Seconds switch_time(const IntervalEntry& from, const IntervalEntry& to, bool inside) {
    const auto [place, added] = switches_.try_emplace({from.strategy, to.strategy, inside});
    if (added) {
      if (!moves_) moves_ = rule_.with({}, 0);
      const models::StateBytes& bytes = in_.input.pricer.job().state_bytes;
      place->second = in_.judge.switch_time(
          from.strategy->plan(), to.strategy->plan(),
          inside ? moves_->moved_inside_step(bytes) : moves_->moved_between_steps(bytes));
    }
    return place->second;
  }

  /// The finalists, best first: sets in ascending order of their bounds, until a bound exceeds the
  /// last finalist's time.
  std::vector<ChainOfBorders> best_sets() {
    using Queued = std::pair<Seconds, ChainOfBorders>;
    // Among equal ones the smaller set comes first: strategies that no sample needs are left out.
    const auto later = [](const Queued& a, const Queued& b) {
      return std::tuple(a.first, a.second.borders.size(), a.second.borders, a.second.entries) >
             std::tuple(b.first, b.second.borders.size(), b.second.borders, b.second.entries);
    };
    std::priority_queue<Queued, std::vector<Queued>, decltype(later)> queue(later);
    for (std::vector<std::size_t>& chain : chains()) {
      ChainOfBorders set{std::move(chain), {}, {}};
      set.entries.assign(set.borders.size(), 0);
      const Seconds least = bound(set);
      queue.emplace(least, std::move(set));
    }
    std::vector<ChainOfBorders> best;
    const std::size_t most = options_.finalists;
    while (!queue.empty()) {
      ChainOfBorders set = queue.top().second;
      if (best.size() == most && queue.top().first >= best.back().time) break;
      queue.pop();
      // Each choice of entries is reached once: by raising entries from the last raised one on.
      std::size_t raised = set.entries.size();
      while (raised > 0 && set.entries[raised - 1] == 0) --raised;
      for (std::size_t i = raised > 0 ? raised - 1 : 0; i < set.entries.size(); ++i) {
        ChainOfBorders next = set;
        const std::size_t first = i == 0 ? 0 : set.borders[i - 1] + 1;
        if (++next.entries[i] == entries_.at({first, set.borders[i]}).size()) continue;
        const Seconds least = bound(next);
        queue.emplace(least, std::move(next));
      }
      set.time = time_of(set);
      ++examined_;
      best.insert(std::upper_bound(best.begin(), best.end(), set,
                                   [](const ChainOfBorders& a, const ChainOfBorders& b) {
                                     return std::pair(a.time, a.borders.size()) <
                                            std::pair(b.time, b.borders.size());
                                   }),
                  set);
      if (best.size() > most) best.pop_back();
    }
    for (ChainOfBorders& set : best) set.time = set.time / static_cast<double>(steps_.size());
    return best;
  }

  /// Chains of at most max_strategies borders that end at the context, all of whose intervals have
  /// candidates.
  std::vector<std::vector<std::size_t>> chains() const {
    std::vector<std::vector<std::size_t>> all;
    std::vector<std::size_t> chain;
    const std::function<void(std::size_t)> extend = [&](std::size_t first) {
      for (std::size_t last = first; last < borders_.size(); ++last) {
        if (entries_.at({first, last}).empty()) continue;
        chain.push_back(last);
        if (last + 1 == borders_.size()) {
          all.push_back(chain);
        } else if (std::ssize(chain) < options_.max_strategies) {
          extend(last + 1);
        }
        chain.pop_back();
      }
    };
    extend(0);
    return all;
  }

  const StrategySearchInput& in_;
  const StrategyRule& rule_;
  const StrategySearch& options_;
  std::vector<std::int64_t> borders_;
  std::vector<std::vector<PipelineKind>> candidates_;
  QuickEstimate quick_;
  std::vector<std::vector<std::int64_t>> steps_;  ///< Longest first.
  std::map<Interval, std::vector<IntervalEntry>> entries_;
  std::map<std::pair<std::size_t, std::size_t>, std::optional<PreparedStrategy>> prepared_;
  std::map<std::tuple<std::size_t, std::size_t, models::StepEnd>, Seconds> overheads_;
  std::map<std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>, Seconds> loads_;
  std::map<std::tuple<const PreparedStrategy*, const PreparedStrategy*, bool>, Seconds> switches_;
  std::unique_ptr<StepPlanner> moves_;  ///< Without strategies: says what moves.
  std::int64_t examined_ = 0;
};

}  // namespace

Seconds judged_time(const StepPlanner& planner, const models::StateBytes& bytes, Steps steps,
                    const StepJudge& judge) {
  const auto& strategies = planner.strategies();
  std::map<std::tuple<int, int, bool>, Seconds> switches;
  Seconds sum;
  int current = -1;
  for (const auto& lengths : steps) {
    bool inside = false;
    for (const StepPhase& phase : planner.plan(lengths)) {
      const auto& strategy = strategies[phase.strategy];
      if (current >= 0 && current != phase.strategy) {
        const auto [place, added] = switches.try_emplace({current, phase.strategy, inside});
        if (added) {
          place->second = judge.switch_time(
              strategies[current].plan(), strategy.plan(),
              inside ? planner.moved_inside_step(bytes) : planner.moved_between_steps(bytes));
        }
        sum += place->second;
      }
      current = phase.strategy;
      inside = true;
      sum += judge.phase_time(strategy, phase.lengths, phase.end);
    }
  }
  return steps.empty() ? sum : sum / static_cast<double>(steps.size());
}

StrategySearchResult search_strategies(const StrategySearchInput& input, const StrategyRule& rule) {
  return StrategySetSearch(input, rule).run();
}

}  // namespace orrery::planners
