#include "planners/recovery/kit/stage_cut.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <queue>
#include <utility>

#include "models/base/ids.h"

namespace orrery::planners {
namespace {

constexpr double kUnreachable = std::numeric_limits<double>::infinity();

/// Least sums under a bound on the slowest stage, and the cuts that have them.
class CutTable {
 public:
  CutTable(int layers, int stages, const StageSeconds& seconds)
      : layers_(layers),
        stages_(stages),
        times_(index(stages, 0, 0), kUnreachable),
        before_(cell(stages + 1, 0)),
        after_(before_.size()) {
    for (int s = 0; s < stages; ++s) {
      // Each stage before and after needs a layer.
      for (int first = s; first + stages - s <= layers; ++first) {
        for (int n = 1; first + n + stages - s - 1 <= layers; ++n) {
          if (const std::optional<double> t = seconds(s, first, n)) {
            times_[index(s, first, n)] = *t;
            values_.push_back(*t);
          }
        }
      }
    }
    std::sort(values_.begin(), values_.end());
    values_.erase(std::unique(values_.begin(), values_.end()), values_.end());
  }

  /// Times of single stages, ascending, each once.
  const std::vector<double>& values() const { return values_; }
  double time(int stage, int first, int n) const { return times_[index(stage, first, n)]; }

  /// Fills both tables. Stages up to `cap`; those after the slowest one stay below it if `strict`.
  void fill(double cap, bool strict) {
    cap_ = cap;
    strict_ = strict;
    std::fill(before_.begin(), before_.end(), kUnreachable);
    std::fill(after_.begin(), after_.end(), kUnreachable);
    before_[cell(0, 0)] = 0;
    after_[cell(stages_, layers_)] = 0;
    for (int s = 0; s < stages_; ++s) {
      each(s, [&](int first, int n, double t) {
        if (t > cap_) return;
        double& sum = before_[cell(s + 1, first + n)];
        sum = std::min(sum, before_[cell(s, first)] + t);
      });
    }
    for (int s = stages_ - 1; s >= 0; --s) {
      each(s, [&](int first, int n, double t) {
        if (strict_ ? t >= cap_ : t > cap_) return;
        double& sum = after_[cell(s, first)];
        sum = std::min(sum, after_[cell(s + 1, first + n)] + t);
      });
    }
  }
  /// Least sum of the first `stages` stages over the first `layers` layers.
  double before(int stages, int layers) const { return before_[cell(stages, layers)]; }
  /// Least sum of the stages from `stage` on, over the layers from `first` on.
  double after(int stage, int first) const { return after_[cell(stage, first)]; }

  template <class Visit>
  void each(int stage, const Visit& visit) const {
    for (int first = stage; first + stages_ - stage <= layers_; ++first) {
      for (int n = 1; first + n + stages_ - stage - 1 <= layers_; ++n) {
        const double t = time(stage, first, n);
        if (t < kUnreachable) visit(first, n, t);
      }
    }
  }

  /// Layers of the stages before `stage`, which begins at `first`, appended in order.
  void trace_before(int stage, int first, std::vector<int>& out) const {
    std::vector<int> reversed;
    while (stage > 0) {
      --stage;
      for (int n = 1; n <= first; ++n) {
        const double t = time(stage, first - n, n);
        if (t > cap_ || before(stage, first - n) + t > before(stage + 1, first)) continue;
        reversed.push_back(n);
        first -= n;
        break;
      }
    }
    out.insert(out.end(), reversed.rbegin(), reversed.rend());
  }
  void trace_after(int stage, int first, std::vector<int>& out) const {
    for (; stage < stages_; ++stage) {
      for (int n = 1; first + n <= layers_; ++n) {
        const double t = time(stage, first, n);
        if ((strict_ ? t >= cap_ : t > cap_) ||
            after(stage + 1, first + n) + t > after(stage, first)) {
          continue;
        }
        out.push_back(n);
        first += n;
        break;
      }
    }
  }

 private:
  std::size_t index(int stage, int first, int n) const {
    const std::size_t rows = layers_ + 1;
    return (as_size(stage) * rows + first) * rows + n;
  }
  std::size_t cell(int stage, int layer) const {
    return as_size(stage) * as_size(layers_ + 1) + layer;
  }

  int layers_;
  int stages_;
  double cap_ = 0;
  bool strict_ = false;
  std::vector<double> times_;  // By stage, first layer, layers.
  std::vector<double> values_;
  std::vector<double> before_;  // By stages, layers.
  std::vector<double> after_;   // By stage, first layer.
};

/// Position in values() of the least cap under which there is a cut; its size: none.
std::size_t least_cap(CutTable& table, int layers, int stages) {
  const std::vector<double>& values = table.values();
  std::size_t low = 0;
  std::size_t high = values.size();
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    table.fill(values[middle], false);
    if (table.before(stages, layers) < kUnreachable) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

/// Looks at the cuts whose slowest stage takes exactly `cap`.
void improve(CutTable& table, double cap, int stages, int micro_batches, CutCriterion criterion,
             StageCut& best) {
  const bool oobleck = criterion == CutCriterion::oobleck;
  table.fill(cap, oobleck);
  int stage = -1;
  int from = 0;
  int count = 0;
  for (int s = 0; s < stages; ++s) {
    table.each(s, [&](int first, int n, double t) {
      if (t != cap) return;
      const double after = table.after(s + 1, first + n);
      const double sum = table.before(s, first) + t + after;
      const double value = oobleck ? sum + (2 * stages + s + 1) * cap + cap + after
                                   : sum + (micro_batches - 1) * cap;
      if (value >= best.value) return;
      best.value = value;
      stage = s;
      from = first;
      count = n;
    });
  }
  if (stage < 0) return;
  best.layers.clear();
  table.trace_before(stage, from, best.layers);
  best.layers.push_back(count);
  table.trace_after(stage + 1, from + count, best.layers);
}

}  // namespace

std::optional<StageCut> best_cut(int layers, int stages, int micro_batches, CutCriterion criterion,
                                 const StageSeconds& seconds) {
  if (stages < 1 || layers < stages) return std::nullopt;
  CutTable table(layers, stages, seconds);
  const std::size_t first = least_cap(table, layers, stages);
  if (first == table.values().size()) return std::nullopt;
  table.fill(kUnreachable, false);
  const double least = table.before(stages, layers);
  const double per_cap = criterion == CutCriterion::oobleck ? 2 * stages + 2 : micro_batches - 1;
  StageCut best{{}, kUnreachable};
  for (std::size_t c = first; c < table.values().size(); ++c) {
    const double cap = table.values()[c];
    if (least + per_cap * cap >= best.value) break;
    improve(table, cap, stages, micro_batches, criterion, best);
  }
  return best;
}

std::vector<int> split_batch(const std::vector<PipelineRate>& pipelines, int total) {
  if (pipelines.empty() || total < static_cast<int>(pipelines.size())) return {};
  std::vector<int> result(pipelines.size(), 1);
  using Next = std::pair<double, std::size_t>;  // When it would end with one more; pipeline.
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  for (std::size_t p = 0; p < pipelines.size(); ++p) queue.push({pipelines[p].time(2), p});
  for (int left = total - static_cast<int>(pipelines.size()); left > 0; --left) {
    const std::size_t p = queue.top().second;
    queue.pop();
    queue.push({pipelines[p].time(++result[p] + 1), p});
  }
  return result;
}

}  // namespace orrery::planners
