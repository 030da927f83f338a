/// Robust planning: plan, recovery policy, checkpoint interval and number of spare nodes chosen
/// together, for the most expected tokens (or tokens per dollar) on a cluster whose nodes fail or
/// come and go. What `orrery plan --robust` and `orrery advise` do.
///
/// - Candidate plans: of each planner the plan for the whole cluster, one of whole replicas (no
///   ZeRO, as policies need that go on from a peer's state), one of equal pipelines, one of smaller
///   tensor-parallel groups, and with 1, 2 ... nodes of each kind left out as spares; plan files.
/// - Candidate policies: each with its own planner for the new plans that it makes when nodes come
///   and go, and, where it can ask others, with each planner of the candidate plans.
/// - Each is tried with the plans from the fastest on until it trains with one on the first trace
///   (else with the plan that it makes itself), then the better half of the policies with all
///   plans.
/// - All are replayed by the functions of `orrery replay` on the same traces, as many for each as a
///   race (race.h) gives it; then checkpoint intervals of the best join.
/// - The winner, the second and the plan-then-policy choice (the plan that is fastest undisturbed,
///   then the best policy for it, as published) are judged on other traces than those that chose
///   them.
#pragma once
#include "experiments/study/call.h"
#include "experiments/study/robust_result.h"
#include "experiments/study/robust_settings.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// `problems`: those found in the settings so far. Canceled, it comes back with the best so far.
RobustResult robust_plan(const RobustSettings& settings, const Call& call,
                         config::Diagnostics problems = {});

}  // namespace orrery::experiments
