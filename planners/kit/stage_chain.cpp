#include "planners/kit/stage_chain.h"

#include <algorithm>
#include <limits>

#include "models/base/check.h"
#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

constexpr int kNone = std::numeric_limits<int>::max();

/// Cheapest first, and of those only steps that allow more load than all cheaper ones.
void keep_useful(std::vector<StageStep>& steps) {
  std::stable_sort(steps.begin(), steps.end(), [](const StageStep& a, const StageStep& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.most > b.most;
  });
  int most = 0;
  std::erase_if(steps, [&](const StageStep& step) {
    if (step.most <= most) return true;
    most = step.most;
    return false;
  });
}

double pipeline_time(const ChainPick& pick, int micro_batches) {
  return pick.sum + (micro_batches - 1) * pick.largest;
}

void finish(ChainPick& pick, const std::vector<StageChoice>& choices) {
  for (const StagePick& stage : pick.stages) {
    pick.sum += stage.cost;
    pick.largest = std::max(pick.largest, stage.cost);
    pick.devices += choices[stage.choice].devices;
  }
}

}  // namespace

StageChain::StageChain(int layers, std::vector<StageChoice> choices, int devices, int load,
                       const Steps& steps)
    : layers_(layers), choices_(std::move(choices)), devices_(devices), load_(load) {
  ORRERY_CHECK(layers > 0 && devices > 0 && load > 0, "{} layers, {} devices, load {}", layers,
               devices, load);
  offsets_.push_back(0);
  for (int first = 0; first < layers_; ++first) {
    for (int last = first; last < layers_; ++last) {
      for (int choice = 0; choice < std::ssize(choices_); ++choice) {
        std::vector<StageStep> own = steps(first, last, choice);
        keep_useful(own);
        for (const StageStep& step : own) costs_.push_back(step.cost);
        steps_.insert(steps_.end(), own.begin(), own.end());
        offsets_.push_back(steps_.size());
      }
    }
  }
  std::sort(costs_.begin(), costs_.end());
  costs_.erase(std::unique(costs_.begin(), costs_.end()), costs_.end());
}

std::size_t StageChain::range(int first, int last, int choice) const {
  const std::size_t n = layers_;
  const std::size_t i = first;
  const std::size_t pair = i * n - i * (i + 1) / 2 + last;
  return pair * choices_.size() + choice;
}

std::span<const StageStep> StageChain::steps(int first, int last, int choice) const {
  const std::size_t at = range(first, last, choice);
  return std::span(steps_).subspan(offsets_[at], offsets_[at + 1] - offsets_[at]);
}

const StageStep* StageChain::step(int first, int last, int choice, int load, double cap) const {
  for (const StageStep& step : steps(first, last, choice)) {
    if (step.cost > cap) return nullptr;
    if (step.most >= load) return &step;
  }
  return nullptr;
}

std::size_t StageChain::row(int layer, int load) const {
  return as_size(layer) * as_size(load_ + 1) + load;
}

/// Adds one stage before the chains that start after it.
void StageChain::extend(int first, int last, int choice, double cap) {
  const StageChoice& taken = choices_[choice];
  const std::size_t width = devices_ + 1;
  const std::size_t shift = taken.devices;
  if (taken.devices > devices_) return;
  int load = taken.degree;
  for (const StageStep& step : steps(first, last, choice)) {
    if (step.cost > cap) return;
    for (; load <= std::min(step.most, load_); ++load) {
      const std::size_t from = row(last + 1, load - taken.degree);
      if (used_[from] == 0) continue;
      const std::size_t to = row(first, load);
      used_[to] = 1;
      const double* source = table_.data() + from * width;
      double* target = table_.data() + to * width + shift;
      const std::size_t count = width - shift;
      for (std::size_t k = 0; k < count; ++k) {
        const double sum = source[k] + step.cost;
        target[k] = sum < target[k] ? sum : target[k];
      }
    }
  }
}

void StageChain::fill(double cap) {
  if (filled_cap_ && *filled_cap_ == cap) return;
  const auto rows = as_size(layers_ + 1) * as_size(load_ + 1);
  table_.assign(rows * as_size(devices_ + 1), kNever);
  used_.assign(rows, 0);
  table_[row(layers_, 0) * as_size(devices_ + 1)] = 0;
  used_[row(layers_, 0)] = 1;
  for (int first = layers_ - 1; first >= 0; --first) {
    for (int last = first; last < layers_; ++last) {
      for (int choice = 0; choice < std::ssize(choices_); ++choice) {
        extend(first, last, choice, cap);
      }
    }
  }
  filled_cap_ = cap;
}

int StageChain::most_devices(int unit) {
  fill(kNever);
  for (int devices = devices_ / unit * unit; devices > 0; devices -= unit) {
    for (int load = 1; load <= load_; ++load) {
      const std::size_t at = row(0, load) * as_size(devices_ + 1);
      if (table_[at + devices] < kNever) return devices;
    }
  }
  return 0;
}

std::optional<ChainPick> StageChain::cheapest(double cap, int devices) {
  fill(cap);
  const auto best = [&](int layer, int load, int count) {
    return table_[row(layer, load) * as_size(devices_ + 1) + count];
  };
  int load = 0;
  for (int l = 1; l <= load_; ++l) {
    if (best(0, l, devices) < (load == 0 ? kNever : best(0, load, devices))) load = l;
  }
  if (load == 0) return std::nullopt;
  ChainPick pick;
  int first = 0;
  int left = devices;
  // The step that gave an entry: the same sum, to the last bit.
  const auto take = [&] {
    for (int last = first; last < layers_; ++last) {
      for (int c = 0; c < std::ssize(choices_); ++c) {
        const StageChoice& choice = choices_[c];
        if (choice.degree > load || choice.devices > left) continue;
        const StageStep* by = step(first, last, c, load, cap);
        if (by == nullptr) continue;
        const double rest = best(last + 1, load - choice.degree, left - choice.devices);
        if (rest + by->cost != best(first, load, left)) continue;
        pick.stages.push_back({first, last, c, by->variant, by->cost});
        first = last + 1;
        load -= choice.degree;
        left -= choice.devices;
        return true;
      }
    }
    return false;
  };
  while (first < layers_) ORRERY_CHECK(take(), "no step leads to layer {}", first);
  finish(pick, choices_);
  return pick;
}

std::optional<ChainPick> StageChain::fewest_devices(double cap) const {
  const auto rows = as_size(layers_ + 1) * as_size(load_ + 1);
  struct From {
    int last = 0;
    int choice = 0;
  };
  std::vector<int> fewest(rows, kNone);
  std::vector<From> from(rows);
  fewest[row(layers_, 0)] = 0;
  for (int first = layers_ - 1; first >= 0; --first) {
    for (int last = first; last < layers_; ++last) {
      for (int c = 0; c < std::ssize(choices_); ++c) {
        const StageChoice& choice = choices_[c];
        int load = choice.degree;
        for (const StageStep& step : steps(first, last, c)) {
          if (step.cost > cap) break;
          for (; load <= std::min(step.most, load_); ++load) {
            const int rest = fewest[row(last + 1, load - choice.degree)];
            int& best = fewest[row(first, load)];
            if (rest == kNone || rest + choice.devices >= best) continue;
            best = rest + choice.devices;
            from[row(first, load)] = {last, c};
          }
        }
      }
    }
  }
  int load = 0;
  for (int l = 1; l <= load_; ++l) {
    if (fewest[row(0, l)] < (load == 0 ? kNone : fewest[row(0, load)])) load = l;
  }
  if (load == 0 || fewest[row(0, load)] > devices_) return std::nullopt;
  ChainPick pick;
  for (int first = 0; first < layers_;) {
    const From& by = from[row(first, load)];
    const StageStep* taken = step(first, by.last, by.choice, load, cap);
    ORRERY_CHECK(taken != nullptr, "no step for layers {} to {}", first, by.last);
    pick.stages.push_back({first, by.last, by.choice, taken->variant, taken->cost});
    load -= choices_[by.choice].degree;
    first = by.last + 1;
  }
  finish(pick, choices_);
  return pick;
}

namespace {

/// Alpa's search, one table at a time.
class PipelineTimeSearch {
 public:
  PipelineTimeSearch(StageChain& chain, int devices, int micro_batches, const Proceed& proceed,
                     const std::function<void(const ChainPick&)>& visit)
      : chain_(chain),
        devices_(devices),
        micro_batches_(micro_batches),
        proceed_(proceed),
        visit_(visit) {}

  ChainSearch run(double gap) {
    const std::optional<ChainPick> free = probe(kNever);
    if (!free || micro_batches_ == 1) return result_;
    const std::optional<double> least = least_cap(free->largest);
    if (!least) return result_;
    walk(*free, *least, gap);
    return result_;
  }

 private:
  /// The cheapest chain under the cap; counted and remembered.
  std::optional<ChainPick> probe(double cap) {
    if (!proceed_()) {
      result_.complete = false;
      return std::nullopt;
    }
    std::optional<ChainPick> pick = chain_.cheapest(cap, devices_);
    if (pick) {
      remember(*pick);
      if (!result_.best || time(*pick) < time(*result_.best)) result_.best = pick;
    }
    return pick;
  }

  void remember(const ChainPick& pick) {
    const auto same = [&](const ChainPick& other) { return other.stages == pick.stages; };
    if (std::any_of(met_.begin(), met_.end(), same)) return;
    met_.push_back(pick);
    visit_(pick);
  }

  double time(const ChainPick& pick) const { return pipeline_time(pick, micro_batches_); }

  /// The least cap under which there is a chain; nothing when the search was ended.
  std::optional<double> least_cap(double known) {
    const std::vector<double>& costs = chain_.costs();
    auto low = costs.begin();
    auto high = std::lower_bound(costs.begin(), costs.end(), known);
    while (low < high) {
      const auto middle = low + (high - low) / 2;
      const std::optional<ChainPick> pick = probe(*middle);
      if (!result_.complete) return std::nullopt;
      if (pick) {
        high = std::lower_bound(costs.begin(), costs.end(), pick->largest);
      } else {
        low = middle + 1;
      }
    }
    return *high;
  }

  /// Under a tighter cap the sum can only grow: a chain that wins has its largest cost below
  /// (best - sum) / (B - 1).
  void walk(ChainPick last, double least, double gap) {
    const std::vector<double>& costs = chain_.costs();
    while (true) {
      const double limit = (time(*result_.best) - last.sum) / (micro_batches_ - 1);
      auto next = std::lower_bound(costs.begin(), costs.end(), last.largest);
      next = std::min(
          next, std::upper_bound(costs.begin(), costs.end(), std::min(limit, last.largest - gap)));
      if (next == costs.begin() || *(next - 1) < least) return;
      const std::optional<ChainPick> pick = probe(*(next - 1));
      if (!pick) return;
      last = *pick;
    }
  }

  StageChain& chain_;
  int devices_;
  int micro_batches_;
  const Proceed& proceed_;
  const std::function<void(const ChainPick&)>& visit_;
  std::vector<ChainPick> met_;
  ChainSearch result_;
};

}  // namespace

ChainSearch least_pipeline_time(StageChain& chain, int devices, int micro_batches, double gap,
                                const Proceed& proceed,
                                const std::function<void(const ChainPick&)>& visit) {
  return PipelineTimeSearch(chain, devices, micro_batches, proceed, visit).run(gap);
}

ChainSearch least_bottleneck(const StageChain& chain, const Proceed& proceed) {
  ChainSearch result;
  const std::vector<double>& costs = chain.costs();
  auto low = costs.begin();
  auto high = costs.end();  // Once there is a best: the least cap that is known to do.
  while (low < high) {
    const bool start = !result.best;
    const auto middle = start ? high - 1 : low + (high - low) / 2;
    if (!proceed()) {
      result.complete = false;
      return result;
    }
    std::optional<ChainPick> pick = chain.fewest_devices(*middle);
    if (pick) {
      high = std::lower_bound(costs.begin(), costs.end(), pick->largest);
      result.best = std::move(pick);
    } else if (start) {
      return result;
    } else {
      low = middle + 1;
    }
  }
  return result;
}

}  // namespace orrery::planners
