/// Sailor's own closed form of iteration time and peak memory, rewritten from the description in
/// the README of the data ("Check of the units"). Not a prediction of ours: it reproduces the
/// estimates that come with the measurements, which shows that the data is read correctly.
#pragma once
#include "experiments/validation/sailor/data.h"
#include "models/base/units.h"

namespace orrery::experiments {

/// With B micro-batches, T = (B - 1) max(c_i + p_i) + sum(c_i + p_i) + step + sync over stages i:
/// c_i passes of the slowest replica (profiled layers as they stand), p_i sends at the fits with as
/// many pairs as the degree (first stage: activation, twice if there are more than 3 stages; last
/// one: twice the gradient; between: both; one stage: none), step the profiled optimizer step,
/// unscaled, sync the slowest stage's 2 (dp - 1) t(bucket / dp), summed over buckets of 5e8 bytes
/// of 4 x parameters (degree 1) / min(degree, 4), between neighboring replicas without closing the
/// ring.
Seconds sailor_formula_time(const SailorPlan& plan, const SailorData& data);

/// Largest over stages of 24 bytes x parameters + saved activations x micro-batch x (stages - i) +
/// 5.06e9 bytes.
Bytes sailor_formula_memory(const SailorPlan& plan, const SailorData& data);

}  // namespace orrery::experiments
