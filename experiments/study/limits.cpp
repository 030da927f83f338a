#include "experiments/study/limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/check/validate.h"
#include "models/cost/device_share.h"
#include "models/ir/names.h"

namespace orrery::experiments {
namespace {

constexpr double kLongestSeconds = 1e9;
constexpr double kSecondsPerYear = 365.25 * 86400;

/// Backward costs twice the forward pass, full recompute once more.
constexpr double kForwardPasses = 4;
/// Messages of a block's output size for each sample: to the next stage and back, and the
/// collectives of tensor parallelism in both passes with recompute.
constexpr double kMessages = 8;

std::string dtypes_of(const models::GpuType& gpu) {
  std::vector<std::string> names;
  for (const auto& [dtype, peak] : gpu.peak) {
    if (peak.value > 0) names.emplace_back(ir::name_of(dtype));
  }
  return names.empty() ? "no dtype" : fmt::format("{}", fmt::join(names, ", "));
}

/// Micro-batches x stages x chunks, once for each tensor-parallel group, or for each device.
double passes_of(const ir::Plan& plan, bool collapsed) {
  double passes = 0;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        std::size_t ranks = 0;
        for (const ir::Group& group : segment.groups) {
          ranks += collapsed ? 1 : group.devices.size();
        }
        passes += static_cast<double>(pipeline.micro_batches) * static_cast<double>(ranks);
      }
    }
  }
  return passes;
}

struct Slowest {
  double compute = std::numeric_limits<double>::infinity();  ///< FLOP/s.
  double memory = std::numeric_limits<double>::infinity();   ///< B/s.
  double network = std::numeric_limits<double>::infinity();  ///< B/s.
  double block = 0;  ///< Seconds: largest measured time of one block.
};

Slowest slowest_of(const RunSpec& spec, const models::Cluster& cluster, const ir::Profile& profile,
                   bool slowdowns) {
  Slowest least;
  for (const models::GpuType& gpu : cluster.gpu_types) {
    const double peak = models::peak_flops(gpu, spec.job.dtype).value;
    double efficiency = gpu.efficiency;
    for (const ir::EfficiencyCurve& curve : profile.efficiencies) {
      if (curve.gpu != gpu.name) continue;
      for (const auto& point : curve.points) efficiency = std::min(efficiency, point.efficiency);
    }
    least.compute = std::min(least.compute, peak * efficiency);
    least.memory = std::min(least.memory, gpu.memory_bandwidth.value * gpu.memory_efficiency);
  }
  for (const auto& [name, link] : cluster.links) {
    least.network = std::min(least.network, link.bandwidth.value * link.efficiency);
  }
  for (const models::PairOverride& pair : cluster.overrides) {
    if (pair.bandwidth) least.network = std::min(least.network, pair.bandwidth->value);
  }
  for (const models::HostStaging& pair : cluster.host_staging) {
    least.network = std::min(least.network, pair.bandwidth.value);
  }
  const models::Fabric& fabric = cluster.fabric;
  // Uplinks that are shares of NICs, of which none is slower than the slowest link.
  least.network /= std::max(1.0, fabric.leaf_oversubscription);
  if (fabric.leaf_uplink.value > 0) {
    least.network = std::min(least.network, fabric.leaf_uplink.value);
  }
  least.network /= std::max(1.0, fabric.spine_oversubscription);
  if (fabric.spine_uplink.value > 0) {
    least.network = std::min(least.network, fabric.spine_uplink.value);
  }
  for (const ir::LinkSegment& segment : profile.links) {
    least.network = std::min(least.network, segment.bandwidth.value);
  }
  for (const ir::BlockTime& time : profile.block_times) {
    least.block = std::max(least.block, time.time.value);
  }
  if (!slowdowns) return least;
  double straggler = 1;
  for (const auto& each : spec.simulation.stragglers) {
    straggler = std::max(straggler, each.slowdown);
  }
  double link = 1;
  for (const auto& each : spec.simulation.slow_links) link = std::max(link, each.slowdown);
  least.compute /= straggler;
  least.memory /= straggler;
  least.block *= straggler;
  least.network /= link;
  return least;
}

void check_dtypes(const RunSpec& spec, const models::Cluster& cluster,
                  config::Diagnostics& diagnostics) {
  for (const models::GpuType& gpu : cluster.gpu_types) {
    if (models::supported_dtype(gpu, spec.job.dtype)) continue;
    diagnostics.add(
        spec.cluster.at,
        fmt::format("{} of cluster '{}' computes neither {} nor a substitute; it has {}", gpu.name,
                    cluster.name, ir::name_of(spec.job.dtype), dtypes_of(gpu)),
        "choose another dtype for the job, or add its FLOP/s to the GPU's `peak`");
  }
}

void check_size(const RunSpec& spec, const ir::Plan& plan, const std::string& plan_file,
                config::Diagnostics& diagnostics) {
  const double passes = passes_of(plan, spec.collapsed);
  if (passes <= static_cast<double>(kMostPasses)) return;
  models::report({{"pipelines",
                   fmt::format("the plan has {:.3g} passes of micro-batches through stages, at "
                               "most {} can be simulated",
                               passes, kMostPasses),
                   "take larger micro-batches or a smaller batch"}},
                 plan_file, diagnostics);
}

/// A bound of an iteration's seconds, with and without the slowdowns of the simulation.
double most_seconds(const RunSpec& spec, const models::Cluster& cluster,
                    const models::Workload& workload, const ir::Profile& profile, bool slowdowns) {
  const Slowest slowest = slowest_of(spec, cluster, profile, slowdowns);
  double flops = 0;
  double traffic = 0;
  double messages = 0;
  double parameters = 0;
  for (const models::Block& block : workload.blocks) {
    flops += block.forward_flops.value;
    traffic += block.memory_traffic.value;
    messages += block.output_bytes.value;
    for (const models::Parameter& each : block.parameters) {
      parameters += static_cast<double>(each.elements);
    }
  }
  const auto samples = static_cast<double>(spec.job.global_batch);
  const double state_bytes = parameters * 32;  // read and written by the optimizer, or exchanged
  double seconds =
      samples * kForwardPasses * std::max(flops / slowest.compute, traffic / slowest.memory);
  seconds += samples * kForwardPasses * static_cast<double>(workload.size()) * slowest.block;
  seconds += state_bytes / slowest.memory;
  if (cluster.size() > 1) {
    seconds += (samples * kMessages * messages + state_bytes) / slowest.network;
  }
  return seconds;
}

void check_duration(const RunSpec& spec, const models::Cluster& cluster,
                    const models::Workload& workload, const ir::Profile& profile,
                    config::Diagnostics& diagnostics) {
  const double seconds = most_seconds(spec, cluster, workload, profile, true);
  if (seconds <= kLongestSeconds) return;
  const config::Position& slowed_at =
      spec.simulation.stragglers.empty() ? spec.slow_links_at : spec.stragglers_at;
  const bool slowed = !slowed_at.file.empty() &&
                      most_seconds(spec, cluster, workload, profile, false) <= kLongestSeconds;
  diagnostics.add(
      slowed ? slowed_at : spec.job_at,
      fmt::format(
          "on the slowest GPU and link of cluster '{}' an iteration could last {:.3g} years, "
          "more than the {:.0f} that the clock counts",
          cluster.name, seconds / kSecondsPerYear, kLongestSeconds / kSecondsPerYear),
      "look at batch, sequence length, peaks, bandwidths and slowdowns");
}

}  // namespace

void check_batch(const RunSpec& spec, const models::Cluster& cluster,
                 const models::Workload& workload, config::Diagnostics& diagnostics) {
  const int depth = std::max(1, std::min(workload.size() - 2, cluster.size()));
  const std::int64_t most = 2 * kMostPasses / depth;
  if (spec.job.global_batch <= most) return;
  diagnostics.add(spec.job_at,
                  fmt::format("global batch {}: plans for {} on {} GPUs can be searched up to {} "
                              "samples",
                              spec.job.global_batch, workload.name, cluster.size(), most),
                  "every micro-batch is simulated in every stage");
}

void check_limits(const RunSpec& spec, const models::Cluster& cluster,
                  const models::Workload& workload, const ir::Profile& profile,
                  const ir::Plan* plan, const std::string& plan_file,
                  config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  check_dtypes(spec, cluster, diagnostics);
  if (spec.planner) check_batch(spec, cluster, workload, diagnostics);
  if (plan != nullptr) check_size(spec, *plan, plan_file, diagnostics);
  if (diagnostics.problems().size() == before) {
    check_duration(spec, cluster, workload, profile, diagnostics);
  }
}

}  // namespace orrery::experiments
