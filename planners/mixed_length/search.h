/// Search of the strategies of a step planner: which intervals of lengths, and which pipelines for
/// each. The papers give their strategies and not how they were found; this is a search of our own
/// in the space of their tables. [Hetu v2, A.4, Tables 10 to 12]
///
/// A set of strategies is a chain of borders (the last one is the context) with a candidate for
/// each interval between them. Candidates are multisets of pipelines (TP x PP) that fill the
/// cluster, longest first. Of each interval those that a quick estimate puts first are prepared,
/// their sequences balanced on each sample step (assign.h), and what is left of a phase (gradients,
/// update) taken from the judge, which runs it without sequences. Sets are then examined in the
/// order of what their phases take alone, which bounds them from below, until no other can be among
/// the best, switches included. The judge runs the samples of the finalists in full and decides.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {

StrategySearchResult search_strategies(const StrategySearchInput& input, const StrategyRule& rule);

/// All multisets of at most `max_kinds` kinds of pipelines that leave fewer devices idle than their
/// last kind needs. Degrees of tensor parallelism are powers of two; numbers of stages too, or
/// divisors of the devices. Larger pipelines come first; tensor parallelism with sequence
/// parallelism as Megatron does it. `layers` bounds the stages.
std::vector<std::vector<PipelineKind>> candidate_pipelines(int devices, int layers,
                                                           const StrategySearch& search,
                                                           int max_kinds);

/// Replicas that together are all devices, each of Ulysses groups: DP x SP, degrees of sequence
/// parallelism powers of two that divide the devices. [Hetu v2, Table 9: DeepSpeed, "DP4SP8"]
std::vector<std::vector<PipelineKind>> ulysses_candidates(int devices, int layers,
                                                          const StrategySearch& search);

/// Replicas that together are all devices: DP x TP x CP x PP, degrees of tensor and context (ring)
/// parallelism powers of two, stages as in candidate_pipelines(). Where the context is not split,
/// tensor parallelism is with Megatron's sequence parallelism. [Hetu v2, Table 9: Megatron,
/// "DP2TP8CP2", "TP8PP4"]
std::vector<std::vector<PipelineKind>> ring_candidates(int devices, int layers,
                                                       const StrategySearch& search);

/// Ends of intervals for a context: those of the search below it, or the context halved four times,
/// rounded down to `multiple`; then the context.
std::vector<std::int64_t> search_borders(const StrategySearch& search, std::int64_t context,
                                         std::int64_t multiple);

/// Mean time of the steps under the judge, one after another. Before the first one the states lie
/// where it needs them.
Seconds judged_time(const StepPlanner& planner, const models::StateBytes& bytes,
                    std::span<const std::vector<std::int64_t>> steps, const StepJudge& judge);

}  // namespace orrery::planners
