/// Which slices of which parameters a rank holds, and where they start from. Private to the folder.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/model/shard.h"

namespace orrery::executor {

/// Numbers of the parameters of a transformer block; gate exists with SwiGLU only.
struct TransformerParameters {
  static constexpr std::size_t kNorm1 = 0, kQuery = 1, kKey = 2, kValue = 3, kOutput = 4,
                               kNorm2 = 5, kGate = 6;
  std::size_t up = 6;
  std::size_t down = 7;
};
TransformerParameters transformer_parameters(const ir::ModelShape& shape);

/// What position `position` of `degree` holds: an even part, the first ones a unit longer. Where
/// there are fewer units than members (key-value heads), degree / units neighbors hold the same
/// one.
UnitRange held_slice(const ParameterInfo& info, int degree, int position);

/// Initial values of elements [begin, end) of the whole parameter: gains 1; matrices normal with
/// deviation 0.02 [Radford et al. 2018, 4.1, unverified], those that write to the residual stream
/// 1 / sqrt(2 layers) of it [Radford et al. 2019, 2.3, unverified].
std::vector<double> initial_values(const ir::ProgramHeader& header, BlockId block,
                                   std::size_t parameter, std::int64_t begin, std::int64_t end);

}  // namespace orrery::executor
