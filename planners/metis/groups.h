/// The device groups that Metis (ATC 2024, 4.2.2 "Pruning combinations") tries for a number of
/// stages: sizes are powers of two above a lower bound, taken non-decreasing, then permuted after
/// the smallest ones have been merged into pairs. One after the other, so that millions of them
/// need no memory.
#pragma once
#include <list>
#include <vector>

namespace orrery::planners {

/// All permutations of a multiset, each once, in the order of prefix shifts that the public code of
/// Metis uses. [A. Williams, Loopless Generation of Multiset Permutations, SODA 2009, algorithm 1]
class MultisetPermutations {
 public:
  /// Not empty; values are compared by <.
  explicit MultisetPermutations(std::vector<std::vector<int>> items);
  /// The current permutation, as indices into sorted().
  const std::list<int>& order() const { return order_; }
  const std::vector<std::vector<int>>& sorted() const { return items_; }
  /// Moves to the next permutation; false after the last.
  bool next();

 private:
  using Place = std::list<int>::iterator;
  bool less(int a, int b) const;

  std::vector<std::vector<int>> items_;  ///< Non-decreasing.
  std::list<int> order_;
  Place i_, j_;
};

/// The groups of `sizes` (non-decreasing) that are permuted as wholes: pairs of the smallest size
/// are merged until at most `max_length` groups are left or no more can be merged.
std::vector<std::vector<int>> merge_smallest(const std::vector<int>& sizes, int max_length);

/// Sequences of group sizes, one size for each stage.
class DeviceGroups {
 public:
  /// Sizes are powers of two of at least variance * max(devices / stages, stages / devices), both
  /// divisions rounded down. [public code; the paper prints N/S * (1 - var), which is the same
  /// bound at its var = 0.5 but for equality]
  DeviceGroups(int stages, int devices, double variance, int max_permute_length);
  /// The next sequence, or false at the end.
  bool next(std::vector<int>& sizes);
  /// The same, leaving out the other permutations of the current sizes.
  bool next_leader(std::vector<int>& sizes);
  /// The sequence that was given last is the first permutation of its sizes.
  bool is_leader() const { return leader_; }
  /// What is permuted: groups of sizes, non-decreasing. After a sequence was given.
  const std::vector<std::vector<int>>& permuted() const { return permutations_.back().sorted(); }

 private:
  bool next_partition();
  bool place(std::size_t stage, int size, int rest);
  void write(std::vector<int>& sizes) const;

  int stages_;
  int devices_;
  int smallest_ = 0;  ///< 0: no size is allowed.
  int max_length_;
  bool started_ = false;
  bool leader_ = false;
  std::vector<int> partition_;
  std::vector<MultisetPermutations> permutations_;  ///< Of the current partition: none or one.
};

}  // namespace orrery::planners
