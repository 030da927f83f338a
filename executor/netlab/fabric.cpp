#include "executor/netlab/fabric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/base/check.h"

namespace orrery::executor {
namespace {

/// What a pair of nodes may send in its turn before the next has its own.
constexpr std::int64_t kTurnBytes = kNetlabMtu;

}  // namespace

NetlabFabric::NetlabFabric(const NetlabSpec& spec, std::int64_t queue_bytes)
    : nodes_(spec.nodes.size()),
      queue_bytes_(queue_bytes),
      paths_(nodes_ * nodes_),
      drops_(nodes_, 0) {
  struct Duplex {
    std::size_t up, down;
  };
  std::vector<Duplex> ports, uplinks;
  for (const NetlabNode& node : spec.nodes) {
    const std::size_t up = add_server(node.rate);
    ports.push_back({up, add_server(node.rate)});
  }
  for (const NetlabUplink& uplink : spec.uplinks) {
    const std::size_t up = add_server(uplink.rate);
    uplinks.push_back({up, add_server(uplink.rate)});
  }
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> limits;
  for (const NetlabPair& pair : spec.pairs) {
    if (!pair.rate) continue;
    const auto a = pair.a, b = pair.b;
    limits[{a, b}] = add_server(*pair.rate);
    limits[{b, a}] = add_server(*pair.rate);
  }
  for (std::size_t from = 0; from < nodes_; ++from) {
    for (std::size_t to = 0; to < nodes_; ++to) {
      if (from == to) continue;
      Path& path = paths_[from * nodes_ + to];
      const int out = spec.nodes[from].uplink, in = spec.nodes[to].uplink;
      path.latency = std::llround(
          1e9 * netlab_latency(spec, static_cast<int>(from), static_cast<int>(to)).value);
      path.servers.push_back(ports[from].up);
      if (out != in && out >= 0) path.servers.push_back(uplinks[out].up);
      if (const auto limit = limits.find({from, to}); limit != limits.end()) {
        path.servers.push_back(limit->second);
      }
      if (out != in && in >= 0) path.servers.push_back(uplinks[in].down);
      path.servers.push_back(ports[to].down);
    }
  }
}

std::size_t NetlabFabric::add_server(BytesPerSecond rate) {
  servers_.push_back({1e9 / rate.value, 0, {}, {}});
  return servers_.size() - 1;
}

void NetlabFabric::post(std::int64_t time, What what, std::size_t index) {
  events_.push({time, sequence_++, what, index});
}

/// The frame is carried now, on its way from the server in front at `last` whole.
void NetlabFabric::carry(Server& server, std::size_t slot, std::int64_t last) {
  Transit& transit = transits_[slot];
  const std::int64_t duration =
      std::llround(static_cast<double>(transit.frame.wire_bytes) * server.ns_per_byte);
  transit.first = std::max(server.free, transit.first);
  server.free = std::max(last, transit.first + duration);
  const std::int64_t latency =
      transit.passed == 0 ? paths_[key(transit.frame)].latency + transit.held : 0;
  transit.first += latency;
  ++transit.passed;
  post(server.free + latency, What::arrival, slot);
}

/// The frame's last byte is at its next server. False: the queue is full.
bool NetlabFabric::arrive(std::size_t slot, std::int64_t last) {
  const Transit& transit = transits_[slot];
  const std::size_t pair = key(transit.frame);
  const std::size_t index = paths_[pair].servers[transit.passed];
  Server& server = servers_[index];
  if (server.turns.empty() && server.free <= last) {
    carry(server, slot, last);
    return true;
  }
  const auto found = server.queues.find(pair);
  const std::int64_t waiting = found == server.queues.end() ? 0 : found->second.bytes;
  if (waiting + transit.frame.wire_bytes > queue_bytes_) return false;
  Queue& queue = server.queues[pair];
  if (queue.frames.empty()) {
    if (server.turns.empty()) post(server.free, What::ready, index);
    server.turns.push_back(pair);
  }
  queue.frames.push_back({slot, last});
  queue.bytes += transit.frame.wire_bytes;
  return true;
}

/// The server has carried its last frame, and others wait.
void NetlabFabric::take_next(std::size_t index) {
  Server& server = servers_[index];
  while (true) {
    const std::size_t pair = server.turns.front();
    Queue& queue = server.queues[pair];
    const Queue::Waiting next = queue.frames.front();
    const std::int64_t bytes = transits_[next.slot].frame.wire_bytes;
    if (queue.credit < bytes) {
      queue.credit += kTurnBytes;
      server.turns.pop_front();
      server.turns.push_back(pair);
      continue;
    }
    queue.credit -= bytes;
    queue.bytes -= bytes;
    queue.frames.pop_front();
    if (queue.frames.empty()) {
      server.turns.pop_front();
      server.queues.erase(pair);
    }
    carry(server, next.slot, next.last);
    if (!server.turns.empty()) post(server.free, What::ready, index);
    return;
  }
}

void NetlabFabric::release(std::size_t slot) {
  transits_[slot].frame.data = {};
  unused_.push_back(slot);
}

void NetlabFabric::drop(std::size_t slot) {
  ++drops_[transits_[slot].frame.from];
  release(slot);
}

bool NetlabFabric::offer(NetlabFrame frame, std::int64_t now, std::int64_t held) {
  ORRERY_CHECK(frame.from != frame.to && std::min(frame.from, frame.to) >= 0 &&
                   std::max(frame.from, frame.to) < static_cast<int>(nodes_),
               "a frame from node {} to node {} of {}", frame.from, frame.to, nodes_);
  std::size_t slot = transits_.size();
  if (unused_.empty()) {
    transits_.emplace_back();
  } else {
    slot = unused_.back();
    unused_.pop_back();
  }
  transits_[slot] = {std::move(frame), now, 0, held};
  if (arrive(slot, now)) return true;
  drop(slot);
  return false;
}

std::optional<std::int64_t> NetlabFabric::next_event() const {
  return events_.empty() ? std::nullopt : std::optional(events_.top().time);
}

void NetlabFabric::advance(std::int64_t now, const Deliver& deliver) {
  while (!events_.empty() && events_.top().time <= now) {
    const Event event = events_.top();
    events_.pop();
    if (event.what == What::ready) {
      take_next(event.index);
      continue;
    }
    Transit& transit = transits_[event.index];
    if (transit.passed < paths_[key(transit.frame)].servers.size()) {
      if (!arrive(event.index, event.time)) drop(event.index);
    } else {
      deliver(transit.frame, event.time);
      release(event.index);
    }
  }
}

}  // namespace orrery::executor
