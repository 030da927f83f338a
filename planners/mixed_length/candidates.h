/// The space of the search for strategies: pipelines that fill a cluster, and borders between
/// intervals of lengths.
#pragma once
#include <cstdint>
#include <vector>

#include "planners/mixed_length/strategy.h"

namespace orrery::planners {

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

}  // namespace orrery::planners
