#include "planners/galvatron/layers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// `a` is as good as `b` or better on every layer; of equal ones the first dominates.
bool dominates(const LayerChoices& choices, std::size_t a, std::size_t b) {
  if (choices.layout[a] != choices.layout[b]) return false;
  bool equal = true;
  for (std::size_t l = 0; l < choices.time.size(); ++l) {
    const double time = choices.time[l][a] - choices.time[l][b];
    const double memory = choices.memory[l][a] - choices.memory[l][b];
    if (time > 0 || memory > 0) return false;
    equal = equal && time == 0 && memory == 0;
  }
  return !equal || a < b;
}

class LayerProgram {
 public:
  explicit LayerProgram(const LayerChoices& choices)
      : choices_(choices), width_(as_size(choices.steps) + 1), layouts_(choices.change.size()) {
    for (std::size_t s = 0; s < choices.layout.size(); ++s) {
      bool beaten = false;
      for (std::size_t other = 0; other < choices.layout.size() && !beaten; ++other) {
        beaten = other != s && dominates(choices, other, s);
      }
      if (!beaten) kept_.push_back(static_cast<int>(s));
    }
    for (const std::vector<double>& memory : choices.memory) {
      std::vector<int>& need = need_.emplace_back();
      for (const int s : kept_) {
        need.push_back(memory_steps(memory[s], choices.budget, choices.steps));
      }
    }
    from_.resize(choices.time.size() * width_ * kept_.size());
  }

  std::optional<LayerAssignment> run();

 private:
  std::size_t cell(std::size_t used, std::size_t s) const { return used * kept_.size() + s; }
  int layout(std::size_t s) const { return choices_.layout[kept_[s]]; }
  void best_by_layout(std::size_t used);
  void step(int layer);

  const LayerChoices& choices_;
  std::size_t width_;
  std::size_t layouts_;
  std::vector<int> kept_;               // Strategies that may be best.
  std::vector<std::vector<int>> need_;  // [layers][kept] Steps of memory.
  std::vector<double> before_;          // [steps used, kept] Least time of the layers so far.
  std::vector<double> after_;
  std::vector<std::int16_t> from_;  // [layer, steps used, kept] Strategy of the layer before.
  std::vector<double> least_;       // [layouts] Of one number of steps.
  std::vector<std::int16_t> leader_;
};

void LayerProgram::best_by_layout(std::size_t used) {
  least_.assign(layouts_, kNever);
  leader_.assign(layouts_, -1);
  for (std::size_t s = 0; s < kept_.size(); ++s) {
    const std::size_t l = layout(s);
    if (before_[cell(used, s)] < least_[l]) {
      least_[l] = before_[cell(used, s)];
      leader_[l] = static_cast<std::int16_t>(s);
    }
  }
}

void LayerProgram::step(int layer) {
  after_.assign(width_ * kept_.size(), kNever);
  const std::vector<int>& need = need_[layer];
  for (std::size_t used = 0; used < width_; ++used) {
    best_by_layout(used);
    if (std::all_of(leader_.begin(), leader_.end(), [](auto l) { return l < 0; })) continue;
    for (std::size_t s = 0; s < kept_.size(); ++s) {
      const std::size_t total = used + as_size(need[s]);
      if (total >= width_) continue;
      double best = before_[cell(used, s)];
      auto from = static_cast<std::int16_t>(s);
      for (std::size_t l = 0; l < layouts_; ++l) {
        const double cost =
            least_[l] + choices_.any_change + choices_.moved[layer] * choices_.change[l][layout(s)];
        if (cost < best) {
          best = cost;
          from = leader_[l];
        }
      }
      const std::size_t target = cell(total, s);
      best += choices_.time[layer][kept_[s]];
      if (best < after_[target]) {
        after_[target] = best;
        from_[as_size(layer) * width_ * kept_.size() + target] = from;
      }
    }
  }
  before_.swap(after_);
}

std::optional<LayerAssignment> LayerProgram::run() {
  const int layers = static_cast<int>(choices_.time.size());
  before_.assign(width_ * kept_.size(), kNever);
  for (std::size_t s = 0; s < kept_.size(); ++s) {
    if (as_size(need_[0][s]) < width_) before_[cell(need_[0][s], s)] = choices_.time[0][kept_[s]];
  }
  for (int layer = 1; layer < layers; ++layer) step(layer);
  const auto best = std::min_element(before_.begin(), before_.end());
  if (best == before_.end() || *best == kNever) return std::nullopt;
  LayerAssignment result;
  result.time = *best;
  result.strategy.resize(layers);
  std::size_t place = best - before_.begin();
  for (int layer = layers - 1; layer >= 0; --layer) {
    const std::size_t s = place % kept_.size();
    result.strategy[layer] = kept_[s];
    if (layer == 0) break;
    const std::size_t used = place / kept_.size() - as_size(need_[layer][s]);
    const auto from = from_[as_size(layer) * width_ * kept_.size() + place];
    place = cell(used, from);
  }
  return result;
}

}  // namespace

int memory_steps(double memory, double budget, int steps) {
  if (budget <= 0) return steps + 1;
  const double share = memory / budget * steps;
  return share > steps ? steps + 1 : static_cast<int>(std::ceil(share - 1e-9));
}

double change_cost(const LayerChoices& choices, int layer, int from, int to) {
  if (from == to) return 0;
  return choices.any_change +
         choices.moved[layer] * choices.change[choices.layout[from]][choices.layout[to]];
}

std::optional<LayerAssignment> choose_strategies(const LayerChoices& choices) {
  if (choices.time.empty() || choices.layout.empty() || choices.budget <= 0) return std::nullopt;
  return LayerProgram(choices).run();
}

}  // namespace orrery::planners
