/// How multiprocessors are shared out to parts of a GPU. Needs no CUDA. Private to executor/cuda.
#pragma once
#include <vector>

namespace orrery::executor {

/// How many groups of `unit` each count takes; throws std::runtime_error when there are only
/// `groups`.
std::vector<int> groups_for(const std::vector<int>& counts, int unit, int groups);

}  // namespace orrery::executor
