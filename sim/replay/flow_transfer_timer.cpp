#include "sim/replay/flow_transfer_timer.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "models/base/check.h"
#include "sim/flow/fork.h"
#include "sim/replay/device_renaming.h"
#include "sim/replay/question.h"

namespace orrery::sim {
namespace {

/// Devices of the transfers, node by node; nodes in the order of what their own devices send and
/// receive, so that equal sets of transfers between other nodes come in the same order. Which peer
/// a device sends to does not count.
std::vector<DeviceId> devices_by_node(const std::vector<models::StateTransfer>& transfers,
                                      const models::Cluster& cluster) {
  using End = std::tuple<ir::Location, ir::Location, bool, int, double>;
  std::vector<std::pair<std::vector<End>, int>> nodes(cluster.nodes.size());
  IdVector<DeviceId, bool> named(cluster.devices.size(), false);
  for (const models::StateTransfer& transfer : transfers) {
    for (const bool receives : {false, true}) {
      const DeviceId device = receives ? transfer.destination : transfer.source;
      if (!device.valid()) continue;
      const models::Device& of = cluster.device(device);
      nodes[of.node.index()].first.emplace_back(transfer.from, transfer.to, receives, of.position,
                                                transfer.bytes.value);
      named[device] = true;
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
      if (named[device]) order.push_back(device);
    }
  }
  return order;
}

}  // namespace

class FlowTransferTimer::Impl {
 public:
  using Transfers = std::vector<models::StateTransfer>;

  Impl(const models::Cluster& cluster, const models::Topology& topology, const TransferPaths& paths,
       FlowEngine& engine, CacheOptions cache, std::string context)
      : cluster_(cluster),
        topology_(topology),
        paths_(paths),
        engine_(engine),
        renaming_(cluster, topology, cache.ignore_leaves),
        answers_(cache.answers, std::move(context)) {}

  Nanoseconds time(const Transfers& transfers, const models::DegradedLinks& degraded_links) {
    Question asked;
    return answers_
        .get(
            [&](ByteWriter& out) {
              asked = name(transfers, degraded_links);
              put(out, asked);
            },
            [&] { return Answer{to_nanoseconds(simulate(asked))}; })
        .time;
  }
  const CacheCounts& counts() const { return answers_.counts(); }

 private:
  struct Question {
    Transfers transfers;
    models::DegradedLinks degraded_links;
  };
  struct Answer {
    Nanoseconds time;
    void put(ByteWriter& out) const { out.put(time.count); }
    static Answer get(ByteReader& in) { return {{in.get<std::int64_t>()}}; }
  };
  struct Flow {
    std::vector<LinkId> links;
    Seconds latency;
    Bytes bytes;
  };
  /// Bandwidths of links that are slower than they are built.
  using Bandwidths = std::map<LinkId, BytesPerSecond>;

  static void put(ByteWriter& out, const Question& question) {
    sim::put(out, question.transfers);
    sim::put(out, question.degraded_links);
  }

  Question name(const Transfers& transfers, const models::DegradedLinks& degraded_links) const {
    DeviceRenaming::Names names =
        renaming_.names(devices_by_node(transfers, cluster_), degraded_links);
    Question question{transfers, std::move(names.degraded_links)};
    for (models::StateTransfer& transfer : question.transfers) {
      for (DeviceId* end : {&transfer.source, &transfer.destination}) {
        if (end->valid()) *end = names.to[*end];
      }
    }
    std::sort(question.transfers.begin(), question.transfers.end());
    return question;
  }

  Seconds simulate(const Question& question) const {
    const std::vector<models::StateTransfer>& transfers = question.transfers;
    const Bandwidths changed = bandwidths(question.degraded_links);
    const std::vector<Flow> flows = flows_of(transfers);
    if (flows.size() <= kMostFlows) return simulate(flows, changed);
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
        return std::find(flows[i].links.begin(), flows[i].links.end(), link) ==
               flows[i].links.end();
      });
    }
    const Seconds bound = busiest_link(flows, changed);
    if (merged.size() > kMostFlows) return bound;
    std::vector<Flow> fewer;
    for (auto& [pair, flow] : merged) fewer.push_back(std::move(flow));
    return std::max(bound, simulate(fewer, changed));
  }

  std::vector<Flow> flows_of(const Transfers& transfers) const {
    std::vector<Flow> flows;
    flows.reserve(transfers.size());
    for (const models::StateTransfer& transfer : transfers) {
      Flow& flow = flows.emplace_back();
      flow.bytes = transfer.bytes;
      paths_.path(transfer, flow.links, flow.latency);
    }
    return flows;
  }

  Bandwidths bandwidths(const models::DegradedLinks& degraded) const {
    Bandwidths changed;
    for (const auto& [name, factor] : degraded) {
      const LinkId id = topology_.find(name);
      if (id.valid()) changed[id] = topology_.links()[id].bandwidth * factor;
    }
    return changed;
  }

  Seconds busiest_link(const std::vector<Flow>& flows, const Bandwidths& changed) const {
    std::map<LinkId, Bytes> load;
    Seconds latency, busiest;
    for (const Flow& flow : flows) {
      latency = std::max(latency, flow.latency);
      for (const LinkId link : flow.links) load[link] += flow.bytes;
    }
    for (const auto& [link, bytes] : load) {
      const auto slow = changed.find(link);
      const BytesPerSecond bandwidth =
          slow == changed.end() ? paths_.bandwidth(link) : slow->second;
      busiest = std::max(busiest, bytes / bandwidth);
    }
    return busiest + latency;
  }

  Seconds simulate(const std::vector<Flow>& flows, const Bandwidths& changed) const {
    const ForkResult delivered = run_forked([&] {
      std::vector<std::vector<LinkId>> links;
      for (const Flow& flow : flows) links.push_back(flow.links);
      paths_.assign(std::move(links));
      for (const auto& [link, bandwidth] : changed) engine_.set_link_bandwidth(link, bandwidth);
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

  const models::Cluster& cluster_;
  const models::Topology& topology_;
  const TransferPaths& paths_;
  FlowEngine& engine_;
  DeviceRenaming renaming_;
  Remembered<Answer> answers_;
};

FlowTransferTimer::FlowTransferTimer(const models::Cluster& cluster,
                                     const models::Topology& topology, const TransferPaths& paths,
                                     FlowEngine& engine, CacheOptions cache, std::string context)
    : impl_(std::make_unique<Impl>(cluster, topology, paths, engine, cache, std::move(context))) {}

FlowTransferTimer::~FlowTransferTimer() = default;

Nanoseconds FlowTransferTimer::time(const std::vector<models::StateTransfer>& transfers,
                                    const models::DegradedLinks& degraded_links) const {
  return transfers.empty() ? Nanoseconds{} : impl_->time(transfers, degraded_links);
}

CacheCounts FlowTransferTimer::counts() const { return impl_->counts(); }

}  // namespace orrery::sim
