/// Times of sets of state transfers: flows that share the cluster's links and storage.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "models/interfaces/transfer_timer.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"
#include "sim/flow/engine.h"
#include "sim/replay/remembered.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

/// All transfers of a set start together, each is one flow on the links of TransferPaths, and flows
/// share links max-min. Sets that differ only by a renaming of interchangeable devices are
/// simulated once, under the names that all of them get.
///
/// Sets of more than kMostFlows transfers are simplified first:
/// 1. Transfers between the same two nodes and locations become one flow, on the links that all of
///    them take. A common link is then shared by pairs of nodes rather than by transfers.
/// 2. If that leaves too many, no flow is simulated.
/// In both cases the time is at least that of the busiest link: all bytes that it carries over its
/// bandwidth, plus the longest latency.
/// Each simulation runs in a forked copy of the process. Not for concurrent use.
class FlowTransferTimer final : public models::TransferTimer {
 public:
  static constexpr std::size_t kMostFlows = 4096;

  /// Keeps references. `engine` has the extension of `paths`. `context`: what a store of answers
  /// must know of cluster and engine (transfer_context()); may be empty without one.
  FlowTransferTimer(const models::Cluster& cluster, const models::Topology& topology,
                    const TransferPaths& paths, FlowEngine& engine, CacheOptions cache = {},
                    std::string context = {});
  ~FlowTransferTimer() override;

  /// Throws std::runtime_error if the forked copy fails.
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& degraded_links = {}) const override;
  CacheCounts counts() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::sim
