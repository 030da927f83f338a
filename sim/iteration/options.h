/// How an iteration is simulated: noise, slow devices and links, and in which detail collectives
/// run. Everything here is part of the effective configuration of a run.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"

namespace orrery::config {
class Visitor;
}

namespace orrery::sim {

/// How collectives inside Forward and Backward ops take their time.
enum class InnerMode {
  automatic,    ///< closed_form for collapsed programs, aggregated for expanded ones.
  closed_form,  ///< Ring formula on the group's bottleneck; shares no link with anything else.
  aggregated,   ///< All collectives of an op as one set of flows after its compute.
  per_block,    ///< As often as the most frequent one repeats: a share of compute, then flows.
};
std::vector<std::pair<InnerMode, const char*>> enum_names(InnerMode);

/// How ring collectives between ranks become flows. Broadcast and all-to-all are always aggregated.
enum class RingMode {
  aggregated,  ///< One long flow for each edge.
  stepwise,  ///< Every step of every edge: step k + 1 of a member waits for what it got in step k.
};
std::vector<std::pair<RingMode, const char*>> enum_names(RingMode);

/// Whether pipelines that do the same are simulated once (sim/iteration/folding.h).
enum class FoldMode {
  automatic,  ///< Where it is exact (docs/equations.md).
  slices,  ///< So are flows of one transfer: exact too, but for the last bit (docs/equations.md).
  off,     ///< Never: the reference.
};
std::vector<std::pair<FoldMode, const char*>> enum_names(FoldMode);

/// A device whose compute ops take `slowdown` times as long.
struct Straggler {
  DeviceId device;
  double slowdown = 1;
};

/// A link that has 1 / `slowdown` of its bandwidth.
struct SlowLink {
  std::string link;  ///< Name in Topology::links().
  double slowdown = 1;
};

struct IterationOptions {
  /// Standard deviation of compute times relative to their mean. Each op's time is multiplied by a
  /// log-normal factor of mean 1, drawn for (seed, device, position in the rank's compute stream);
  /// a rank that represents several devices takes the largest of their products with `slowdown`.
  double jitter = 0;
  /// The same of all ops of a device together, drawn for (seed, device): how its speed differs from
  /// step to step. The devices of a step differ, so that the slowest of them sets its time.
  double step_jitter = 0;
  /// The same of the bytes of all flows from one device to another, drawn for (seed, pair).
  double link_jitter = 0;
  std::int64_t seed = 0;
  std::vector<Straggler> stragglers;  ///< Several for one device multiply.
  std::vector<SlowLink> slow_links;   ///< Several for one link multiply.
  InnerMode inner = InnerMode::automatic;
  RingMode ring = RingMode::aggregated;
  FoldMode fold = FoldMode::automatic;
  bool record_spans = true;
  bool record_memory = true;
  bool record_links = true;

  /// Whether devices or links have noise of their own.
  bool noisy() const { return jitter > 0 || step_jitter > 0 || link_jitter > 0; }
};

/// "3=1.5": a device and its factor.
bool from_scalar(const std::string& text, Straggler& out, std::string& error);
/// "a800/nic0/up=2": a link and its factor.
bool from_scalar(const std::string& text, SlowLink& out, std::string& error);
void describe(config::Visitor& v, Straggler& straggler);
void describe(config::Visitor& v, SlowLink& link);
void describe(config::Visitor& v, IterationOptions& options);

/// What in `options` does not fit the cluster (unknown device or link, a slowdown out of range), in
/// words; else empty.
std::vector<std::string> find_problems(const IterationOptions& options,
                                       const models::Cluster& cluster,
                                       const models::Topology& topology);

}  // namespace orrery::sim
