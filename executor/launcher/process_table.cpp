#include "executor/launcher/process_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kExitPoll{5};
/// For an agent to say goodbye before its heartbeat is looked at.
constexpr milliseconds kGoodbyeWait{100};

}  // namespace

ProcessTable::ProcessTable(StoreClient& client, const std::vector<HostSlots>& hosts,
                           const RunSettings& settings)
    : client_(client), hosts_(hosts), settings_(settings) {
  for (const HostSlots& host : hosts) nodes_.push_back(host.name);
  if (hosts.empty()) nodes_.emplace_back("local");
  node_orders_.resize(nodes_.size());
  node_pulses_.resize(nodes_.size());
}

int ProcessTable::node_of(std::int32_t device) const {
  int first = 0;
  for (std::size_t h = 0; h < hosts_.size(); ++h) {
    first += hosts_[h].slots;
    if (device < first) return static_cast<int>(h);
  }
  return 0;
}

std::vector<std::int32_t> ProcessTable::devices() const {
  std::vector<std::int32_t> out;
  for (const auto& [device, pulse] : alive_) out.push_back(device);
  return out;
}

void ProcessTable::order(const std::string& command) {
  client_.set(fmt::format("command/{}", orders_++), command);
}

void ProcessTable::order_node(int node, const std::string& command) {
  const auto index = static_cast<std::size_t>(node);
  client_.set(fmt::format("spawn/{}/{}", nodes_[index], node_orders_[index]++), command);
}

void ProcessTable::start(std::int32_t device, std::int64_t generation) {
  client_.remove(fmt::format("beat/{}", device));  // Of a process that had its place before.
  order_node(node_of(device), fmt::format("start {} {}", device, generation));
  alive_[device] = {};
}

void ProcessTable::kill(std::int32_t device) {
  order_node(node_of(device), fmt::format("kill {}", device));
  alive_.erase(device);
}

std::vector<std::pair<std::int32_t, std::string>> ProcessTable::take_exits() {
  std::vector<std::pair<std::int32_t, std::string>> out;
  for (const auto& [key, how] : client_.list("exit/")) {
    const std::int32_t device = std::stoi(key.substr(5));
    client_.remove(key);
    if (alive_.erase(device) > 0) out.emplace_back(device, how);
  }
  return out;
}

bool ProcessTable::is_silent(Pulse& pulse, const std::string& key,
                             const std::map<std::string, std::string>& beats) const {
  const auto now = Clock::now();
  const auto it = beats.find(key);
  if (it != beats.end() && it->second != pulse.beat) pulse = {it->second, now, true};
  const milliseconds limit =
      pulse.begun ? settings_.silence : std::max(settings_.silence, settings_.connect);
  return now - pulse.seen > limit;
}

std::vector<std::int32_t> ProcessTable::silent() {
  const auto beats = client_.list("beat/");
  std::vector<bool> silent_nodes;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    silent_nodes.push_back(is_silent(node_pulses_[n], "beat/node/" + nodes_[n], beats));
  }
  std::vector<std::int32_t> out;
  for (auto& [device, pulse] : alive_) {
    const bool silent = is_silent(pulse, fmt::format("beat/{}", device), beats);
    if (silent || silent_nodes[static_cast<std::size_t>(node_of(device))]) out.push_back(device);
  }
  return out;
}

bool ProcessTable::answers(int node, milliseconds limit) {
  const std::string key = "beat/node/" + nodes_[static_cast<std::size_t>(node)];
  const auto before = client_.get(key, milliseconds(0));
  const auto deadline = Clock::now() + limit;
  while (client_.get(key, milliseconds(0)) == before) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kExitPoll);
  }
  return true;
}

void ProcessTable::end(milliseconds limit) {
  order("stop");
  const auto begin = Clock::now();
  bool killed = false;
  while (!alive_.empty() && Clock::now() - begin < limit) {
    take_exits();
    if (!killed && Clock::now() - begin > limit / 2) {
      for (const auto& [device, pulse] : alive_) {
        order_node(node_of(device), fmt::format("kill {}", device));
      }
      killed = true;
    }
    std::this_thread::sleep_for(kExitPoll);
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) order_node(static_cast<int>(n), "end");
  // The store must live until the agents have heard that: those that are there, and still live.
  const auto until = Clock::now() + limit;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    if (!client_.get("node/" + nodes_[n], milliseconds(0))) continue;  // It never came.
    while (Clock::now() < until && !client_.get("bye/" + nodes_[n], kGoodbyeWait)) {
      if (is_silent(node_pulses_[n], "beat/node/" + nodes_[n], client_.list("beat/node/"))) break;
    }
  }
}

}  // namespace orrery::executor
