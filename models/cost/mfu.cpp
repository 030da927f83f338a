#include "models/cost/mfu.h"

#include "models/cost/device_share.h"
#include "models/schedule/schedule.h"

namespace orrery::models {
namespace {

/// Of all devices; none if one does not say it.
template <class T>
std::optional<T> total_of(const std::vector<DeviceId>& devices, const Cluster& cluster,
                          std::optional<T> GpuType::*field) {
  T total;
  for (const DeviceId device : devices) {
    const std::optional<T>& one = cluster.gpu(device).*field;
    if (!one) return std::nullopt;
    total += *one;
  }
  return total;
}

/// What the backward pass of a sample computes again.
Flops repeated_flops(const Block& block, ir::Recompute recompute) {
  if (recompute == ir::Recompute::full) return block.forward_flops;
  return recompute == ir::Recompute::experts ? block.expert_flops : block.attention_flops;
}

}  // namespace

Flops step_model_flops(const ir::Plan& plan, const Workload& workload) {
  return static_cast<double>(ir::global_batch(plan)) * model_flops(workload);
}

Flops step_hardware_flops(const ir::Plan& plan, const Workload& workload) {
  Flops total = step_model_flops(plan, workload);
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    const double samples = static_cast<double>(pipeline.micro_batches) * pipeline.micro_batch_size;
    const ScheduleEntry* schedule = find_schedule(plan.schedule);
    const int copies = schedule != nullptr && schedule->both_ways ? plan.virtual_stages : 1;
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (segment.recompute == ir::Recompute::none) continue;
        for (const BlockId b : ids_from_to(segment.first_block, segment.last_block)) {
          const Block& block = workload.block(b);
          if (!is_recomputed(block.kind)) continue;
          total += samples / copies * repeated_flops(block, segment.recompute);
        }
      }
    }
  }
  return total;
}

FlopsPerSecond total_peak(const ir::Plan& plan, const Cluster& cluster, ir::Dtype dtype) {
  FlopsPerSecond total;
  for (const DeviceId device : ir::devices_of(plan)) {
    total += peak_flops(cluster.gpu(device), dtype);
  }
  return total;
}

double utilization(Flops flops, Seconds iteration_time, FlopsPerSecond peak) {
  return flops / (iteration_time * peak);
}

double tokens_per_second(const ir::Plan& plan, const Workload& workload, Seconds iteration_time) {
  return static_cast<double>(ir::global_batch(plan)) *
         static_cast<double>(workload.sequence_length) / iteration_time.value;
}

std::optional<Dollars> dollars_per_million_tokens(const ir::Plan& plan, const Cluster& cluster,
                                                  const Workload& workload,
                                                  Seconds iteration_time) {
  const auto price = total_of(ir::devices_of(plan), cluster, &GpuType::price);
  if (!price) return std::nullopt;
  return *price * Seconds{1e6 / tokens_per_second(plan, workload, iteration_time)};
}

std::optional<Joules> joules_per_token(const ir::Plan& plan, const Cluster& cluster,
                                       const Workload& workload, Seconds iteration_time) {
  const auto power = total_of(ir::devices_of(plan), cluster, &GpuType::power);
  if (!power) return std::nullopt;
  return *power * Seconds{1 / tokens_per_second(plan, workload, iteration_time)};
}

}  // namespace orrery::models
