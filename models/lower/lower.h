/// Plan to Program. The one place where a plan becomes ops; all communication in it comes from
/// models/sharding. Serves the simulator and the executor alike.
#pragma once
#include <cstdint>

#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

struct LowerOptions {
  /// One representative rank for each tensor-parallel group instead of one for each device.
  bool collapsed = true;
  std::uint64_t seed = 0;  ///< Copied to the header: the executor's initial weights and data.
};

/// The plan must be valid (check/validate.h); it need not fit in memory.
ir::Program lower(const ir::Plan& plan, const Cluster& cluster, const Workload& workload,
                  const Job& job, const LowerOptions& options);

}  // namespace orrery::models
