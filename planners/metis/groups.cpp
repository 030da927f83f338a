#include "planners/metis/groups.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <numeric>
#include <utility>

#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

int total(const std::vector<int>& group) { return std::accumulate(group.begin(), group.end(), 0); }

/// `count` powers of two of at least `smallest` (a power of two) can add up to `sum`.
bool can_add_up(int sum, int count, int smallest) {
  if (sum % smallest != 0) return false;
  const int parts = sum / smallest;
  return std::popcount(static_cast<unsigned>(parts)) <= count && count <= parts;
}

}  // namespace

MultisetPermutations::MultisetPermutations(std::vector<std::vector<int>> items)
    : items_(std::move(items)) {
  std::sort(items_.begin(), items_.end());
  for (int k = 0; k < static_cast<int>(items_.size()); ++k) order_.push_front(k);
  j_ = std::prev(order_.end());
  i_ = order_.size() > 1 ? std::prev(j_) : j_;
}

bool MultisetPermutations::less(int a, int b) const { return items_[a] < items_[b]; }

bool MultisetPermutations::next() {
  const Place after_j = std::next(j_);
  if (after_j == order_.end() && !less(*j_, order_.front())) return false;
  const Place s = after_j != order_.end() && !less(*i_, *after_j) ? j_ : i_;
  const Place t = std::next(s);
  const int old_head = order_.front();
  order_.splice(order_.begin(), order_, t);
  if (less(*t, old_head)) i_ = t;
  j_ = std::next(i_);
  return true;
}

std::vector<std::vector<int>> merge_smallest(const std::vector<int>& sizes, int max_length) {
  std::vector<std::vector<int>> groups;
  for (const int size : sizes) groups.push_back({size});
  int excess = static_cast<int>(groups.size()) - max_length;
  while (excess > 0) {
    const int smallest = total(groups.front());
    const auto differs = std::find_if(groups.begin(), groups.end(),
                                      [&](const auto& group) { return group != groups.front(); });
    // The public code counts the first larger group too.
    const auto counted = differs - groups.begin() + (differs == groups.end() ? 0 : 1);
    excess = std::max(excess, static_cast<int>(counted / 2));
    std::vector<std::vector<int>> merged;
    for (std::size_t k = 0; k < groups.size(); k += 2) {
      if (excess <= static_cast<int>(k / 2)) {
        merged.insert(merged.end(), groups.begin() + static_cast<std::ptrdiff_t>(k), groups.end());
        break;
      }
      merged.push_back(groups[k]);
      if (k + 1 >= groups.size()) continue;
      if (total(groups[k]) == smallest && total(groups[k + 1]) == smallest) {
        merged.back().insert(merged.back().end(), groups[k + 1].begin(), groups[k + 1].end());
      } else {
        merged.push_back(groups[k + 1]);
      }
    }
    groups = std::move(merged);
    const int left = static_cast<int>(groups.size()) - max_length;
    if (left == excess) break;
    excess = left;
  }
  return groups;
}

DeviceGroups::DeviceGroups(int stages, int devices, double variance, int max_permute_length)
    : stages_(stages), devices_(devices), max_length_(max_permute_length) {
  const double bound = variance * std::max(devices / stages, stages / devices);
  for (const int size : powers_of_two(devices)) {
    if (size < bound) continue;
    smallest_ = size;
    break;
  }
}

/// Raises the size of the stage from `size` on until the later stages can take what is left.
bool DeviceGroups::place(std::size_t stage, int size, int rest) {
  const int later = stages_ - 1 - static_cast<int>(stage);
  for (; size <= rest; size *= 2) {
    if (later == 0 ? size != rest : !can_add_up(rest - size, later, size)) continue;
    partition_[stage] = size;
    return true;
  }
  return false;
}

bool DeviceGroups::next_partition() {
  if (smallest_ == 0) return false;
  std::size_t raised = 0;
  if (!std::exchange(started_, true)) {
    partition_.assign(stages_, 0);
    if (!place(0, smallest_, devices_)) return false;
  } else {
    // Raise the last stage that can be raised; those after it take the least that is possible.
    int rest = 0;
    for (raised = partition_.size(); raised-- > 0;) {
      rest += partition_[raised];
      if (place(raised, partition_[raised] * 2, rest)) break;
    }
    if (raised >= partition_.size()) return false;
  }
  int rest = devices_;
  for (std::size_t k = 0; k < partition_.size(); ++k) {
    if (k > raised) place(k, partition_[k - 1], rest);
    rest -= partition_[k];
  }
  return true;
}

void DeviceGroups::write(std::vector<int>& sizes) const {
  const MultisetPermutations& current = permutations_.back();
  sizes.clear();
  for (const int index : current.order()) {
    const std::vector<int>& group = current.sorted()[index];
    sizes.insert(sizes.end(), group.begin(), group.end());
  }
}

bool DeviceGroups::next_leader(std::vector<int>& sizes) {
  permutations_.clear();
  return next(sizes);
}

bool DeviceGroups::next(std::vector<int>& sizes) {
  leader_ = permutations_.empty() || !permutations_.back().next();
  if (leader_) {
    permutations_.clear();
    if (!next_partition()) return false;
    permutations_.emplace_back(merge_smallest(partition_, max_length_));
  }
  write(sizes);
  return true;
}

}  // namespace orrery::planners
