/// Search of the strategies of a step planner: which intervals of lengths, and which pipelines for
/// each. The papers give their strategies and not how they were found; this is a search of our own
/// in the space of their tables. [Hetu v2, A.4, Tables 10 to 12]
///
/// A set of strategies is a chain of borders (the last one is the context) with a candidate for
/// each interval between them. Candidates are multisets of pipelines (TP x PP) that fill the
/// cluster, longest first. For each interval those that a quick estimate puts first are prepared,
/// their sequences balanced on each sample step (assign.h), and what is left of a phase (gradients,
/// update) taken from the judge, which runs it without sequences. Sets are then examined in the
/// order of what their phases take alone, which bounds them from below, until no other can be among
/// the best, switches included. The judge runs the samples of the finalists in full and decides.
#pragma once
#include <cstdint>
#include <vector>

#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {

StrategySearchResult search_strategies(const StrategySearchInput& input, const StrategyRule& rule);

/// Mean time of the steps under the judge, one after another. Before the first one the states lie
/// where it needs them.
Seconds judged_time(const StepPlanner& planner, const models::StateBytes& bytes,
                    std::span<const std::vector<std::int64_t>> steps, const StepJudge& judge);

}  // namespace orrery::planners
