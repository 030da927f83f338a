#include "planners/kit/integers.h"

#include <bit>
#include <cstddef>

#include "models/base/check.h"

namespace orrery::planners {

std::vector<std::int64_t> divisors(std::int64_t n) {
  ORRERY_CHECK(n >= 1, "divisors of {}", n);
  std::vector<std::int64_t> low;
  std::vector<std::int64_t> high;
  for (std::int64_t d = 1; d <= n / d; ++d) {
    if (n % d != 0) continue;
    low.push_back(d);
    if (d != n / d) high.push_back(n / d);
  }
  low.insert(low.end(), high.rbegin(), high.rend());
  return low;
}

std::vector<int> powers_of_two(int limit) {
  std::vector<int> result;
  for (std::int64_t p = 1; p <= limit; p *= 2) result.push_back(static_cast<int>(p));
  return result;
}

bool is_power_of_two(std::int64_t n) {
  return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n));
}

std::int64_t floor_power_of_two(std::int64_t n) {
  ORRERY_CHECK(n >= 1, "floor_power_of_two of {}", n);
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(n)));
}

std::vector<int> even_shares(int total, int parts) {
  std::vector<int> shares(parts, total / parts);
  for (int i = 0; i < total % parts; ++i) ++shares[i];
  return shares;
}

namespace {

bool compose(int left, int position, int minimum, std::vector<int>& sequence,
             const SequenceVisitor& visit) {
  const int after = static_cast<int>(sequence.size()) - position - 1;
  if (after == 0) {
    sequence.back() = left;
    return visit(sequence);
  }
  for (int value = minimum; value <= left - after * minimum; ++value) {
    sequence[position] = value;
    if (!compose(left - value, position + 1, minimum, sequence, visit)) return false;
  }
  return true;
}

bool partition_from(int left, int position, std::size_t first_allowed,
                    const std::vector<int>& allowed, std::vector<int>& sequence,
                    const SequenceVisitor& visit) {
  const auto remaining = static_cast<std::int64_t>(sequence.size()) - position;
  if (remaining == 0) return left != 0 || visit(sequence);
  if (left > remaining * allowed.back()) return true;
  for (std::size_t i = first_allowed; i < allowed.size(); ++i) {
    if (remaining * allowed[i] > left) break;
    sequence[position] = allowed[i];
    if (!partition_from(left - allowed[i], position + 1, i, allowed, sequence, visit)) return false;
  }
  return true;
}

}  // namespace

bool for_each_composition(int total, int count, int minimum, const SequenceVisitor& visit) {
  ORRERY_CHECK(count >= 1, "{} terms", count);
  if (static_cast<std::int64_t>(count) * minimum > total) return true;
  std::vector<int> sequence(count);
  return compose(total, 0, minimum, sequence, visit);
}

bool for_each_partition(int total, int count, const std::vector<int>& allowed,
                        const SequenceVisitor& visit) {
  ORRERY_CHECK(count >= 1, "{} terms", count);
  if (allowed.empty()) return true;
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    ORRERY_CHECK(allowed[i] > (i == 0 ? 0 : allowed[i - 1]), "allowed[{}] is {}", i, allowed[i]);
  }
  std::vector<int> sequence(count);
  return partition_from(total, 0, 0, allowed, sequence, visit);
}

}  // namespace orrery::planners
