/// What the authors' public code (Relaxed-System-Lab/FlashFlex, experimental/) does instead of what
/// the paper says, as far as it is more than a few lines. HexiscaleSettings choose between the two.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "models/base/units.h"
#include "planners/hexiscale/layers.h"
#include "planners/hexiscale/order.h"

namespace orrery::planners {

/// Tensor-parallel groups of a machine, by its number of GPUs; none for more than 8.
std::vector<std::vector<int>> public_lists(int gpus);

/// One path. For each start the lexicographically largest one of the tau paths, of these the one
/// with the lowest total bandwidth.
std::vector<std::vector<int>> last_path_public(const GroupLinks& links, int tau);

/// Layers in proportion to the stages' memory, rounded down, at least one each; the rest one by one
/// to the stages in the order of their memory, largest first. Nothing when a stage is above its
/// max_layers or there are more stages than layers.
std::optional<std::vector<int>> assign_layers_by_memory(std::span<const StageRate> stages,
                                                        std::span<const Bytes> memory, int layers);

}  // namespace orrery::planners
