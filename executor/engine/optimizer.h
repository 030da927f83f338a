/// The optimizer's step over what a rank updates. Private to executor/engine.
#pragma once
#include <vector>

#include "executor/compute/backend.h"
#include "executor/model/shard.h"
#include "models/base/ids.h"
#include "models/ir/program.h"

namespace orrery::executor {

/// Turns the gradients of all units that this rank updates into new weights, in the order of blocks
/// and parameters; returns when the back end has done it. SGD takes the learning rate of `adam`.
void update_weights(ModelShard& shard, const std::vector<BlockId>& blocks, ir::Optimizer optimizer,
                    const AdamStep& adam);

}  // namespace orrery::executor
