#include "planners/orrery/seeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "models/schedule/schedule.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

/// GPU types beyond which not all ways to form sets of them are tried.
constexpr std::size_t kMostSplitTypes = 4;
/// Groups of a stage that share experts.
constexpr int kMostSharing = 8;
/// Combinations of a set of types that are kept for each size of micro-batches.
constexpr std::size_t kKeptOfSet = 5;
/// Combinations of sets whose whole draft is priced: at most, and at least; of larger clusters
/// fewer, as each takes longer.
constexpr std::size_t kPricedDrafts = 256;
constexpr std::size_t kFewestPriced = 16;
constexpr std::size_t kDevicesOfAllSeeds = 240;

/// Tensor-parallel groups of one GPU type, node by node.
using Units = std::vector<std::vector<DeviceId>>;

/// How a set of types forms pipelines.
struct SetChoice {
  std::vector<int> types;    ///< In the order of stages.
  std::vector<int> degrees;  ///< By type of `types`.
  int pipelines = 1;
  bool compact = true;  ///< A pipeline takes neighbors; else every so many-th unit.
  int micro_batch_size = 1;
  int expert_parallel = 1;  ///< Groups of each stage, which share experts.
  double rate = 0;          ///< Samples per second.
  double fill = 0;          ///< Seconds.
};

class SeedSearch {
 public:
  SeedSearch(const PlannerInput& input, const DraftCosts& costs, const DraftMoves& moves,
             const std::function<double(const Draft&)>& rate, std::int64_t& examined)
      : input_(input),
        costs_(costs),
        moves_(moves),
        rate_(rate),
        balance_(input, costs),
        examined_(examined) {
    for (const DeviceId device : input.devices) {
      const models::Device& of = input.cluster.device(device);
      by_node_[of.gpu_type][of.node].push_back(device);
    }
    for (const auto& [type, nodes] : by_node_) types_.push_back(type);
  }

  std::vector<SeedDraft> run(std::size_t most) {
    const int zero = smallest_zero_stage(input_.job);
    std::vector<int> zeros = {zero};
    for (const int stage : {1, 2}) {
      const auto& allowed = input_.job.allowed.zero_stages;
      if (stage != zero && std::find(allowed.begin(), allowed.end(), stage) != allowed.end()) {
        zeros.push_back(stage);
        break;
      }
    }
    auto kind = models::preferred_schedule(input_.job.allowed.schedules);
    for (const ir::ScheduleKind other : input_.job.allowed.schedules) {
      const models::ScheduleEntry* entry = models::find_schedule(other);
      if (!kind && entry != nullptr && !entry->folds_back) kind = other;
    }
    if (!kind) return {};
    Draft base;
    base.schedule = *kind;
    base.virtual_stages = models::schedule_entry(*kind).uses_chunks ? 2 : 1;
    for (const int stage : zeros) {
      base.zero.stage = stage;
      search(base);
    }
    if (found_.empty()) search_for_memory(base);
    std::sort(found_.begin(), found_.end(), [](const SeedDraft& a, const SeedDraft& b) {
      return a.value != b.value ? a.value < b.value : a.draft < b.draft;
    });
    std::size_t count[2] = {0, 0};  // Without experts that are shared, and with.
    std::erase_if(found_, [&](const SeedDraft& seed) {
      const bool shared = shares_experts(seed.draft);
      return ++count[shared] > (shared ? most / 2 : most);
    });
    return std::move(found_);
  }

 private:
  /// Where memory forbids all else: states divided among the pipelines of all GPU types, by every
  /// stage of ZeRO that the job allows, and at last by how much memory the types have.
  void search_for_memory(Draft base) {
    among_all_ = true;
    for (const bool evenly : {true, false}) {
      if (!evenly && (!moves_.limits().weights || types_.size() < 2)) return;
      if (!evenly) base.state_weights = weights_by_memory();
      for (const int stage : {1, 2, 3}) {
        const auto& allowed = input_.job.allowed.zero_stages;
        if (std::find(allowed.begin(), allowed.end(), stage) == allowed.end()) continue;
        base.zero.stage = stage;
        choices_.clear();
        search(base);
        if (!found_.empty()) return;
      }
    }
  }

  std::vector<int> weights_by_memory() const {
    double most = 0;
    for (const int type : types_) {
      most = std::max(most, costs_.stage_costs().capacity(type).value);
    }
    std::vector<int> weights(input_.cluster.gpu_types.size(), 1);
    for (const int type : types_) {
      const double share = costs_.stage_costs().capacity(type).value / most;
      weights[as_size(type)] = std::max(1, static_cast<int>(std::lround(kMostDraftWeight * share)));
    }
    return weights;
  }

  /// Pipelines that divide the states of one of the choice.
  int replicas(const SetChoice& choice) const {
    if (!among_all_) return choice.pipelines;
    std::size_t own = 0;
    for (const int type : choice.types) {
      for (const auto& [node, devices] : by_node_.at(type)) own += devices.size();
    }
    return static_cast<int>(as_size(choice.pipelines) * input_.devices.size() / own);
  }

  struct UnitsOfType {
    Units units;
    bool alike = true;  ///< All of one class.
  };
  /// Of `degree` devices each; consecutive ones are a unit if stages have several groups.
  const UnitsOfType& units_of(int type, int degree, int groups) {
    const auto [place, added] = units_.try_emplace({type, degree, groups});
    UnitsOfType& made = place->second;
    if (!added) return made;
    std::set<int> classes;
    for (const auto& [node, devices] : by_node_.at(type)) {
      for (std::size_t i = 0; i + as_size(degree) <= devices.size(); i += as_size(degree)) {
        made.units.emplace_back(devices.begin() + static_cast<long>(i),
                                devices.begin() + static_cast<long>(i) + degree);
        classes.insert(costs_.group_class({made.units.back(), 1}));
      }
    }
    if (groups > 1) {
      Units joined;
      for (std::size_t u = 0; u + as_size(groups) <= made.units.size(); u += as_size(groups)) {
        joined.emplace_back();
        for (int g = 0; g < groups; ++g) {
          const std::vector<DeviceId>& own = made.units[u + as_size(g)];
          joined.back().insert(joined.back().end(), own.begin(), own.end());
        }
      }
      made.units = std::move(joined);
      made.alike = false;  // Where nodes end in a unit is not looked at.
      return made;
    }
    made.alike = classes.size() <= 1;
    return made;
  }

  /// All ways to divide the types, or some of them, into sets: by the set of the first type,
  /// recursively.
  void divide(std::size_t next, std::vector<std::vector<int>>& sets,
              std::vector<std::vector<std::vector<int>>>& out) const {
    if (next == types_.size()) {
      if (!sets.empty()) out.push_back(sets);
      return;
    }
    divide(next + 1, sets, out);
    for (std::size_t s = 0; s < sets.size(); ++s) {
      sets[s].push_back(types_[next]);
      divide(next + 1, sets, out);
      sets[s].pop_back();
    }
    sets.push_back({types_[next]});
    divide(next + 1, sets, out);
    sets.pop_back();
  }

  DraftStage stage_of(const std::vector<DeviceId>& unit, const SetChoice& choice,
                      const Draft& draft) const {
    DraftStage stage;
    const std::size_t groups = as_size(choice.expert_parallel), each = unit.size() / groups;
    for (std::size_t g = 0; g < groups; ++g) {
      const auto first = unit.begin() + static_cast<long>(g * each);
      stage.groups.push_back({{first, first + static_cast<long>(each)},
                              choice.micro_batch_size / choice.expert_parallel});
    }
    stage.expert_parallel = choice.expert_parallel;
    stage.chunks.assign(as_size(draft.virtual_stages), {});
    return stage;
  }

  /// The pipelines of a plan of so many, each with a share of the batch.
  void add(DraftPipeline chain, const SetChoice& choice, int pipelines, Draft& draft) const {
    if (chain.stages.empty()) return;
    chain.micro_batch_size = choice.micro_batch_size;
    chain.micro_batches = static_cast<int>(
        std::max<std::int64_t>(1, input_.job.global_batch / choice.micro_batch_size / pipelines));
    draft.pipelines.push_back(std::move(chain));
  }

  /// All pipelines of a choice, appended to a draft of so many.
  void append(const SetChoice& choice, int pipelines, Draft& draft) {
    std::vector<DraftPipeline> chains(as_size(choice.pipelines));
    for (std::size_t t = 0; t < choice.types.size(); ++t) {
      const Units& units =
          units_of(choice.types[t], choice.degrees[t], choice.expert_parallel).units;
      const std::vector<int> shares = even_shares(static_cast<int>(units.size()), choice.pipelines);
      for (std::size_t u = 0; u < units.size(); ++u) {
        // Of unequal shares the larger ones of one type meet the smaller ones of the next.
        std::size_t chain = u % as_size(choice.pipelines);
        if (choice.compact) {
          std::size_t seen = 0, left = u;
          while (left >= as_size(shares[seen])) left -= as_size(shares[seen++]);
          chain = seen;
        }
        if (t % 2 == 1) chain = as_size(choice.pipelines) - 1 - chain;
        chains[chain].stages.push_back(stage_of(units[u], choice, draft));
      }
    }
    for (DraftPipeline& chain : chains) add(std::move(chain), choice, pipelines, draft);
  }

  /// One pipeline of each kind of a compact choice, appended to the draft, and how many there are.
  /// Empty: one would have more stages than there are layers.
  std::vector<int> append_kinds(const SetChoice& choice, Draft& draft) {
    const int count = choice.pipelines;
    std::vector<std::vector<int>> shares;
    std::set<int> firsts = {0};  // Of runs of pipelines with the same shares of each type.
    bool alike = true;
    int longest = 0;
    for (std::size_t t = 0; t < choice.types.size(); ++t) {
      const UnitsOfType& of = units_of(choice.types[t], choice.degrees[t], choice.expert_parallel);
      const int units = static_cast<int>(of.units.size());
      shares.push_back(even_shares(units, count));
      longest += units / count;
      alike = alike && of.alike;
      if (units % count > 0) firsts.insert(t % 2 == 0 ? units % count : count - units % count);
    }
    if (longest * draft.virtual_stages > costs_.layers()) return {};
    if (!alike) {
      for (int chain = 0; chain < count; ++chain) firsts.insert(chain);
    }
    std::vector<int> kinds;
    for (auto first = firsts.begin(); first != firsts.end(); ++first) {
      DraftPipeline chain;
      for (std::size_t t = 0; t < choice.types.size(); ++t) {
        const Units& units =
            units_of(choice.types[t], choice.degrees[t], choice.expert_parallel).units;
        const int place = t % 2 == 1 ? count - 1 - *first : *first;
        const int each = static_cast<int>(units.size()) / count;
        const int larger = static_cast<int>(units.size()) % count;
        const int begin = place * each + std::min(place, larger);
        for (int u = begin; u < begin + shares[t][as_size(place)]; ++u) {
          chain.stages.push_back(stage_of(units[as_size(u)], choice, draft));
        }
      }
      if (chain.stages.empty()) continue;
      add(std::move(chain), choice, count, draft);
      const auto next = std::next(first);
      kinds.push_back((next == firsts.end() ? count : *next) - *first);
    }
    return kinds;
  }

  /// Rate and fill of a choice; false where it does not fit.
  bool price(const Draft& base, SetChoice& choice) {
    Draft draft = base;
    ++examined_;
    const std::vector<int> kinds = append_kinds(choice, draft);
    choice.rate = choice.fill = 0;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      // States that ZeRO divides are divided among all pipelines of the plan; at least these.
      if (!balance_.layers(draft, k, replicas(choice))) return false;
      const DraftBalance::Chain chain = balance_.chain(draft, k, replicas(choice));
      choice.rate += kinds[k] * choice.micro_batch_size / chain.longest;
      choice.fill = std::max(choice.fill, chain.sum - chain.longest);
    }
    return !kinds.empty() && std::isfinite(choice.rate);
  }

  /// Numbers of groups that may share experts: 1, and powers of two where they are allowed.
  std::vector<int> expert_degrees(const Draft& base) const {
    std::vector<int> degrees = {1};
    if (!moves_.limits().experts || base.zero.shards_parameters()) return degrees;
    for (int degree = 2; degree <= kMostSharing; degree *= 2) {
      if (input_.workload.shape.experts % degree == 0) degrees.push_back(degree);
    }
    return degrees;
  }

  /// The best few choices for a set of types.
  const std::vector<SetChoice>& choices(const Draft& base, const std::vector<int>& types,
                                        int group_samples) {
    auto& kept = choices_[{base.zero.stage, group_samples, types}];
    if (!kept.empty()) return kept;
    std::vector<SetChoice> all;
    int shared = 1;  // Groups that share experts.
    // Types with much memory first: early stages hold more activations.
    std::vector<int> order = types;
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return costs_.stage_costs().capacity(a) > costs_.stage_costs().capacity(b);
    });
    std::vector<int> degrees(order.size(), 1);
    const auto visit = [&](const auto& self, std::size_t t) -> void {
      if (t < order.size()) {
        for (const int degree : costs_.degrees()) {
          if (units_of(order[t], degree, shared).units.empty() || !is_power_of_two(degree)) {
            continue;
          }
          degrees[t] = degree;
          self(self, t + 1);
        }
        return;
      }
      std::vector<int> counts;
      for (std::size_t i = 0; i < order.size(); ++i) {
        counts.push_back(static_cast<int>(units_of(order[i], degrees[i], shared).units.size()));
      }
      const int micro_batch_size = shared * group_samples;
      const int least = *std::max_element(counts.begin(), counts.end());
      std::set<int> tried;
      for (int depth = 1; depth <= least; depth = depth < 4 ? depth + 1 : depth * 5 / 4) {
        const int pipelines = std::max(1, least / depth);
        if (!tried.insert(pipelines).second) continue;
        if (static_cast<std::int64_t>(pipelines) * micro_batch_size > input_.job.global_batch) {
          continue;
        }
        for (const bool reverse : {false, true}) {
          if (reverse && order.size() == 1) continue;
          SetChoice choice{order, degrees, pipelines, true, micro_batch_size, shared, 0, 0};
          if (reverse) {
            std::reverse(choice.types.begin(), choice.types.end());
            std::reverse(choice.degrees.begin(), choice.degrees.end());
          }
          if (price(base, choice)) all.push_back(choice);
        }
      }
    };
    for (const int degree : expert_degrees(base)) {
      shared = degree;
      visit(visit, 0);
    }
    const double samples = static_cast<double>(input_.job.global_batch);
    // A set does its share of the batch: what it would do of all is in proportion to the rate.
    const auto time = [&](const SetChoice& c) { return samples / c.rate + c.fill; };
    std::stable_sort(all.begin(), all.end(),
                     [&](const SetChoice& a, const SetChoice& b) { return time(a) < time(b); });
    // Also by degree: the best of each, so that networks may decide.
    std::map<std::vector<int>, int> of_degrees;
    std::size_t count[2] = {0, 0};  // Without experts that are shared, and with.
    for (const SetChoice& choice : all) {
      std::vector<int> kind = choice.degrees;
      kind.push_back(choice.expert_parallel);
      const int seen = of_degrees[kind]++;
      std::size_t& own = count[choice.expert_parallel > 1];
      if (own < kKeptOfSet ? seen < 3 : seen < 1 && own < 3 * kKeptOfSet) {
        kept.push_back(choice);
        ++own;
      }
    }
    if (kept.empty()) kept.push_back({types, {}, 0, true, group_samples, 1, 0, 0});
    return kept;
  }

  void search(const Draft& base) {
    std::vector<std::vector<std::vector<int>>> divisions;
    if (types_.size() <= kMostSplitTypes) {
      std::vector<std::vector<int>> sets;
      divide(0, sets, divisions);
    } else {
      divisions.push_back({types_});
      divisions.emplace_back();
      for (const int type : types_) divisions.back().push_back({type});
    }
    struct Combination {
      double time;
      std::vector<const SetChoice*> sets;
    };
    std::vector<Combination> all;
    const std::int64_t largest =
        std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch);
    for (int size = 1; size <= largest; size *= 2) {
      if (input_.job.global_batch % size != 0) break;
      for (const auto& division : divisions) {
        if (canceled(input_)) return;
        std::vector<const SetChoice*> taken;
        const auto visit = [&](const auto& self, std::size_t s) -> void {
          if (s < division.size()) {
            for (const SetChoice& choice : choices(base, division[s], size)) {
              if (choice.rate <= 0) continue;
              taken.push_back(&choice);
              self(self, s + 1);
              taken.pop_back();
            }
            return;
          }
          // All end together: sum over sets of (T - fill) rate = batch.
          double rate = 0, filled = static_cast<double>(input_.job.global_batch);
          for (const SetChoice* choice : taken) {
            rate += choice->rate;
            filled += choice->rate * choice->fill;
          }
          all.push_back({filled / rate, taken});
        };
        visit(visit, 0);
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Combination& a, const Combination& b) { return a.time < b.time; });
    const std::size_t most = std::clamp(
        kPricedDrafts * kDevicesOfAllSeeds / std::max<std::size_t>(1, input_.devices.size()),
        kFewestPriced, kPricedDrafts);
    // Fewer than all types are slower by these times, which do not see that links are shared: half
    // as many again, of each choice of types the best.
    std::map<std::pair<std::vector<int>, bool>, std::size_t> of_types;
    const std::size_t choices = (std::size_t{1} << std::min<std::size_t>(types_.size(), 8)) - 1;
    for (const Combination& combination : all) {
      if (canceled(input_)) return;
      std::vector<int> used;
      bool shared = false;  // Counted apart, so that they take no places of others.
      for (const SetChoice* set : combination.sets) {
        used.insert(used.end(), set->types.begin(), set->types.end());
        shared = shared || set->expert_parallel > 1;
      }
      std::sort(used.begin(), used.end());
      const bool every = used.size() == types_.size();
      const bool subsets = input_.devices.size() <= kMostForSubsets;
      const std::size_t few = subsets ? std::max<std::size_t>(1, most / 2 / choices) : 0;
      if (of_types[{used, shared}]++ >= (every ? most : few)) continue;
      for (const bool compact : {true, false}) offer(base, combination.sets, compact);
    }
  }

  void offer(const Draft& base, const std::vector<const SetChoice*>& sets, bool compact) {
    Draft draft = base;
    int pipelines = 0;
    for (const SetChoice* choice : sets) pipelines += choice->pipelines;
    for (const SetChoice* choice : sets) {
      SetChoice placed = *choice;
      placed.compact = compact;
      append(placed, pipelines, draft);
    }
    ++examined_;
    if (!moves_.settle(draft)) return;
    const double seconds = costs_.view(draft).seconds;
    if (seconds == kNever) return;
    found_.push_back({seconds, seconds * rate_(draft), "counts of GPU types", std::move(draft)});
  }

  const PlannerInput& input_;
  const DraftCosts& costs_;
  const DraftMoves& moves_;
  const std::function<double(const Draft&)>& rate_;
  DraftBalance balance_;
  std::int64_t& examined_;
  std::map<int, std::map<NodeId, std::vector<DeviceId>>> by_node_;
  std::vector<int> types_;
  std::map<std::tuple<int, int, int>, UnitsOfType> units_;  ///< By type, degree and groups.
  std::map<std::tuple<int, int, std::vector<int>>, std::vector<SetChoice>> choices_;
  std::vector<SeedDraft> found_;
  bool among_all_ = false;  ///< Types that are not in a choice have as many pipelines.
};

}  // namespace

std::vector<SeedDraft> own_seeds(const PlannerInput& input, const DraftCosts& costs,
                                 const DraftMoves& moves,
                                 const std::function<double(const Draft&)>& rate, std::size_t most,
                                 std::int64_t& examined) {
  return SeedSearch(input, costs, moves, rate, examined).run(most);
}

}  // namespace orrery::planners
