/// The plans of the public Sailor measurements as our own cluster, workload, job and plan, and what
/// the simulator says about them. No measured iteration enters a prediction of time.
#pragma once
#include <string>
#include <vector>

#include "experiments/validation/sailor/data.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/library.h"
#include "models/spec/workload.h"

namespace orrery::experiments {

/// Whether the profile of the model has the product with the vocabulary in its last layer.
/// GPT-Neo's does not, judging by the parameters of layer_memory.csv.
bool head_is_profiled(const SailorData& data, const std::string& model, int tensor_parallel);

/// The profile with, where `add_heads`, the missing products: head FLOPs at the rate at which the
/// same profile (GPU type, degree, micro-batch size, pass) runs a transformer layer.
ir::Profile sailor_profile(const SailorData& data, const std::string& folder, bool add_heads);

/// Each replica of each stage is a node, in DeepSpeed's rank order (stage by stage). gh200 nodes
/// have a NIC for each GPU, rtx nodes one for all. Link classes are those of the profile. GPU types
/// take memory from the data; bandwidth and peak, for what the profile lacks, from the library.
models::Cluster sailor_cluster(const SailorPlan& plan, const SailorData& data,
                               const models::Library& library);

/// fp32 at the padded vocabulary; activations that blocks keep are those of layer_memory.csv. The
/// head's logits have a gradient of their size while its backward pass runs. A head that was not
/// profiled also keeps its logits twice, as OPT-350's does.
models::Workload sailor_workload(const SailorPlan& plan, const SailorData& data);

/// fp32 weights, gradients and two moments; no master copy.
models::Job sailor_job(const SailorPlan& plan, const SailorData& data);

/// 1F1B, one pipeline for each replica, activations in slices (DeepSpeed's default
/// pipe_partitioned), gradients after the last backward pass.
ir::Plan sailor_plan(const SailorPlan& plan, const models::Cluster& cluster,
                     const models::Workload& workload);

/// The time that `sailor_profile` would give a head over its measured time, for models whose
/// profile has it: this judges the recipe on profiles alone.
struct HeadCheck {
  std::string gpu;
  std::string model;
  ir::Pass pass = ir::Pass::forward;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  double ratio = 1;
};
std::vector<HeadCheck> check_heads(const SailorData& data, const std::string& folder);

struct SailorPrediction {
  Seconds iteration;
  /// Memory of the device that holds most: parameters, gradients, moments, activations, flat
  /// gradients. Without context, NCCL and what the allocator keeps.
  Bytes held;
  models::Breakdown breakdown;  ///< Mean over ranks, as the simulator counts.
  Seconds slowest_compute;      ///< Passes of the busiest rank.
  /// If transfers overlapped with passes (as_deepspeed without `blocking`): shows how much
  /// of an error DeepSpeed's order explains. Not the prediction.
  Seconds iteration_overlapped;
  /// Profile entries and rooflines that priced it (Pricer::used_entries).
  std::vector<std::string> used;
};

/// Lowers, changes to DeepSpeed's order (deepspeed.h), simulates; each plan in a copy of this
/// process. Throws std::runtime_error on a plan that our checks refuse or a run that fails.
SailorPrediction predict_sailor(const SailorPlan& plan, const SailorData& data,
                                const ir::Profile& profile, const models::Library& library);

}  // namespace orrery::experiments
