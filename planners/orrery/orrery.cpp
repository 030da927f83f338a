// The Orrery planner: a search over whole plans with the simulator as its judge. No paper: it is
// what the other planners of the catalog are compared with.
#include "planners/catalog.h"
#include "planners/kit/settings.h"
#include "planners/orrery/search.h"

namespace orrery::planners {

extern const PlannerEntry kOrrery;
const PlannerEntry kOrrery = planner_entry<SearchPlanner<OrrerySearch, OrrerySettings>>(
    "orrery", "this project",
    "pipelines of any stages, tensor-parallel groups of any width, layers, batches and "
    "recomputation of each, groups that share experts, schedule, ZeRO (stage 3 of as many layers "
    "as "
    "memory asks for), overlap, devices left out: by moves from seeds, each step judged by the "
    "evaluator",
    "what the evaluator does not see; Ulysses and ring attention, stages of the embedding or the "
    "head alone",
    /*estimate=*/nullptr, /*takes_lengths=*/false, /*draws=*/true, /*keeps_near=*/true,
    /*judges_all=*/true);

}  // namespace orrery::planners
