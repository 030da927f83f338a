#include "planners/recovery/oobleck/templates.h"

#include <algorithm>
#include <cstddef>

#include "models/base/ids.h"

namespace orrery::planners {
namespace {

/// Micro-batches that a pipeline gets through in `seconds`, at most `most`.
int done_in(const PipelineRate& rate, double seconds, int most) {
  if (rate.time(1) > seconds) return 0;
  if (rate.next <= 0 || rate.time(most) <= seconds) return most;
  int low = 1;  // Bisection: the times themselves are compared, no quotient is rounded.
  int high = most;
  while (low + 1 < high) {
    const int middle = low + (high - low) / 2;
    (rate.time(middle) <= seconds ? low : high) = middle;
  }
  return low;
}

/// Most micro-batches in a given time, by at least a given number of pipelines over given nodes.
class Knapsack {
 public:
  Knapsack(const std::vector<TemplateRate>& templates, int nodes, int pipelines, int micro_batches)
      : templates_(templates),
        nodes_(nodes),
        pipelines_(pipelines),
        micro_batches_(micro_batches),
        best_(cell(pipelines + 1, 0), kNone),
        last_(best_.size(), -1) {}

  bool enough(double seconds) {
    std::fill(best_.begin(), best_.end(), kNone);
    best_[cell(0, 0)] = 0;
    std::vector<int> done;
    for (const TemplateRate& t : templates_)
      done.push_back(done_in(t.rate, seconds, micro_batches_));
    for (int n = 0; n <= nodes_; ++n) {
      for (int k = 0; k <= pipelines_; ++k) {
        const std::int64_t have = best_[cell(k, n)];
        if (have < 0) continue;
        for (std::size_t t = 0; t < templates_.size(); ++t) {
          const int to = n + templates_[t].nodes;
          if (done[t] == 0 || to > nodes_) continue;
          const std::size_t next = cell(std::min(k + 1, pipelines_), to);
          if (have + done[t] <= best_[next]) continue;
          best_[next] = have + done[t];
          last_[next] = static_cast<int>(t) * 2 + (k + 1 > pipelines_ ? 1 : 0);
        }
      }
    }
    for (int n = 0; n <= nodes_; ++n) {
      if (best_[cell(pipelines_, n)] >= micro_batches_) return true;
    }
    return false;
  }

  /// After enough(): counts over the fewest nodes.
  std::vector<int> counts() const {
    int n = 0;
    while (best_[cell(pipelines_, n)] < micro_batches_) ++n;
    std::vector<int> counts(templates_.size(), 0);
    for (int k = pipelines_; n > 0;) {
      const int last = last_[cell(k, n)];
      ++counts[last / 2];
      n -= templates_[last / 2].nodes;
      if (last % 2 == 0) --k;
    }
    return counts;
  }

 private:
  static constexpr std::int64_t kNone = -1;
  std::size_t cell(int pipelines, int nodes) const {
    return as_size(pipelines) * as_size(nodes_ + 1) + nodes;
  }

  const std::vector<TemplateRate>& templates_;
  int nodes_;
  int pipelines_;
  int micro_batches_;
  std::vector<std::int64_t> best_;  // By pipelines (the last: that many or more), nodes.
  std::vector<int> last_;           // 2 x template, + 1 if it did not count.
};

/// Drops the slowest-to-start pipelines beyond one micro-batch each.
void drop_idle(const std::vector<TemplateRate>& templates, int micro_batches,
               std::vector<int>& counts) {
  int all = 0;
  for (const int count : counts) all += count;
  while (all > micro_batches) {
    std::size_t slowest = templates.size();
    for (std::size_t t = 0; t < templates.size(); ++t) {
      if (counts[t] == 0) continue;
      if (slowest == templates.size() || templates[t].rate.first > templates[slowest].rate.first) {
        slowest = t;
      }
    }
    --counts[slowest];
    --all;
  }
}

double slowest(const std::vector<PipelineRate>& rates, int micro_batches) {
  const std::vector<int> shares = split_batch(rates, micro_batches);
  double seconds = 0;
  for (std::size_t p = 0; p < shares.size(); ++p) {
    seconds = std::max(seconds, rates[p].time(shares[p]));
  }
  return seconds;
}

}  // namespace

std::optional<Instantiation> instantiate(const std::vector<TemplateRate>& templates, int nodes,
                                         int pipelines, int micro_batches) {
  if (templates.empty() || pipelines < 1 || micro_batches < pipelines) return std::nullopt;
  std::vector<double> times;
  for (const TemplateRate& t : templates) {
    for (int m = 1; m <= micro_batches; ++m) times.push_back(t.rate.time(m));
  }
  std::sort(times.begin(), times.end());
  times.erase(std::unique(times.begin(), times.end()), times.end());
  Knapsack knapsack(templates, nodes, pipelines, micro_batches);
  if (!knapsack.enough(times.back())) return std::nullopt;
  const auto least = std::partition_point(times.begin(), times.end(),
                                          [&](double t) { return !knapsack.enough(t); });
  knapsack.enough(*least);
  Instantiation result{knapsack.counts(), 0};
  drop_idle(templates, micro_batches, result.counts);
  std::vector<PipelineRate> rates;
  for (std::size_t t = 0; t < templates.size(); ++t) {
    rates.insert(rates.end(), result.counts[t], templates[t].rate);
  }
  result.seconds = slowest(rates, micro_batches);
  return result;
}

OobleckTemplates::OobleckTemplates(const UnitChains& chains, int nodes, int threshold,
                                   int micro_batch_size)
    : threshold_(threshold),
      micro_batches_(static_cast<int>(chains.input().job.global_batch / micro_batch_size)) {
  // More stages than layers: no cut. All widths are too narrow from there on.
  const int limit = std::min(nodes, chains.layers() * chains.widths().back() / chains.per_node());
  for (int n = 1; n <= limit; ++n) {
    if (fewest_ > 0 && n > nodes - threshold * fewest_) break;
    const Chain* chain = best(chains, n, micro_batch_size);
    if (fewest_ == 0) {
      if (chain == nullptr) continue;
      fewest_ = n;
      if (std::int64_t{threshold + 1} * n > nodes) return;
    }
    chains_of_.push_back(chain);
    if (chain != nullptr) rates_.push_back({n, chain->rate()});
  }
}

const Chain* OobleckTemplates::best(const UnitChains& chains, int nodes,
                                    int micro_batch_size) const {
  const Chain* best = nullptr;
  const int gpus = nodes * chains.per_node();
  for (const int width : chains.widths()) {
    const Chain* chain =
        chains.chain({gpus / width, width, micro_batch_size, chains.per_node() / width});
    if (chain == nullptr) continue;
    if (best == nullptr || chain->rate().time(4 * gpus) < best->rate().time(4 * gpus)) best = chain;
  }
  return best;
}

const Chain* OobleckTemplates::at(int nodes) const {
  const int index = nodes - fewest_;
  if (index < 0 || index >= static_cast<int>(chains_of_.size())) return nullptr;
  return chains_of_[index];
}

std::vector<int> OobleckTemplates::sizes(int nodes) const {
  std::vector<int> result;
  if (empty()) return result;
  for (int pipelines = std::min(threshold_ + 1, nodes / fewest_); pipelines > 0; --pipelines) {
    const auto found = instantiate(rates_, nodes, pipelines, micro_batches_);
    if (!found) continue;
    for (std::size_t t = rates_.size(); t-- > 0;) {
      result.insert(result.end(), found->counts[t], rates_[t].nodes);
    }
    break;
  }
  return result;
}

double OobleckTemplates::seconds(const std::vector<int>& sizes) const {
  std::vector<PipelineRate> rates;
  for (const int size : sizes) rates.push_back(at(size)->rate());
  return slowest(rates, micro_batches_);
}

}  // namespace orrery::planners
