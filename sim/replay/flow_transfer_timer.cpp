#include "sim/replay/flow_transfer_timer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "sim/flow/fork.h"
#include "sim/replay/device_renaming.h"

namespace orrery::sim {
namespace {

using Clock = std::chrono::steady_clock;

Seconds since(Clock::time_point start) {
  return Seconds{std::chrono::duration<double>(Clock::now() - start).count()};
}

/// Devices of the transfers, node by node; nodes by what their own devices send and take, so that
/// sets of transfers that are equal but for which node does what come in the same order. Whom a
/// peer sends to is not looked at.
std::vector<DeviceId> order_of(const std::vector<models::StateTransfer>& transfers,
                               const models::Cluster& cluster) {
  using End = std::tuple<ir::Location, ir::Location, bool, int, double>;
  std::vector<std::pair<std::vector<End>, int>> nodes(cluster.nodes.size());
  std::vector<bool> named(static_cast<std::size_t>(cluster.size()), false);
  for (const models::StateTransfer& transfer : transfers) {
    for (const bool takes : {false, true}) {
      const DeviceId device = takes ? transfer.destination : transfer.source;
      if (!device.valid()) continue;
      const models::Device& of = cluster.device(device);
      nodes[of.node.index()].first.emplace_back(transfer.from, transfer.to, takes, of.position,
                                                transfer.bytes.value);
      named[device.index()] = true;
    }
  }
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    std::sort(nodes[n].first.begin(), nodes[n].first.end());
    nodes[n].second = static_cast<int>(n);
  }
  std::sort(nodes.begin(), nodes.end());
  std::vector<DeviceId> order;
  for (const auto& [ends, node] : nodes) {
    if (ends.empty()) continue;
    for (const DeviceId device : cluster.devices_of(NodeId{node})) {
      if (named[device.index()]) order.push_back(device);
    }
  }
  return order;
}

}  // namespace

struct FlowTransferTimer::Flow {
  std::vector<LinkId> links;
  Seconds latency;
  Bytes bytes;
};

struct FlowTransferTimer::Memory {
  DeviceRenaming renaming;
  std::map<std::vector<models::StateTransfer>, Nanoseconds> known;
  RememberCounts counts;
};

FlowTransferTimer::FlowTransferTimer(const models::Cluster& cluster,
                                     const models::Topology& topology, const TransferPaths& paths,
                                     FlowEngine& engine, RememberOptions remember)
    : cluster_(cluster),
      paths_(paths),
      engine_(engine),
      memory_(new Memory{DeviceRenaming(cluster, topology, remember.ignore_leaves), {}, {}}) {}

FlowTransferTimer::~FlowTransferTimer() = default;

RememberCounts FlowTransferTimer::counts() const { return memory_->counts; }

Nanoseconds FlowTransferTimer::time(const std::vector<models::StateTransfer>& transfers) const {
  if (transfers.empty()) return {};
  Memory& memory = *memory_;
  ++memory.counts.asked;
  const Clock::time_point start = Clock::now();
  const std::vector<DeviceId> order = order_of(transfers, cluster_);
  const DeviceRenaming::Names names = memory.renaming.names(order, {});
  std::vector<models::StateTransfer> key = transfers;
  for (models::StateTransfer& transfer : key) {
    if (transfer.source.valid()) transfer.source = names.to[transfer.source.index()];
    if (transfer.destination.valid()) transfer.destination = names.to[transfer.destination.index()];
  }
  std::sort(key.begin(), key.end());
  const auto found = memory.known.find(key);
  memory.counts.naming += since(start);
  if (found != memory.known.end()) return found->second;
  const Clock::time_point begin = Clock::now();
  const Nanoseconds time = to_nanoseconds(compute(key));
  ++memory.counts.simulated;
  memory.counts.simulating += since(begin);
  memory.known.emplace(std::move(key), time);
  return time;
}

std::vector<FlowTransferTimer::Flow> FlowTransferTimer::flows_of(
    const std::vector<models::StateTransfer>& transfers) const {
  std::vector<Flow> flows;
  flows.reserve(transfers.size());
  for (const models::StateTransfer& transfer : transfers) {
    Flow& flow = flows.emplace_back();
    flow.bytes = transfer.bytes;
    paths_.path(transfer, flow.links, flow.latency);
  }
  return flows;
}

Seconds FlowTransferTimer::busiest_link(const std::vector<Flow>& flows) const {
  std::map<LinkId, Bytes> load;
  Seconds latency, busiest;
  for (const Flow& flow : flows) {
    latency = std::max(latency, flow.latency);
    for (const LinkId link : flow.links) load[link] += flow.bytes;
  }
  for (const auto& [link, bytes] : load) {
    busiest = std::max(busiest, bytes / paths_.bandwidth(link));
  }
  return busiest + latency;
}

Seconds FlowTransferTimer::simulate(const std::vector<Flow>& flows) const {
  const ForkResult delivered = run_forked([&] {
    std::vector<std::vector<LinkId>> links;
    for (const Flow& flow : flows) links.push_back(flow.links);
    paths_.assign(std::move(links));
    const Seconds start = engine_.now();
    std::vector<TaskId> tasks;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      const auto [source, destination] = paths_.ends(i);
      tasks.push_back(engine_.add_flow(source, destination, flows[i].bytes, flows[i].latency));
    }
    engine_.run();
    Seconds last;
    for (const TaskId task : tasks) last = std::max(last, engine_.end_time(task) - start);
    return std::string(reinterpret_cast<const char*>(&last.value), sizeof last.value);
  });
  if (const auto* failure = std::get_if<ChildFailure>(&delivered)) {
    throw std::runtime_error("simulation of transfers failed: " + failure->message);
  }
  const std::string& bytes = std::get<std::string>(delivered);
  Seconds last;
  ORRERY_CHECK(bytes.size() == sizeof last.value, "{} bytes from the forked simulator",
               bytes.size());
  std::memcpy(&last.value, bytes.data(), sizeof last.value);
  return last;
}

Seconds FlowTransferTimer::compute(const std::vector<models::StateTransfer>& transfers) const {
  const std::vector<Flow> flows = flows_of(transfers);
  if (flows.size() <= kMostFlows) return simulate(flows);
  const auto node_of = [&](DeviceId device) {
    return device.valid() ? cluster_.device(device).node : NodeId{};
  };
  using Pair = std::tuple<ir::Location, ir::Location, NodeId, NodeId>;
  std::map<Pair, Flow> merged;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const models::StateTransfer& transfer = transfers[i];
    const auto [at, is_new] = merged.try_emplace(
        Pair{transfer.from, transfer.to, node_of(transfer.source), node_of(transfer.destination)},
        flows[i]);
    if (is_new) continue;
    Flow& flow = at->second;
    flow.bytes += flows[i].bytes;
    flow.latency = std::max(flow.latency, flows[i].latency);
    std::erase_if(flow.links, [&](LinkId link) {
      return std::find(flows[i].links.begin(), flows[i].links.end(), link) == flows[i].links.end();
    });
  }
  const Seconds bound = busiest_link(flows);
  if (merged.size() > kMostFlows) return bound;
  std::vector<Flow> fewer;
  for (auto& [pair, flow] : merged) fewer.push_back(std::move(flow));
  return std::max(bound, simulate(fewer));
}

}  // namespace orrery::sim
