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
/// Ops of a block's pass on a device.
constexpr double kOps = 16;
/// How often kernels may compute or move what a block needs once: tiles that are filled badly, and
/// what goes through memory between them.
constexpr double kKernelWaste = 256;
/// Kernels of a block's pass.
constexpr double kGaps = 64;
/// Links between two GPUs: of the domain, PCIe, NIC, at both ends.
constexpr double kHops = 6;
/// Of a message to the root of a tree of nodes and back.
constexpr double kTreeHops = 64;
/// Bytes: no library cuts tensors smaller (models/cost/collective_ways.h).
constexpr double kSmallestChunk = 32768;

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
  double block = 0;      ///< Seconds: largest measured time of one block.
  double op = 0;         ///< Seconds: largest fixed cost of one op.
  double message = 0;    ///< Seconds: largest latency between two GPUs.
  double optimizer = 0;  ///< Seconds: largest fixed cost of a step.
  double parameter = 0;  ///< Seconds: largest time of one parameter in it.
};

/// The largest `member` of all items.
template <class Items, class Member>
double largest(const Items& items, Member member) {
  double most = 0;
  for (const auto& item : items) most = std::max(most, member(item));
  return most;
}

/// Costs that do not depend on sizes.
void add_fixed(const models::Cluster& cluster, const ir::Profile& profile, Slowest& least) {
  least.op = largest(cluster.gpu_types, [](const auto& gpu) { return gpu.launch.value; }) +
             largest(profile.pass_overheads, [](const auto& each) { return each.time.value; });
  const double link =
      std::max(largest(cluster.links, [](const auto& each) { return each.second.latency.value; }),
               largest(profile.links, [](const auto& each) { return each.latency.value; }));
  const models::Fabric& fabric = cluster.fabric;
  least.message =
      kHops * link + 2 * (fabric.leaf_latency + fabric.spine_latency + fabric.core_latency).value +
      largest(cluster.overrides,
              [](const auto& pair) { return pair.latency.value_or(Seconds{0}).value; }) +
      largest(cluster.host_staging, [](const auto& pair) { return pair.latency.value; });
  for (const ir::KernelModel& kernels : profile.kernels) {
    least.op = std::max(least.op, kGaps * kernels.gap.value);
  }
  for (const ir::CollectiveWay& way : profile.collective_ways) {
    least.message = std::max(least.message, way.start.value + way.step.value);
  }
  least.optimizer = largest(profile.optimizers, [](const auto& each) { return each.fixed.value; });
  least.parameter =
      largest(profile.optimizers, [](const auto& each) { return each.per_parameter.value; });
}

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
    for (const ir::KernelModel& kernels : profile.kernels) {
      if (kernels.gpu != gpu.name) continue;
      const double slow = std::min({1.0, kernels.attention, kernels.unaligned}) / kKernelWaste;
      for (const ir::KernelModel::Product& product : kernels.products) {
        least.compute = std::min(least.compute, product.best.value * product.share * slow);
      }
      const double traffic = std::max(1.0, kernels.routing) * kKernelWaste;
      least.memory = std::min(least.memory, gpu.memory_bandwidth.value * kernels.memory / traffic);
    }
  }
  for (const ir::CollectiveWay& way : profile.collective_ways) {
    least.network = std::min(least.network, way.channels * way.channel_bandwidth.value);
    const double waits = way.start.value + kTreeHops * way.step.value;
    if (way.chunk.value > 0 && waits > 0) {
      const double chunk = std::min(way.chunk.value, kSmallestChunk);
      least.network = std::min(least.network, way.channels * chunk / waits);
    }
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
  add_fixed(cluster, profile, least);
  least.network /=
      std::max(1.0, largest(profile.collectives, [](const auto& each) { return each.factor; }));
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
  least.op *= straggler;
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
  // Read and written by the optimizer, or exchanged.
  const double state_bytes = parameters * std::max(32.0, 2 * spec.job.state_bytes.total());
  const double block_passes = samples * static_cast<double>(workload.size());
  double seconds =
      samples * kForwardPasses * std::max(flops / slowest.compute, traffic / slowest.memory);
  seconds += block_passes * kForwardPasses * (slowest.block + kOps * slowest.op);
  seconds += state_bytes / slowest.memory;
  seconds += slowest.optimizer + parameters * slowest.parameter;
  if (cluster.size() > 1) {
    seconds += (samples * kMessages * messages + state_bytes) / slowest.network;
    // Of each message, and of the steps of a ring of all devices for each block's gradients.
    seconds += slowest.message * (block_passes * kMessages +
                                  2.0 * cluster.size() * static_cast<double>(workload.size()));
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
      "look at batch, sequence length, peaks, bandwidths, latencies, fixed costs and slowdowns");
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

std::vector<std::string> substitute_notes(const models::Cluster& cluster, ir::Dtype dtype) {
  std::vector<std::string> notes;
  for (const models::GpuType& gpu : cluster.gpu_types) {
    const std::optional<ir::Dtype> used = models::supported_dtype(gpu, dtype);
    if (!used || *used == dtype) continue;
    notes.push_back(
        ir::of_products(dtype)
            ? fmt::format("{} has no {}: its layers are computed in {}; what is stored and sent "
                          "is bf16 everywhere, as in Transformer Engine",
                          gpu.name, ir::name_of(dtype), ir::name_of(*used))
            : fmt::format("{} has no {}: it computes in {}, while memory and messages are "
                          "counted as those of {}",
                          gpu.name, ir::name_of(dtype), ir::name_of(*used), ir::name_of(dtype)));
  }
  return notes;
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
