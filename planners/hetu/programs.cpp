#include "planners/hetu/programs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <tuple>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Throughputs that differ by less count as equal.
constexpr double kTie = 1e-12;

/// The largest l with y l <= limit, exact for limits that are such products themselves.
int layers_within(double limit, double layer_time, int most) {
  const double ratio = limit / layer_time;
  int layers = ratio >= most ? most : static_cast<int>(ratio);
  while (layers < most && layer_time * (layers + 1) <= limit) ++layers;
  while (layers > 0 && layer_time * layers > limit) --layers;
  return layers;
}

int room(double limit, std::span<const LayerStage> stages, std::vector<int>& caps) {
  int total = 0;
  for (std::size_t j = 0; j < stages.size(); ++j) {
    caps[j] = layers_within(limit, stages[j].layer_time, stages[j].most);
    if (caps[j] == 0) return -1;
    total += caps[j];
  }
  return total;
}

/// The smallest limit on y_j l_j under which the stages have room; nothing where none has.
std::optional<double> smallest_limit(int layers, std::span<const LayerStage> stages,
                                     std::vector<int>& caps) {
  std::vector<double> limits;
  for (const LayerStage& stage : stages) {
    for (int l = 1; l <= std::min(stage.most, layers); ++l) limits.push_back(stage.layer_time * l);
  }
  std::sort(limits.begin(), limits.end());
  if (limits.empty() || room(limits.back(), stages, caps) < layers) return std::nullopt;
  return *std::partition_point(limits.begin(), limits.end(),
                               [&](double limit) { return room(limit, stages, caps) < layers; });
}

/// Spreads `extra` layers over stages of equal speed, one at a time to the emptiest, of equals to
/// the last; returns what found no room.
int spread(int extra, const std::vector<std::size_t>& members, const std::vector<int>& caps,
           std::vector<int>& layers) {
  for (; extra > 0; --extra) {
    std::size_t emptiest = caps.size();
    for (const std::size_t j : members) {
      if (layers[j] == caps[j]) continue;
      if (emptiest == caps.size() || layers[j] <= layers[emptiest]) emptiest = j;
    }
    if (emptiest == caps.size()) break;
    ++layers[emptiest];
  }
  return extra;
}

}  // namespace

std::vector<int> split_rest(std::span<const double> slowness, std::span<const int> sizes, int full,
                            double alpha) {
  struct Best {
    double throughput = 0;
    int runs = 0;
    int size = 0;  // The first run's.
  };
  const std::size_t gpus = slowness.size();
  std::vector<Best> best(gpus + 1);  // [i] for the GPUs from i on.
  for (std::size_t i = gpus; i-- > 0;) {
    best[i].runs = -1;
    for (const int size : sizes) {
      const std::size_t end = i + as_size(size);
      if (end > gpus) break;
      const double slowest = *std::max_element(slowness.begin() + static_cast<std::ptrdiff_t>(i),
                                               slowness.begin() + static_cast<std::ptrdiff_t>(end));
      const double steps = std::log2(static_cast<double>(full) / size);
      const double throughput =
          best[end].throughput + 1 / (std::pow(alpha, std::round(steps)) * slowest);
      const int runs = best[end].runs + 1;
      const double gain = throughput - best[i].throughput;
      const bool tie = std::abs(gain) <= kTie * throughput;
      if (best[i].runs >= 0 && (tie ? runs > best[i].runs : gain < 0)) continue;
      best[i] = {throughput, runs, size};
    }
  }
  std::vector<int> result;
  for (std::size_t i = 0; i < gpus; i += result.back()) {
    result.push_back(best[i].size);
  }
  return result;
}

std::optional<std::vector<int>> assign_layers(int layers, std::span<const LayerStage> stages) {
  const int count = static_cast<int>(stages.size());
  if (count == 0 || count > layers) return std::nullopt;
  std::vector<int> caps(stages.size());
  const std::optional<double> limit = smallest_limit(layers, stages, caps);
  if (!limit) return std::nullopt;
  room(*limit, stages, caps);
  std::vector<std::size_t> order(stages.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return stages[a].layer_time < stages[b].layer_time;
  });
  std::vector<int> result(stages.size(), 1);
  int left = layers - count;
  for (std::size_t i = 0; i < order.size() && left > 0;) {
    std::vector<std::size_t> equals;
    const double time = stages[order[i]].layer_time;
    for (; i < order.size() && stages[order[i]].layer_time == time; ++i) equals.push_back(order[i]);
    left = spread(left, equals, caps, result);
  }
  return result;
}

std::optional<std::vector<int>> share_micro_batches(int total, std::span<const double> periods,
                                                    std::span<const int> minimum) {
  std::vector<int> result(minimum.begin(), minimum.end());
  if (std::accumulate(result.begin(), result.end(), std::int64_t{0}) > total || result.empty()) {
    return std::nullopt;
  }
  // No solution is faster than the continuous one, so each pipeline can take what it does by then.
  double rate = 0;
  for (const double period : periods) rate += 1 / period;
  std::vector<int> start = result;
  std::int64_t used = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    start[i] = std::max(start[i], static_cast<int>(total / rate / periods[i]));
    used += start[i];
  }
  if (used <= total) result = std::move(start);
  using Next = std::tuple<double, double, std::size_t>;  // End of one more, period, pipeline.
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  for (std::size_t i = 0; i < result.size(); ++i) {
    next.emplace(periods[i] * (result[i] + 1), periods[i], i);
  }
  for (int left = total - std::accumulate(result.begin(), result.end(), 0); left > 0; --left) {
    const std::size_t i = std::get<2>(next.top());
    next.pop();
    ++result[i];
    next.emplace(periods[i] * (result[i] + 1), periods[i], i);
  }
  return result;
}

namespace {

class Dealer {
 public:
  explicit Dealer(const DealQuery& query)
      : query_(query), left_(query.counts), attempts_left_(64LL * query.layouts) {}

  Deals run() {
    const int total = std::accumulate(left_.begin(), left_.end(), 0);
    Node* const root = query_.pipelines > 1 ? node(0, total) : nullptr;
    for (int second_choices = 0; !ended_; ++second_choices) {
      deeper_ = false;
      go(root, 0, total, second_choices);
      if (!deeper_) break;
    }
    if (ended_) result_.complete = false;
    return std::move(result_);
  }

 private:
  /// Candidates for one pipeline beyond which only the first found are ranked.
  static constexpr std::size_t kMostCandidates = 4096;

  /// The choices for one pipeline, by number, and where they lead, once somebody went there.
  struct Node {
    std::vector<int> choices;
    std::vector<Node*> next;
  };

  int after(int pipeline) const { return query_.pipelines - pipeline - 1; }
  int low(int pipeline, int total) const {
    return std::max(query_.fewest, total - query_.most * after(pipeline));
  }
  int high(int pipeline, int total) const {
    return std::min(query_.most, total - query_.fewest * after(pipeline));
  }

  /// Numbers equal groups of one pipeline alike: a deal of thousands has few different ones.
  int number_of(const std::vector<int>& taken) {
    const auto [place, fresh] = numbers_.try_emplace(taken, static_cast<int>(taken_.size()));
    if (fresh) taken_.push_back(taken);
    return place->second;
  }

  /// Of the pipeline, with what is left.
  Node* node(int pipeline, int total) {
    const auto [place, fresh] = nodes_.try_emplace({after(pipeline), left_});
    Node& made = place->second;  // Nodes of a map stay.
    if (fresh) {
      for (const std::vector<int>& taken :
           candidates(low(pipeline, total), high(pipeline, total), after(pipeline) + 1)) {
        made.choices.push_back(number_of(taken));
      }
      made.next.resize(made.choices.size(), nullptr);
    }
    return &made;
  }

  /// `here`: null for the last pipeline, which takes what is left.
  void go(Node* here, int pipeline, int total, int second_choices) {
    if (ended_) return;
    if (here == nullptr) {
      const bool fits = low(pipeline, total) <= total && total <= high(pipeline, total);
      if (second_choices == 0 && fits) leaf();
      return;
    }
    for (std::size_t i = 0; i < here->choices.size() && !ended_; ++i) {
      if (static_cast<int>(i) > second_choices) {
        deeper_ = true;
        return;
      }
      const int choice = here->choices[i];
      int groups = 0;
      for (std::size_t c = 0; c < left_.size(); ++c) {
        left_[c] -= taken_[choice][c];
        groups += taken_[choice][c];
      }
      ++chosen_[choice];
      Node*& next = here->next[i];
      if (next == nullptr && after(pipeline) > 1) next = node(pipeline + 1, total - groups);
      go(next, pipeline + 1, total - groups, second_choices - static_cast<int>(i));
      const auto chosen = chosen_.find(choice);
      if (--chosen->second == 0) chosen_.erase(chosen);
      for (std::size_t c = 0; c < left_.size(); ++c) left_[c] += taken_[choice][c];
    }
  }

  void leaf() {
    if (attempts_left_-- <= 0) {
      ended_ = true;
      return;
    }
    std::map<int, int> times = chosen_;
    ++times[number_of(left_)];
    if (!seen_.insert(times).second) return;
    if (static_cast<int>(result_.deals.size()) == query_.layouts) {
      ended_ = true;
      return;
    }
    Deal deal;
    for (const auto& [taken, count] : times) deal.insert(deal.end(), as_size(count), taken_[taken]);
    std::sort(deal.begin(), deal.end(), std::greater<>());
    result_.deals.push_back(std::move(deal));
  }

  /// Nearest to the even share first.
  std::vector<std::vector<int>> candidates(int low, int high, int pipelines) {
    double share = 0;
    for (std::size_t c = 0; c < left_.size(); ++c) share += left_[c] * query_.power[c] / pipelines;
    std::vector<std::vector<int>> all;
    std::vector<int> current(left_.size(), 0);
    collect(0, low, high, current, all);
    using Key = std::pair<double, std::vector<int>>;
    std::vector<Key> keyed;
    for (std::vector<int>& taken : all) {
      double power = 0, apart = 0;
      for (std::size_t c = 0; c < taken.size(); ++c) {
        power += taken[c] * query_.power[c];
        apart += query_.power[c] * std::abs(taken[c] - 1.0 * left_[c] / pipelines);
      }
      // Rounded, so that the order of additions does not decide.
      const double distance = std::round(1e9 * (std::abs(power - share) + apart / 2) / share);
      keyed.emplace_back(distance, std::move(taken));
    }
    std::sort(keyed.begin(), keyed.end(), [](const Key& a, const Key& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    });
    // A limit on the deals is reached long before later choices have their turn.
    const std::size_t kept = std::min(all.size(), 2 * as_size(query_.layouts) + 16);
    if (kept < all.size()) result_.complete = false;
    all.resize(kept);
    for (std::size_t i = 0; i < kept; ++i) all[i] = std::move(keyed[i].second);
    return all;
  }

  void collect(std::size_t c, int low, int high, std::vector<int>& current,
               std::vector<std::vector<int>>& all) {
    if (all.size() == kMostCandidates) {
      result_.complete = false;
      return;
    }
    if (c == left_.size()) {
      if (low <= 0) all.push_back(current);
      return;
    }
    for (int n = std::min(left_[c], high); n >= 0; --n) {
      current[c] = n;
      collect(c + 1, low - n, high - n, current, all);
    }
    current[c] = 0;
  }

  const DealQuery& query_;
  std::vector<int> left_;
  std::map<std::vector<int>, int> numbers_;
  std::vector<std::vector<int>> taken_;  ///< By number.
  std::map<int, int> chosen_;            ///< How often each.
  /// By pipelines after this one and groups left, which say the rest.
  std::map<std::pair<int, std::vector<int>>, Node> nodes_;
  std::set<std::map<int, int>> seen_;
  std::int64_t attempts_left_;
  bool ended_ = false;
  bool deeper_ = false;
  Deals result_;
};

}  // namespace

Deals deal_groups(const DealQuery& query) {
  ORRERY_CHECK(query.counts.size() == query.power.size(), "{} classes, {} powers",
               query.counts.size(), query.power.size());
  if (query.pipelines < 1 || query.counts.empty() || query.layouts < 1) return {};
  return Dealer(query).run();
}

}  // namespace orrery::planners
