/// The model that the number machine runs, and one step of it on one rank: the reference.
///
/// Block b maps a token row x (1 x d) to (x diag(g)) A B, with g replicated over the
/// tensor-parallel group, A (d x f) split by columns and B (f x d) split by rows. The loss is half
/// the squared norm of the last output, summed over tokens. One SGD step ends the iteration. Tokens
/// do not see each other, so that parts of a sequence differ only in their tokens.
#pragma once
#include <cstdint>
#include <vector>

#include "models/sharding/layout.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// Rows of numbers.
using Rows = std::vector<std::vector<double>>;

/// Parameters of a block as the machine keeps them: index 0 g (1 row), 1 A transposed (f rows of
/// d), 2 B (f rows of d), so that tensor parallelism takes rows.
using BlockNumbers = std::vector<Rows>;

/// The workload that the machine understands: `blocks` blocks of width d and inner width f. With
/// experts, A and B are cut into as many along f, and each token goes through one of them.
Workload number_workload(int blocks, int d, int f, int tokens_per_sample, int experts = 0);

/// Rows of A and B that a token goes through: those of its expert, or all.
Slice active_rows(const Workload& workload, std::int64_t sample, std::int64_t token, int f);

/// Initial parameters and data, by global index: independent of any plan.
BlockNumbers initial_block(int block, int d, int f);
std::vector<double> data_row(std::int64_t sample, int token, int d);

/// Parameters after one step on one rank: the reference. With tied embeddings the matrices A of the
/// first and the last block are one.
std::vector<BlockNumbers> reference_step(const Workload& workload, std::int64_t samples, int d,
                                         int f, double rate);

/// What one block computes on the rows [begin, end) of A and B that a rank holds.
struct Weights {
  const BlockNumbers& full;  ///< With rows outside [begin, end) empty.
  std::int64_t begin;
  std::int64_t end;
};

/// (x diag(g)) A B over the rows; the sum over all rows is the block's output.
std::vector<double> forward_row(const std::vector<double>& x, const Weights& w);

/// Adds the gradients of A and B; returns the (partial) gradient of x diag(g).
std::vector<double> backward_row(const std::vector<double>& x, const std::vector<double>& dy,
                                 const Weights& w, BlockNumbers& gradient);

BlockNumbers zeros(int d, int f);

/// One step of SGD.
void descend(BlockNumbers& weights, const BlockNumbers& gradient, double rate);

}  // namespace orrery::models
