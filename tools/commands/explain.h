/// `orrery plan --explain`: in words, why a plan won.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/execute.h"

namespace orrery::tools {

/// The bottleneck stage of the winner, the next best plans of its planner, what each constraint
/// cost it, and what sets it apart from the best plans of the other planners. `best` is one of
/// `reports` and has a plan and an evaluation; all are of one cluster, model and job.
std::string explanation(const experiments::RunReport& best,
                        const std::vector<experiments::RunReport>& reports,
                        const experiments::LoadedRun& run);

/// "4.2 % slower", "31 % faster", "equal" of `seconds` against `reference`.
std::string against(double seconds, double reference);

}  // namespace orrery::tools
