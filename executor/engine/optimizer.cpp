#include "executor/engine/optimizer.h"

namespace orrery::executor {
namespace {

void update_range(Backend& backend, const HeldParameter& held, const UnitRange& range,
                  ir::Optimizer optimizer, const AdamStep& adam) {
  const Tensor gradient = held.units(held.gradient, range.begin, range.end);
  const Tensor master = held.master_units(range.begin, range.end);
  const Tensor weight = held.weight_units(range.begin, range.end);
  if (optimizer == ir::Optimizer::sgd) {
    return backend.sgd(adam.learning_rate, gradient, master, weight);
  }
  backend.adam(adam, gradient, master, held.own_units(held.first_moment, range.begin, range.end),
               held.own_units(held.second_moment, range.begin, range.end), weight);
}

}  // namespace

void update_weights(ModelShard& shard, const std::vector<BlockId>& blocks, ir::Optimizer optimizer,
                    const AdamStep& adam) {
  for (const BlockId block : blocks) {
    for (const HeldParameter& held : shard.parameters(block)) {
      for (const UnitRange& range : held.updated) {
        update_range(shard.backend(), held, range, optimizer, adam);
      }
    }
  }
  shard.backend().synchronize();
}

}  // namespace orrery::executor
