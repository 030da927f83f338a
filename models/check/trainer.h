/// What trainers can run: a plan in their terms, or why they cannot.
#pragma once
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models {

enum class Trainer {
  megatron,   ///< Megatron-LM.
  flagscale,  ///< FlagScale's heterogeneous training, with meshes along the pipeline.
  torchtitan,
  deepspeed,  ///< DeepSpeed without pipelines, which it cuts in the model's code.
};
std::vector<std::pair<Trainer, const char*>> enum_names(Trainer);

/// One call of torchrun: a node and its GPUs in the order of their ranks.
struct NodeRanks {
  NodeId node;
  std::vector<int> gpus;
};

/// A mesh of FlagScale: a run of stages with one degree and one type of GPU.
struct Mesh {
  int tensor_parallel = 1;
  int stages = 0;
  std::string gpu;
};

/// What the options of trainers can say: every pipeline the same.
struct TrainerPlan {
  std::vector<int> tensor_parallel;  ///< By stage.
  /// Transformer layers of each chunk, in the order of the model: all stages of the first virtual
  /// stage, then of the second.
  std::vector<int> layers;
  int stages = 1;
  int replicas = 1;  ///< Pipelines times tensor-parallel groups of a stage.
  int context_parallel = 1;
  int expert_parallel = 1;
  bool sequence_parallel = false;
  int micro_batch_size = 1;  ///< Of a replica.
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  int shard_group = 0;   ///< Replicas that share one set of shards; 0: all.
  bool ulysses = false;  ///< The context is parallel by heads, not as a ring.
  /// ranks[replica][stage]: devices in rank order.
  std::vector<std::vector<std::vector<DeviceId>>> devices;
  std::vector<NodeRanks> nodes;  ///< Megatron-LM, torchtitan: in the order of their ranks.
  bool pipeline_first = false;   ///< Megatron-LM: ranks by tensor, pipeline, data.
  std::vector<Mesh> meshes;      ///< FlagScale.

  /// Into how many parts ZeRO divides.
  int shards() const { return zero == 0 ? 1 : shard_group == 0 ? replicas : shard_group; }
};

/// The plan in the trainer's terms, or every reason why the trainer cannot run it. The plan is
/// valid.
std::variant<TrainerPlan, std::vector<std::string>> in_terms_of(Trainer trainer,
                                                                const ir::Plan& plan,
                                                                const Cluster& cluster,
                                                                const Workload& workload);

/// Who is to run a plan.
enum class PlanRunner {
  megatron,   ///< Trainer::megatron.
  flagscale,  ///< Trainer::flagscale.
  executor,   ///< Orrery's own.
};
std::vector<std::pair<PlanRunner, const char*>> enum_names(PlanRunner);

/// Every reason why it cannot; empty: it can. The plan is valid.
std::vector<std::string> reasons_against(PlanRunner runner, const ir::Plan& plan,
                                         const Cluster& cluster, const Workload& workload);

}  // namespace orrery::models
