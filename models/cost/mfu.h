/// How good an iteration time is: utilization of the hardware, throughput, price.
#pragma once
#include <cstdint>
#include <optional>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// FLOPs of one optimizer step that the model needs, however it is computed: samples of the plan x
/// model_flops(workload). Numerator of MFU [Chowdhery et al. 2022, Appendix B].
Flops step_model_flops(const ir::Plan& plan, const Workload& workload);

/// FLOPs of one optimizer step that the hardware computes: as step_model_flops, and for each
/// sample once more the forward FLOPs of layers under full recompute, the attention FLOPs of layers
/// under selective recompute. Numerator of HFU [Korthikanti et al. 2022, 6; Chowdhery et al. 2022].
Flops step_hardware_flops(const ir::Plan& plan, const Workload& workload);

/// Sum of the peaks of the plan's devices in the dtype (or its substitute, see device_share.h).
FlopsPerSecond total_peak(const ir::Plan& plan, const Cluster& cluster, ir::Dtype dtype);

/// FLOPs / (time x peak): MFU from step_model_flops, HFU from step_hardware_flops.
double utilization(Flops flops, Seconds iteration_time, FlopsPerSecond peak);

/// Samples of the plan x sequence length / time.
double tokens_per_second(const ir::Plan& plan, const Workload& workload, Seconds iteration_time);

/// On-demand price (GpuType::price) of all devices of the plan for as long as 10^6 tokens take.
/// nullopt if a GPU type has no price.
std::optional<Dollars> dollars_per_million_tokens(const ir::Plan& plan, const Cluster& cluster,
                                                  const Workload& workload, Seconds iteration_time);

/// Largest draw (GpuType::power) of all devices of the plan for as long as a token takes: at most
/// what the GPUs take, waiting ones included; hosts, switches and cooling are not in it. nullopt if
/// a GPU type does not say what it draws.
std::optional<Joules> joules_per_token(const ir::Plan& plan, const Cluster& cluster,
                                       const Workload& workload, Seconds iteration_time);

}  // namespace orrery::models
