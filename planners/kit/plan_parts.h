/// Parts of plans that planners have in common: what the model and the job allow, how layers become
/// segments, and what a finished plan carries.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "models/ir/verdict.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Blocks that planners distribute: all but embedding and head.
int count_layers(const models::Workload& workload);

/// Layers of a stage: its blocks but embedding and head.
int layers_of(const ir::Stage& stage, const models::Workload& workload);

/// Whether groups of any stage hold experts together (expert parallelism).
bool shares_experts(const ir::Plan& plan);

/// A plan that a planner's cost model has no words for.
models::Infeasible not_expressible(std::string why);
/// That, where a stage has several segments or groups.
std::optional<models::Infeasible> one_group_a_stage(const ir::Plan& plan);

/// Tensor-parallel degrees from 1 to `limit` under which all slices of the layers are equal (the
/// degree divides heads, key-value heads and inner width) and that the job allows. Ascending.
std::vector<int> tensor_degrees(const models::Workload& workload, const models::Job& job,
                                int limit);

/// "no", or its name.
std::string recompute_in_words(ir::Recompute recompute);
/// What repeats most of what the job allows; else none.
ir::Recompute strongest_recompute(const models::Job& job);
/// The other way round.
ir::Recompute weakest_recompute(const models::Job& job);

/// The smallest ZeRO stage that the job allows.
int smallest_zero_stage(const models::Job& job);

/// ZeRO stages 0 and 1 as far as the job allows them, else its smallest stage.
std::vector<int> zero_stages_up_to_1(const models::Job& job);

/// Blocks of `layers` layers from the layer number `first` (0: the first one after the embedding).
/// Embedding and head belong to the ranges that touch the ends.
ir::Segment segment_of_layers(const models::Workload& workload, int first, int layers);

/// Megatron's sequence parallelism where the job allows it and the degree (above 1) divides the
/// sequence.
ir::SequenceParallelism megatron_sequence(const models::Job& job, int tensor);

/// Tensor-parallel groups of `tensor` consecutive devices, with `samples` of each micro-batch.
std::vector<ir::Group> tensor_groups(
    std::span<const DeviceId> devices, int tensor, int samples,
    ir::SequenceParallelism sequence = ir::SequenceParallelism::none);

/// The same, on groups.
ir::Segment segment_of_layers(const models::Workload& workload, int first, int layers,
                              std::vector<ir::Group> groups, ir::Recompute recompute,
                              int zero_stage);
/// A stage of one such segment.
ir::Stage stage_of_layers(const models::Workload& workload, int first, int layers,
                          std::vector<ir::Group> groups, ir::Recompute recompute, int zero_stage);

/// Groups of `tensor` consecutive devices never mix vendors.
bool one_vendor_per_group(std::span<const DeviceId> devices, int tensor,
                          const models::Cluster& cluster);

/// Equal neighbors told once: "a", "3 times b".
std::vector<std::string> count_repeats(const std::vector<std::string>& texts);

/// Writes planner, hashes and prediction.
void sign(ir::Plan& plan, const char* planner, const PlannerInput& input, Seconds estimate,
          const ir::MemoryVerdict& memory);

/// True when someone outside asked the search to end.
bool canceled(const PlannerInput& input);
/// True when a search that has done `work` (in its own unit) must end: canceled, or out of budget.
bool must_end(const PlannerInput& input, std::int64_t work);

/// The shape of a plan in words: "12 x (TP 4+2, 30+30 layers, 8 micro-batches of 1), ...", equal
/// pipelines together, at most three kinds spelled out; of more than six stages a summary.
std::string in_words(const ir::Plan& plan, const models::Workload& workload);

}  // namespace orrery::planners
