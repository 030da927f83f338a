#include "planners/amp/published.h"

#include <algorithm>

#include "models/base/ids.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// The public code's program: from the top down, with results remembered.
class PublishedProgram {
 public:
  explicit PublishedProgram(const AmpChain& chain)
      : chain_(chain),
        prefix_(amp_prefix_sums(chain.time)),
        possible_(amp_range_sums(prefix_, 1e-9 * prefix_.back())) {
    possible_.insert(possible_.begin(), 0.0);
    memory_.resize(as_size(chain.stages()) * as_size(chain.items()) * possible_.size());
  }

  std::vector<int> run() {
    int end = chain_.items() - 1;
    std::size_t longest = 0;
    std::vector<int> boundaries(chain_.stages() + 1, 0);
    boundaries.back() = chain_.items();
    for (int cuts = chain_.stages() - 1; cuts > 0; --cuts) {
      const int cut = best(end, cuts, longest).cut;
      boundaries[cuts] = cut + 1;
      longest = std::max(longest, index(sum(cut + 1, end)));
      end = cut;
    }
    return boundaries;
  }

 private:
  struct State {
    double cost = kNever;
    int cut = -1;
    bool known = false;
  };
  double sum(int first, int last) const { return prefix_[last + 1] - prefix_[first]; }
  /// Index of the state that represents the value.
  std::size_t index(double value) const {
    const auto place = std::upper_bound(possible_.begin(), possible_.end(), value);
    return place - possible_.begin() - 1;
  }

  State best(int end, int cuts, std::size_t longest) {
    State& place =
        memory_[(as_size(cuts) * as_size(chain_.items()) + as_size(end)) * possible_.size() +
                longest];
    if (place.known) return place;
    State state;
    state.known = true;
    const double rounds = chain_.micro_batches - 1;
    if (cuts == 0) {
      state.cost = rounds * std::max(0.0, sum(0, end) - possible_[longest]);
    } else {
      for (int cut = cuts - 1; cut < end; ++cut) {
        const double last = sum(cut + 1, end);
        const double before = best(cut, cuts - 1, std::max(longest, index(last))).cost +
                              rounds * std::max(0.0, last - possible_[longest]);
        if (before + chain_.cut[cuts - 1][cut] < state.cost) {
          state.cost = before;
          state.cut = cut;
        }
      }
    }
    return place = state;
  }

  const AmpChain& chain_;
  std::vector<double> prefix_;
  std::vector<double> possible_;
  std::vector<State> memory_;
};

}  // namespace

std::optional<ChainSplit> amp_split_published(const AmpChain& chain) {
  if (chain.items() < chain.stages()) return std::nullopt;
  std::vector<int> boundaries = PublishedProgram(chain).run();
  const double cost = amp_pipeline_cost(chain, boundaries);
  return ChainSplit{std::move(boundaries), cost};
}

std::vector<int> amp_split_even(int items, int stages) {
  std::vector<int> boundaries = {0};
  for (const int share : even_shares(items, stages)) {
    boundaries.push_back(boundaries.back() + share);
  }
  return boundaries;
}

}  // namespace orrery::planners
