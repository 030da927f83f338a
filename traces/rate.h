/// How often a job on a cluster is interrupted, as expected by a user who knows the statistics but
/// not the times: for a generator before anything is drawn, and the mean of a given trace.
///
/// An interruption is an instant at which devices that the job uses fail or are taken away, or at
/// which the job itself fails. Planned maintenance does not count: it is announced, and the job
/// leaves in time. What hits k nodes (or one device) hits the job with probability
/// 1 - (1 - in_use)^k, where `in_use` is the share of the cluster's devices that the job uses.
#pragma once
#include "traces/generate/generate.h"
#include "traces/trace.h"

namespace orrery::traces {

/// Cause of planned leaves, in generated traces and in files.
inline constexpr const char* kPlannedMaintenance = "planned maintenance";

/// Per second, in the long run: count / period x devices / gpus x rate for each cause, and the
/// departures of spot nodes in their daily steady state. 0 < in_use <= 1. Two things that
/// generate() draws are left out: failures that hit no device that is present, and the difference
/// between the start and the steady state. Test: TraceRate.ExpectedIsTheMeanOverSeeds.
double expected_interruptions_per_second(const TraceGenerator& generator,
                                         const GeneratorNodes& nodes, double in_use);

/// Per second, over the trace's horizon; events at time 0 are how it starts. Failures and leaves at
/// one instant are one interruption. 0 without a horizon.
double mean_interruptions_per_second(const Trace& trace, double in_use);

}  // namespace orrery::traces
