/// A generated family of tiny planning problems, small enough for brute force: up to 6 GPUs of one
/// to three types on one to three nodes, up to 8 blocks.
#pragma once
#include <cstdint>
#include <memory>

#include "tests/planners/support.h"

namespace orrery::planners {

/// Problem `number` of the family; equal numbers give equal problems. Nodes have 1, 2 or 4 GPUs,
/// at least 2 GPUs in all; 2 to 6 layers between embedding and head; global batch 2 to 12. In about
/// half of the problems memory forbids some plans, in a few it forbids all. Tensor parallelism of
/// 1, 2 and 4 divides the model.
std::unique_ptr<World> tiny_world(std::uint64_t number);

}  // namespace orrery::planners
