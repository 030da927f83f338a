/// A machine that runs lowered Programs on real numbers: a model of matrix products only, executed
/// op by op in any order that the Program's streams, dependencies, matches and meetings allow. It
/// proves that a Program computes what one rank alone would.
///
/// Block b maps a token row x (1 x d) to (x diag(g)) A B, with g replicated over the
/// tensor-parallel group, A (d x f) split by columns and B (f x d) split by rows. The loss is half
/// the squared norm of the last output, summed over tokens. One SGD step ends the iteration.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/ir/program.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// Rows of numbers.
using Rows = std::vector<std::vector<double>>;

/// Parameters of a block as the machine keeps them: index 0 g (1 row), 1 A transposed (f rows of
/// d), 2 B (f rows of d), so that tensor parallelism takes rows.
using BlockNumbers = std::vector<Rows>;

/// The workload that the machine understands: `blocks` blocks of width d and inner width f.
Workload number_workload(int blocks, int d, int f, int tokens_per_sample);

/// Initial parameters and data, by global index: independent of any plan.
BlockNumbers initial_block(int block, int d, int f);
std::vector<double> data_row(std::int64_t sample, int token, int d);

/// Parameters after one step on one rank: the reference. With tied embeddings the matrices A of the
/// first and the last block are one.
std::vector<BlockNumbers> reference_step(const Workload& workload, std::int64_t samples, int d,
                                         int f, double rate);

struct MachineResult {
  std::string problem;  ///< Empty: every op ran.
  /// By rank, block: parameters after the step; rows that the rank does not hold are empty.
  std::vector<std::map<int, BlockNumbers>> parameters;
};

/// `order_seed` picks among the ops that may run: any choice must give the same numbers.
MachineResult run_program(const ir::Program& program, const Workload& workload, int d, int f,
                          double rate, std::uint64_t order_seed);

}  // namespace orrery::models
