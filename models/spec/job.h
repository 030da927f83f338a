/// The job: what is trained on what batch, in which numbers, and what the planner may use. What is
/// in fact used is said by the plan.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"

namespace orrery::config {
class Visitor;
}
namespace orrery::ir {
enum class Purpose : std::uint8_t;  // models/ir/program.h
}

namespace orrery::models {

/// Shares of sequences up to given lengths, for jobs with mixed lengths.
struct LengthDistribution {
  struct Bucket {
    std::int64_t longest = 0;  ///< Tokens.
    double share = 0;          ///< Of sequences; shares add up to 1.
  };
  std::vector<Bucket> buckets;
};

/// Bytes per parameter of the model states.
struct StateBytes {
  double weight = 2;
  double gradient = 2;
  double master = 4;
  double moments = 8;
  double total() const { return weight + gradient + master + moments; }
};

struct Allowed {
  std::vector<ir::Recompute> recompute = {ir::Recompute::none, ir::Recompute::full};
  std::vector<int> zero_stages = {0};
  bool sequence_parallel = false;
  int max_tensor_parallel = 0;  ///< 0: bounded by the node only.
  int max_micro_batch_size = 8;
  std::vector<ir::ScheduleKind> schedules = {ir::ScheduleKind::one_f_one_b};
  double max_optimizer_offload = 0;  ///< Of ir::Plan::optimizer_offload.
};

/// Value of Job::gradient_synchronizations: as many as the plan has micro-batches.
inline constexpr int kEveryMicroBatch = 0;

struct Job {
  std::int64_t global_batch = 0;     ///< Samples per optimizer step.
  std::int64_t sequence_length = 0;  ///< Tokens per sample.
  std::optional<LengthDistribution> lengths;
  ir::Dtype dtype = ir::Dtype::bf16;
  StateBytes state_bytes;
  ir::Optimizer optimizer = ir::Optimizer::adam;
  /// Rounds of gradient synchronization in a step (models/schedule/rounds.h), or
  /// kEveryMicroBatch. 1: gradients are accumulated over all micro-batches. Batch, number
  /// of optimizer steps and result do not change; plans with fewer micro-batches have one round for
  /// each. Counted by the simulator, PlanEstimator and HexiScale's cost model; the formulas of the
  /// other planners' papers know one round only.
  int gradient_synchronizations = 1;
  /// Kernels of a pass are launched as one CUDA graph; else the host launches each, and a pass that
  /// is priced by its kernels takes at least GpuType::launch for each of them.
  bool cuda_graphs = true;
  /// Collectives inside of passes that the trainer hides behind the pass's own kernels
  /// (can_hide). Counted by the simulator; the formulas of planners' papers know none, and the
  /// executor hides nothing.
  std::vector<ir::Purpose> hidden_collectives;
  Allowed allowed;
};

/// What jobs may hide: tensor_parallel [Megatron-LM, --tp-comm-overlap], sequence_parallel (the
/// exchanges of context parallelism), expert_parallel (dispatch and combine) and zero (gathers
/// ahead of their blocks, as FSDP and ZeRO-3 prefetch them).
bool can_hide(ir::Purpose purpose);
/// Such a purpose, as files name it: the value of the ir::Purpose.
enum class HideablePurpose : std::uint8_t {};
std::vector<std::pair<HideablePurpose, const char*>> enum_names(HideablePurpose);

/// YAML (`schema: orrery/job/1`). `lengths` is a list of {longest, share}.
void describe(config::Visitor& v, LengthDistribution::Bucket& bucket);
void describe(config::Visitor& v, StateBytes& bytes);
void describe(config::Visitor& v, Allowed& allowed);
void describe(config::Visitor& v, Job& job);

}  // namespace orrery::models
