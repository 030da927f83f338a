/// Small models and random plans for them on up to eight devices, as Programs that the executor can
/// run, and runs of them on threads.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/engine/worker.h"
#include "models/ir/program.h"
#include "models/spec/workload.h"

namespace orrery::executor {

/// What every run trains: 4 layers of width 32, 8 heads (4 for keys and values), 96 tokens.
struct TinyModel {
  ir::Activation activation = ir::Activation::swiglu;
  int layers = 4;
  std::int64_t sequence_length = 6;
  /// As GPT-3 and OPT: LayerNorm, biases, learned positions.
  bool gpt = false;
  bool tied_embeddings = false;
  int experts =
      0;  ///< In each layer; two for each token, with places for 1.25 times an even share.
};
/// LayerNorm, biases, learned positions and one matrix at both ends. [Brown et al. 2020, 2.1]
inline constexpr TinyModel kTinyGpt = {
    .activation = ir::Activation::gelu, .gpt = true, .tied_embeddings = true};
models::Workload tiny_workload(const TinyModel& model = {});

/// Samples of a step: the same for all plans.
inline constexpr int kTinyBatch = 12;

/// Equal seeds give equal plans: every schedule, transfer, overlap and recompute, ZeRO-1 and 2 with
/// shard groups, pipelines with stage borders, degrees (1, 2, 4, 8), micro-batch counts and sizes
/// of their own, several groups and segments in a stage, reroutes.
ir::Plan random_training_plan(std::uint64_t seed, const models::Workload& workload);

/// The same with Megatron's sequence parallelism in some groups and, of a model with experts,
/// groups that hold them together; devices beyond eight where that takes them.
ir::Plan divided_training_plan(std::uint64_t seed, const models::Workload& workload);

/// One device, micro-batches of `size` samples.
ir::Plan single_device_plan(const models::Workload& workload, int size = 1);
/// One pipeline of `stages` stages, one device each.
ir::Plan pipeline_plan(const models::Workload& workload, int stages, ir::ScheduleKind schedule,
                       int virtual_stages = 1);

/// Expanded.
ir::Program lower_for_executor(const ir::Plan& plan, const models::Workload& workload,
                               std::uint64_t seed = 5, int gradient_synchronizations = 1);

/// (block, parameter, element of the whole tensor) -> value, from the ranks that own it.
using Numbers = std::map<std::tuple<int, int>, std::vector<double>>;

struct TrainingRun {
  std::vector<double> losses;  ///< By step.
  Numbers gradients;           ///< Of the first step.
  Numbers weights;             ///< After the last one, of the ranks that own them.
  std::string disagreement;    ///< A rank whose weights differ from the owner's; empty: none.
};

struct TrainingOptions {
  Precision precision = Precision::fp64;
  int steps = 1;
  std::string transport = "threads";
  /// Makes the back end of a rank; empty: the CPU's in `precision`.
  std::function<std::unique_ptr<Backend>(int rank)> backend;
  /// Makes a transport on top of a rank's own; empty: none.
  std::function<std::unique_ptr<Transport>(Transport&)> over;
  /// Spoils the program, the shard before the first step, or the gradients: for mutation checks.
  std::function<void(ir::Program&)> spoil;
};

/// Throws what a rank throws.
TrainingRun train(ir::Program program, const TrainingOptions& options = {});

/// Largest ||a - b|| / ||b|| over tensors. Where b is rounding only (the gradient of a bias of
/// keys, which shifts all scores of a query alike), relative to the largest tensor.
double relative_distance(const Numbers& a, const Numbers& b);

}  // namespace orrery::executor
