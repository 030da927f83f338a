/// A machine that runs lowered Programs on real numbers: a model of matrix products only, executed
/// op by op in any order that the Program's streams, dependencies, matches and rendezvous allow. It
/// proves that a Program computes what one rank alone would.
///
/// With Megatron's sequence parallelism a token's activations lie on one member, which alone adds
/// to the gradient of g; the inner reduce-scatter and all-gather must be there, else the members'
/// partial sums stay apart. Experts' tokens use the partner's rows if the inner all-to-alls reach
/// it.
///
/// Where an iteration begins with gathers of parameters, ranks begin without what these bring: with
/// wrong numbers in its place.
///
/// Ranks that keep a redundant copy of the next stage begin with its weights. A redundant pass
/// reads what the rank has; its outputs are compared with those of the copied stage and thrown
/// away.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "models/ir/program.h"
#include "models/spec/workload.h"
#include "tests/models/lower/number_model.h"

namespace orrery::models {

struct MachineResult {
  std::string problem;  ///< Empty: every op ran.
  /// By rank, block: parameters after the step; rows that the rank does not hold are empty.
  std::vector<std::map<int, BlockNumbers>> parameters;
  /// By rank, block: ranks whose parameters it gathers inside its forward pass (ZeRO-3) or in
  /// front of it, directly or through others.
  std::vector<std::map<int, std::set<int>>> gathers;
  int redundant_passes = 0;  ///< Of one tensor-parallel group each; their outputs were right.
};

/// `order_seed` picks among the ops that may run: any choice must give the same numbers.
MachineResult run_program(const ir::Program& program, const Workload& workload, int d, int f,
                          double rate, std::uint64_t order_seed);

}  // namespace orrery::models
