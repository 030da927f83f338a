/// A profile set of our own in the form of Metis's, and clusters for it: the numbers come from a
/// formula of +, - , * and / only, so that any program can write the same bits.
#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "tests/planners/support.h"

namespace orrery::planners {

/// 8 layers between embedding and head on A100 and T4, degrees and micro-batch sizes 1, 2, 4.
/// A layer takes `t4_speed` ms on a T4 where it takes 10 ms on an A100.
ir::Profile synthetic_profile(double t4_speed);

/// Nodes of (type, GPUs): 0 is an A100 (40 GiB, 46 GB/s inside, 10 GB/s outside), 1 a T4 (16 GiB,
/// 12 and 5 GB/s). The model has the profile's number of layers.
std::unique_ptr<World> synthetic_world(const std::vector<std::pair<int, int>>& nodes,
                                       std::int64_t batch, double t4_speed);

}  // namespace orrery::planners
