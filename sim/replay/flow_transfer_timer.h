/// Times of sets of state transfers, as flows that share the cluster's links and storage.
#pragma once
#include <cstddef>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "models/interfaces/transfer_timer.h"
#include "models/spec/cluster.h"
#include "models/spec/topology.h"
#include "sim/flow/engine.h"
#include "sim/flow/fork.h"
#include "sim/replay/iteration_timer.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::sim {

/// All transfers of a set start together, each is one flow on the links of TransferPaths, and flows
/// share links max-min. Sets that differ only by a renaming of interchangeable devices are
/// simulated once, under the names that all of them get.
///
/// Sets of more than kMostFlows transfers are simplified before:
/// 1. Transfers between the same two nodes (and places) become one flow, on the links that all of
///    them take. Shares of a common link then go to pairs of nodes, not to transfers.
/// 2. If that leaves too many, no flow is simulated.
/// In both cases the time is at least that of the busiest link: all bytes that it carries over its
/// bandwidth, plus the longest latency.
/// Each simulation runs in a forked copy of the process. Not for concurrent use.
class FlowTransferTimer final : public models::TransferTimer {
 public:
  static constexpr std::size_t kMostFlows = 4096;

  /// Keeps references. `engine` has the extension of `paths`.
  FlowTransferTimer(const models::Cluster& cluster, const models::Topology& topology,
                    const TransferPaths& paths, FlowEngine& engine, RememberOptions remember = {});
  ~FlowTransferTimer() override;

  /// Throws std::runtime_error if the forked copy fails.
  Nanoseconds time(const std::vector<models::StateTransfer>& transfers,
                   const models::DegradedLinks& degraded_links = {}) const override;
  /// Starts the simulation, if it is a new one; that of the set expected before is given up.
  void prefetch(const std::vector<models::StateTransfer>& transfers,
                const models::DegradedLinks& degraded_links) const override;
  RememberCounts counts() const;

 private:
  struct Flow;
  struct Memory;
  std::vector<Flow> flows_of(const std::vector<models::StateTransfer>& transfers) const;
  /// Bandwidths of links that are not as they are built.
  using Bandwidths = std::map<LinkId, BytesPerSecond>;
  Bandwidths bandwidths(const models::DegradedLinks& degraded) const;
  Seconds busiest_link(const std::vector<Flow>& flows, const Bandwidths& changed) const;
  ForkedRun simulate(const std::vector<Flow>& flows, const Bandwidths& changed) const;
  using Key = std::pair<std::vector<models::StateTransfer>, models::DegradedLinks>;
  Key name(const std::vector<models::StateTransfer>& transfers,
           const models::DegradedLinks& degraded_links) const;
  struct Running;
  Running start(const Key& key) const;
  Seconds join(Running running) const;

  const models::Cluster& cluster_;
  const models::Topology& topology_;
  const TransferPaths& paths_;
  FlowEngine& engine_;
  std::unique_ptr<Memory> memory_;
};

}  // namespace orrery::sim
