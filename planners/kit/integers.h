/// Numbers that searches work with: divisors, powers of two, ordered and unordered ways to write a
/// number as a sum.
#pragma once
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace orrery::planners {

/// The time or cost of what is impossible.
inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// All divisors of n >= 1, ascending. O(sqrt(n)).
std::vector<std::int64_t> divisors(std::int64_t n);

/// 1, 2, 4, ... up to and including `limit`; empty when limit < 1.
std::vector<int> powers_of_two(int limit);

bool is_power_of_two(std::int64_t n);

/// The largest power of two that is at most n >= 1.
std::int64_t floor_power_of_two(std::int64_t n);

/// `total` in `parts` >= 1 shares that differ by at most one, larger ones first.
std::vector<int> even_shares(int total, int parts);

/// Called with each sequence; returns false to stop the enumeration.
using SequenceVisitor = std::function<bool(const std::vector<int>&)>;

/// All ordered ways to write `total` as a sum of `count` integers >= `minimum`, in lexicographic
/// order. There are C(total - count * minimum + count - 1, count - 1) of them.
/// Returns false when the visitor stopped it.
bool for_each_composition(int total, int count, int minimum, const SequenceVisitor& visit);

/// All ways to write `total` as a non-decreasing sum of `count` of the values `allowed` (ascending,
/// positive, distinct; each may repeat), in lexicographic order. With powers of two these are the
/// device groups of Metis (ATC 2024), section 4.1. Returns false when the visitor stopped it.
bool for_each_partition(int total, int count, const std::vector<int>& allowed,
                        const SequenceVisitor& visit);

}  // namespace orrery::planners
