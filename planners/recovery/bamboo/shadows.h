/// Who keeps whose copy in Bamboo, and what a pipeline looks like after a shadow has taken over.
/// Private to the policy. [Thorpe et al., NSDI 2023, sections 4 and 5; public code
/// uclasystem/bamboo, project_pactum/simulation/simulator.py]
///
/// The stage before keeps the copy of a stage, the last one that of the first. A stage that took
/// over another one holds the blocks of both: it has no shadow, and is none any more.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"

namespace orrery::planners {

/// First blocks of the stages before any was merged, ascending.
using BlockCut = std::vector<int>;
/// The cut of all pipelines together: finer than each of them where different stages are merged.
BlockCut common_cut(const ir::Plan& plan);

/// Why the plan cannot be run with redundancy: pipelines that are cut differently, stages of
/// several segments or of different width; empty: it can.
std::string redundancy_problem(const ir::Plan& plan);

/// True for a stage that computes for a lost one too.
bool is_overloaded(const ir::Stage& stage, const BlockCut& cut);
int count_overloaded(const ir::Plan& plan, const BlockCut& cut);

/// What the loss of all devices that are not in `live` (ascending) means.
struct ShadowOutcome {
  /// The plan after all take-overs; none: fatal.
  std::optional<ir::Plan> plan;
  int taken_over = 0;  ///< Stages.
  std::string fatal;   ///< The stage that is lost with its shadow, in words.
};

/// Each lost stage is merged into its shadow, the stage before it. Fatal when a lost stage was
/// overloaded, or when its shadow is lost or overloaded.
/// Deviation: a plan has no stage that computes the first and the last blocks, so that the second
/// stage takes over the first one, with a copy of its state from the last.
ShadowOutcome take_over(const ir::Plan& plan, const std::vector<DeviceId>& live,
                        const BlockCut& cut);

/// The copies that shadows keep of `copy` (in GPU memory, of a plan with redundancy) as a copy of
/// its own: holders are the shadows' devices, shares without a shadow are gone.
models::StateReplica shadow_copy(const models::StateReplica& copy, const BlockCut& cut);

/// When Bamboo reconfigures at the end of a step. [simulator.py, simulate_should_reconfigure]
struct BambooCounts {
  int pipelines = 0;
  int stages = 0;      ///< Of a full pipeline.
  int overloaded = 0;  ///< Nodes that compute for two.
  int waiting = 0;     ///< Nodes that are not in the plan.
};
/// Some are overloaded and as many wait, or 2 overloaded / active nodes > 5 %, or active and
/// waiting nodes make more pipelines.
bool should_reconfigure(const BambooCounts& counts);

}  // namespace orrery::planners
