/// Which slices of which parameters a rank holds, and where they start from. Private to the folder.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "executor/model/shard.h"

namespace orrery::executor {

inline constexpr std::size_t kAbsent = static_cast<std::size_t>(-1);

/// Numbers of a gain or a matrix among the parameters of its block, and of its bias: kAbsent where
/// the model has none.
struct ParameterPair {
  std::size_t main = kAbsent;
  std::size_t bias = kAbsent;
};
/// Numbers of the parameters of a transformer block; gate exists with SwiGLU only, router with
/// experts only, whose gates, ups and downs are then one parameter each.
struct TransformerParameters {
  ParameterPair norm1, query, key, value, output, norm2, router, gate, up, down;
};
TransformerParameters transformer_parameters(const ir::ModelShape& shape);

/// Of the embedding.
inline constexpr std::size_t kToken = 0, kPosition = 1;
/// Of the head.
struct HeadParameters {
  ParameterPair norm;
  std::size_t output = kAbsent;
};
HeadParameters head_parameters(const ir::ModelShape& shape);

/// Whether this is the head's matrix, and it is the embedding's.
bool is_tied(const ir::ProgramHeader& header, BlockId block, std::size_t parameter);

/// A member's place in a tensor-parallel group, and among the groups that hold experts together.
struct Place {
  int degree = 1;
  int position = 0;
  int expert_degree = 1;
  int expert_position = 0;
  std::vector<ExpertMember> expert_members = {};  ///< As ModelShard::HeldBlock's.
};

/// What the member at that place holds, ascending, no slice touching the next: an even part. Where
/// there are fewer units than members (key-value heads), degree / units neighbors hold the same
/// one. Of experts its part of the columns of its part of the experts.
std::vector<UnitRange> held_slices(const ParameterInfo& info, const Place& at);

/// Initial values of elements [begin, end) of the whole parameter: gains 1; biases 0; matrices and
/// positions normal with deviation 0.02 [Radford et al. 2018, 4.1, unverified], those that write to
/// the residual stream 1 / sqrt(2 layers) of it [Radford et al. 2019, 2.3, unverified]. A tied head
/// has the embedding's.
std::vector<double> initial_values(const ir::ProgramHeader& header, BlockId block,
                                   std::size_t parameter, std::int64_t begin, std::int64_t end);

}  // namespace orrery::executor
