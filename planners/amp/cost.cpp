#include "planners/amp/cost.h"

#include <algorithm>
#include <numeric>

#include "models/base/check.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Relative size of differences that are rounding.
constexpr double kAmpRounding = 1e-12;

/// Cuts of least cost where no stage is longer than a limit.
class CutProgram {
 public:
  explicit CutProgram(const AmpChain& chain)
      : chain_(chain),
        prefix_(amp_prefix_sums(chain.time)),
        rounding_(kAmpRounding * prefix_.back()) {}

  std::vector<double> limits() const { return amp_range_sums(prefix_, rounding_); }

  /// Stages that a greedy filling needs; more than all when an item is longer than the limit.
  int stages_needed(double limit) const {
    int stages = 1;
    int first = 0;
    for (int i = 0; i < chain_.items(); ++i) {
      if (chain_.time[i] > limit + rounding_) return chain_.stages() + 1;
      if (prefix_[i + 1] - prefix_[first] > limit + rounding_) {
        ++stages;
        first = i;
      }
    }
    return stages;
  }

  std::optional<std::vector<int>> solve(double limit) const;

 private:
  struct State {
    double cuts = kNever;
    double squares = kNever;  // Of stage times: breaks ties.
    int from = -1;
  };
  bool better(const State& a, const State& b) const {
    if (b.cuts == kNever) return a.cuts < kNever;
    if (a.cuts < b.cuts - rounding_) return true;
    return a.cuts <= b.cuts + rounding_ && a.squares < b.squares * (1 - kAmpRounding);
  }

  const AmpChain& chain_;
  std::vector<double> prefix_;
  double rounding_;
};

std::optional<std::vector<int>> CutProgram::solve(double limit) const {
  const int n = chain_.items();
  const int stages = chain_.stages();
  // [stage][items before the end of the stage]
  std::vector<std::vector<State>> table(stages, std::vector<State>(n + 1));
  for (int s = 0; s < stages; ++s) {
    for (int end = s + 1; end <= n - (stages - 1 - s); ++end) {
      State& best = table[s][end];
      for (int begin = end - 1; begin >= s; --begin) {
        const double time = prefix_[end] - prefix_[begin];
        if (time > limit + rounding_) break;
        if (s == 0 && begin > 0) continue;
        const State before = s == 0 ? State{0, 0, 0} : table[s - 1][begin];
        if (before.cuts == kNever) continue;
        const double cut = s == 0 ? 0 : chain_.cut[s - 1][begin - 1];
        const State here{before.cuts + cut, before.squares + time * time, begin};
        if (better(here, best)) best = here;
      }
    }
  }
  if (table[stages - 1][n].cuts == kNever) return std::nullopt;
  std::vector<int> boundaries(stages + 1, n);
  for (int s = stages - 1; s >= 0; --s) {
    boundaries[s] = table[s][boundaries[s + 1]].from;
  }
  return boundaries;
}

}  // namespace

std::vector<double> amp_prefix_sums(const std::vector<double>& time) {
  std::vector<double> sums(time.size() + 1, 0);
  std::partial_sum(time.begin(), time.end(), sums.begin() + 1);
  return sums;
}

std::vector<double> amp_range_sums(const std::vector<double>& prefix, double tolerance) {
  std::vector<double> sums;
  for (std::size_t i = 0; i < prefix.size(); ++i) {
    for (std::size_t j = i + 1; j < prefix.size(); ++j) sums.push_back(prefix[j] - prefix[i]);
  }
  std::sort(sums.begin(), sums.end());
  std::vector<double> distinct;
  for (const double sum : sums) {
    if (distinct.empty() || sum > distinct.back() + tolerance) distinct.push_back(sum);
  }
  return distinct;
}

double amp_pipeline_cost(const AmpChain& chain, const std::vector<int>& boundaries) {
  double total = 0;
  double longest = 0;
  for (int s = 0; s < chain.stages(); ++s) {
    double stage = 0;
    for (int i = boundaries[s]; i < boundaries[s + 1]; ++i) stage += chain.time[i];
    total += stage;
    longest = std::max(longest, stage);
    if (s > 0) total += chain.cut[s - 1][boundaries[s] - 1];
  }
  return (chain.micro_batches - 1) * longest + total;
}

std::optional<ChainSplit> amp_split(const AmpChain& chain) {
  if (chain.items() < chain.stages()) return std::nullopt;
  const CutProgram program(chain);
  const std::vector<double> limits = program.limits();
  auto limit = std::partition_point(limits.begin(), limits.end(), [&](double l) {
    return program.stages_needed(l) > chain.stages();
  });
  double least_cuts = 0;
  for (const std::vector<double>& cut : chain.cut) {
    least_cuts += *std::min_element(cut.begin(), cut.end());
  }
  const double work = std::accumulate(chain.time.begin(), chain.time.end(), 0.0);
  std::optional<ChainSplit> best;
  for (; limit != limits.end(); ++limit) {
    const double bound = (chain.micro_batches - 1) * *limit + work + least_cuts;
    if (best && bound >= best->cost * (1 - kAmpRounding)) break;
    const auto boundaries = program.solve(*limit);
    ORRERY_CHECK(boundaries.has_value(), "no split under a limit of {} s", *limit);
    const double cost = amp_pipeline_cost(chain, *boundaries);
    if (!best || cost < best->cost * (1 - kAmpRounding)) best = ChainSplit{*boundaries, cost};
  }
  return best;
}

double amp_ring(const std::vector<double>& bandwidth, double bytes, bool last_link_only) {
  if (bandwidth.size() < 2) return 0;
  const double members = static_cast<double>(bandwidth.size());
  const double slowest =
      last_link_only ? bandwidth.back() : *std::min_element(bandwidth.begin(), bandwidth.end());
  return 2 * (members - 1) / members * bytes / slowest;
}

}  // namespace orrery::planners
