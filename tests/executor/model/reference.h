/// The model on one rank in plain loops and doubles: what every shard must equal. Knows no back
/// end, no slices and no recompute; its kernels are those of
/// tests/executor/compute/plain_kernels.h.
#pragma once
#include <cstdint>
#include <vector>

#include "models/ir/program.h"

namespace orrery::executor::reference {

using Numbers = std::vector<double>;
/// Whole tensors: [block][parameter][element], in the order and layout of parameters_of().
using Weights = std::vector<std::vector<Numbers>>;

struct Result {
  Numbers losses;     ///< By sample, summed over its tokens.
  Weights gradients;  ///< Of scale x the sum of all losses.
};

Result run(const ir::ProgramHeader& header, const Weights& weights, int samples,
           const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
           double scale);

}  // namespace orrery::executor::reference
