#include "planners/kit/kernighan_lin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// A pass ends after this many steps without a new best state.
constexpr int kPatience = 6;

}  // namespace

Refiner::Refiner(const WeightedGraph& graph, std::vector<PartLimit> limits,
                 std::vector<int> assignment)
    : graph_(graph),
      limits_(std::move(limits)),
      assignment_(std::move(assignment)),
      members_(limits_.size()),
      weight_(limits_.size(), 0.0),
      edges_(limits_.size() * as_size(graph.vertices), 0.0),
      lowest_edge_(graph.vertices, 0.0) {
  const std::size_t n = graph.vertices;
  double total = 0;
  for (std::size_t v = 0; v < n; ++v) {
    const std::size_t part = assignment_[v];
    members_[part].push_back(static_cast<int>(v));
    weight_[part] += graph.vertex_weight[v];
    total += graph.vertex_weight[v];
    const double* row = graph.row(static_cast<int>(v));
    double* edges = edges_.data() + part * n;
    for (std::size_t u = 0; u < n; ++u) edges[u] += row[u];
    lowest_edge_[v] = *std::min_element(row, row + n);
  }
  tolerance_ = std::pow(1e-9 * total, 2);
  for (std::size_t p = 0; p < limits_.size(); ++p) {
    ORRERY_CHECK(members_[p].size() >= as_size(limits_[p].min_vertices),
                 "part {} has {} of {} vertices", p, members_[p].size(), limits_[p].min_vertices);
  }
}

double Refiner::part_excess(int part, double weight) const {
  const double over = weight - limits_[part].capacity;
  return over > 0 && over * over > tolerance_ ? over * over : 0;
}

double Refiner::pair_excess(int a, double weight_a, int b, double weight_b) const {
  return part_excess(a, weight_a) + part_excess(b, weight_b);
}

double Refiner::excess() const {
  double sum = 0;
  for (std::size_t p = 0; p < limits_.size(); ++p) {
    sum += part_excess(static_cast<int>(p), weight_[p]);
  }
  return sum;
}

double Refiner::cut() const {
  double sum = 0;
  for (int u = 0; u < graph_.vertices; ++u) {
    const double* row = graph_.row(u);
    for (int v = 0; v < u; ++v) sum += assignment_[u] == assignment_[v] ? 0.0 : row[v];
  }
  return sum;
}

double Refiner::edges_to(int vertex, int part) const {
  return edges_[as_size(part) * as_size(graph_.vertices) + as_size(vertex)];
}

void Refiner::move(int vertex, int to) {
  const int from = assignment_[vertex];
  auto& members = members_[from];
  *std::find(members.begin(), members.end(), vertex) = members.back();
  members.pop_back();
  members_[to].push_back(vertex);
  weight_[from] -= graph_.vertex_weight[vertex];
  weight_[to] += graph_.vertex_weight[vertex];
  assignment_[vertex] = to;
  const std::size_t n = graph_.vertices;
  const double* row = graph_.row(vertex);
  double* lost = edges_.data() + as_size(from) * n;
  double* won = edges_.data() + as_size(to) * n;
  for (std::size_t u = 0; u < n; ++u) {
    lost[u] -= row[u];
    won[u] += row[u];
  }
}

void Refiner::rebalance() {
  for (int step = 0; step < 4 * graph_.vertices; ++step) {
    std::vector<std::pair<double, int>> heavy;
    for (int p = 0; p < static_cast<int>(limits_.size()); ++p) {
      const double over = part_excess(p, weight_[p]);
      if (over > 0) heavy.emplace_back(-over, p);
    }
    std::sort(heavy.begin(), heavy.end());
    const bool moved = std::any_of(heavy.begin(), heavy.end(), [this](const auto& part) {
      return rebalance_once(part.second);
    });
    if (!moved) return;
  }
}

bool Refiner::rebalance_once(int part) {
  double best = std::numeric_limits<double>::infinity();  // Cut lost per excess removed.
  int best_out = -1;
  int best_in = -1;
  int best_to = -1;
  const double heavy = weight_[part];
  const bool may_shrink = static_cast<int>(members_[part].size()) > limits_[part].min_vertices;
  for (int to = 0; to < static_cast<int>(limits_.size()); ++to) {
    if (to == part) continue;
    const double light = weight_[to];
    const double before = pair_excess(part, heavy, to, light);
    const auto consider = [&](int out, int in, double amount, double loss) {
      const double removed = before - pair_excess(part, heavy - amount, to, light + amount);
      if (removed <= std::max(tolerance_, 1e-9 * before)) return;
      // A gain counts the more the larger the step; a loss the less.
      const double score = loss > 0 ? loss / removed : loss * removed;
      if (score < best) {
        best = score;
        best_out = out;
        best_in = in;
        best_to = to;
      }
    };
    for (const int u : members_[part]) {
      const double loss_u = edges_to(u, part) - edges_to(u, to);
      const double weight_u = graph_.vertex_weight[u];
      if (may_shrink) consider(u, -1, weight_u, loss_u);
      for (const int v : members_[to]) {
        const double amount = weight_u - graph_.vertex_weight[v];
        if (amount <= 0) continue;
        consider(u, v, amount,
                 loss_u + edges_to(v, to) - edges_to(v, part) + 2 * graph_.edge(u, v));
      }
    }
  }
  if (best_out < 0) return false;
  move(best_out, best_to);
  if (best_in >= 0) move(best_in, part);
  return true;
}

/// Two parts side by side: side 0 is part a, side 1 is part b. Nothing is committed to the Refiner
/// before the pass ends.
struct Refiner::Pair {
  struct Exchange {
    int vertex[2] = {-1, -1};  ///< Leaves side 0 / side 1; -1 for none.
    double gain = -std::numeric_limits<double>::infinity();
  };

  Pair(const Refiner& refiner, int a, int b, bool may_overshoot)
      : r(refiner), part{a, b}, overshoot(may_overshoot) {
    for (const int side : {0, 1}) {
      weight[side] = r.weight_[part[side]];
      count[side] = static_cast<int>(r.members_[part[side]].size());
      for (const int v : r.members_[part[side]]) {
        const double gain = r.edges_to(v, part[1 - side]) - r.edges_to(v, part[side]);
        open[side].push_back({gain, v});
        scale = std::max(scale, std::abs(gain));
        heaviest = std::max(heaviest, r.graph_.vertex_weight[v]);
      }
    }
    start_excess = current_excess = r.pair_excess(a, weight[0], b, weight[1]);
  }

  /// `amount` goes from side 0 to side 1.
  bool allowed(double amount) const {
    const double after = r.pair_excess(part[0], weight[0] - amount, part[1], weight[1] + amount);
    if (after <= start_excess) return true;
    if (current_excess > start_excess) return after < current_excess;
    return overshoot && after <= start_excess + heaviest * heaviest;
  }

  Exchange best_exchange() {
    Exchange best;
    for (const int side : {0, 1}) {
      std::sort(open[side].begin(), open[side].end(), [](const auto& x, const auto& y) {
        return x.first > y.first || (x.first == y.first && x.second < y.second);
      });
      if (count[side] <= r.limits_[part[side]].min_vertices) continue;
      for (const auto& [gain, v] : open[side]) {
        if (gain <= best.gain) break;
        const double amount = r.graph_.vertex_weight[v];
        if (!allowed(side == 0 ? amount : -amount)) continue;
        best = Exchange{};
        best.vertex[side] = v;
        best.gain = gain;
        break;
      }
    }
    if (open[0].empty() || open[1].empty()) return best;
    for (const auto& [gain_u, u] : open[0]) {
      const double bonus = -2 * r.lowest_edge_[u];
      const double bound = gain_u + std::max(bonus, 0.0);
      const double* row = r.graph_.row(u);
      for (const auto& [gain_v, v] : open[1]) {
        if (bound + gain_v <= best.gain) break;
        const double gain = gain_u + gain_v - 2 * row[v];
        if (gain <= best.gain) continue;
        if (!allowed(r.graph_.vertex_weight[u] - r.graph_.vertex_weight[v])) continue;
        best.vertex[0] = u;
        best.vertex[1] = v;
        best.gain = gain;
      }
    }
    return best;
  }

  void apply(const Exchange& step) {
    for (const int side : {0, 1}) {
      const int moved = step.vertex[side];
      if (moved < 0) continue;
      const double amount = r.graph_.vertex_weight[moved];
      weight[side] -= amount;
      weight[1 - side] += amount;
      --count[side];
      ++count[1 - side];
      std::erase_if(open[side], [moved](const auto& entry) { return entry.second == moved; });
      const double* row = r.graph_.row(moved);
      for (auto& [gain, v] : open[side]) gain += 2 * row[v];
      for (auto& [gain, v] : open[1 - side]) gain -= 2 * row[v];
    }
    current_excess = r.pair_excess(part[0], weight[0], part[1], weight[1]);
  }

  const Refiner& r;
  int part[2];
  bool overshoot;
  double weight[2] = {0, 0};
  int count[2] = {0, 0};
  std::vector<std::pair<double, int>> open[2];  ///< (gain of moving across, vertex), not yet moved.
  double scale = 0;
  double heaviest = 0;
  double start_excess = 0;
  double current_excess = 0;
};

bool Refiner::improve_pair(int a, int b, bool overshoot) {
  Pair pair(*this, a, b, overshoot);
  const double rounding = 1e-9 * pair.scale;
  std::vector<Pair::Exchange> steps;
  std::size_t best_length = 0;
  double best_excess = pair.start_excess;
  double best_gain = 0;
  double gain = 0;
  while (static_cast<int>(steps.size() - best_length) < kPatience) {
    const Pair::Exchange step = pair.best_exchange();
    if (step.vertex[0] < 0 && step.vertex[1] < 0) break;
    pair.apply(step);
    steps.push_back(step);
    gain += step.gain;
    const bool lighter = pair.current_excess < best_excess;
    const bool equal = pair.current_excess <= best_excess;
    if (lighter || (equal && gain > best_gain + rounding)) {
      best_length = steps.size();
      best_excess = pair.current_excess;
      best_gain = gain;
    }
  }
  steps.resize(best_length);
  for (const Pair::Exchange& step : steps) {
    if (step.vertex[0] >= 0) move(step.vertex[0], b);
    if (step.vertex[1] >= 0) move(step.vertex[1], a);
  }
  return best_length > 0;
}

void Refiner::refine(int passes, Rng& rng) {
  const int parts = static_cast<int>(limits_.size());
  std::vector<std::pair<int, int>> pairs;
  for (int a = 0; a < parts; ++a) {
    for (int b = a + 1; b < parts; ++b) pairs.emplace_back(a, b);
  }
  std::vector<bool> changed(parts, true);
  for (int pass = 0; pass < passes; ++pass) {
    for (std::size_t i = pairs.size(); i > 1; --i) {
      std::swap(pairs[i - 1], pairs[static_cast<int>(rng.integer(0, static_cast<int>(i) - 1))]);
    }
    std::vector<bool> changing(parts, false);
    bool any = false;
    for (const auto& [a, b] : pairs) {
      if (!changed[a] && !changed[b] && !changing[a] && !changing[b]) continue;
      if (!improve_pair(a, b, false) && !improve_pair(a, b, true)) continue;
      changing[a] = changing[b] = true;
      any = true;
    }
    if (!any) return;
    changed = std::move(changing);
  }
}

}  // namespace orrery::planners
