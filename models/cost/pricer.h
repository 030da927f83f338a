/// Prices of ops: profile entry if there is one, else roofline. Collectives are not priced here:
/// the simulator turns them into flows.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// What one block costs, apart from where it stands in a plan.
struct BlockQuery {
  int gpu_type = 0;  ///< Index into Cluster::gpu_types.
  BlockId block;
  ir::Pass pass = ir::Pass::forward;
  int tensor_parallel = 1;
  int sequence_degree = 1;
  int samples = 1;
  ir::Recompute recompute = ir::Recompute::none;  ///< Adds the repeated forward to backward.
  auto operator<=>(const BlockQuery&) const = default;
};

/// Roofline: max(FLOPs / (peak x efficiency), bytes / (memory bandwidth x efficiency)) + launch.
/// Backward is twice the forward FLOPs; backward_input and backward_weight are one each; recompute
/// repeats the forward (full) or the attention (selective). Optimizer: bytes of all states read and
/// written over memory bandwidth. Caches by query: not for concurrent use.
class Pricer {
 public:
  Pricer(const Cluster& cluster, const Workload& workload, const Job& job,
         const ir::Profile& profile);
  ~Pricer();

  Seconds block(const BlockQuery& query) const;
  /// Compute part of an op (without inner collectives) on the device of its rank: sum over the
  /// blocks of its segment. Zero for communication ops.
  Seconds compute(const ir::Program& program, const ir::Op& op) const;
  Seconds optimizer(int gpu_type, double parameters) const;
  /// Profile entries that were used, and queries that fell back to the roofline, sorted.
  std::vector<std::string> used_entries() const;

  const Cluster& cluster() const;
  const Workload& workload() const;
  const Job& job() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace orrery::models
