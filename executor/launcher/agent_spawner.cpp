#include "executor/launcher/agent_spawner.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <stdexcept>

#include "executor/launcher/agent.h"
#include "executor/net/socket.h"
#include "models/base/check.h"
#include "models/base/file.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kExitPoll{5};
/// Between looks at heartbeats.
constexpr milliseconds kHeartbeatLook{100};
/// For an agent to say goodbye before its heartbeat is looked at.
constexpr milliseconds kGoodbyeWait{100};
/// For ssh to end after its agent did, and for either to end when it is told to.
constexpr milliseconds kSshGrace{3'000};
/// Between words about who is waited for.
constexpr milliseconds kWaitingWord{10'000};
/// No questions to the terminal; a host that does not answer is given up after ten seconds, one
/// that has gone after forty-five. [ssh_config(5)]
constexpr const char* kSshOptions[] = {"BatchMode=yes", "ConnectTimeout=10",
                                       "ServerAliveInterval=15", "ServerAliveCountMax=3"};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

AgentSpawner::AgentSpawner(RunStore& store, const SpawnOptions& options)
    : store_(store), o_(options) {
  for (const HostSlots& host : o_.hosts) nodes_.push_back(host.name);
  if (o_.hosts.empty()) nodes_.emplace_back("local");
  orders_.resize(nodes_.size());
  node_pulses_.resize(nodes_.size());
  std::string names;
  for (const std::string& node : nodes_) names += node + "\n";
  store_.client().set("nodes", names);
}

AgentSpawner::~AgentSpawner() {
  try {
    end();
  } catch (const TransportError&) {
    // The connection to the store has failed, or all of it: remote agents notice when it goes, this
    // machine's has a connection of its own.
    abandoned_ = true;
  }
  if (local_agent_.joinable()) local_agent_.join();
  wait_for_agents();
  for (const auto& [host, agent] : agents_) {
    if (agent.pid() >= 0) agent.signal(SIGTERM);
  }
  wait_for_agents();  // One that is stopped does not hear a signal: its Subprocess kills it.
}

void AgentSpawner::wait_for_agents() {
  const auto deadline = Clock::now() + kSshGrace;
  for (auto& [host, agent] : agents_) {
    while (agent.pid() >= 0 && !agent.poll() && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
}

int AgentSpawner::node_of(std::int32_t device) const {
  int first = 0;
  for (std::size_t h = 0; h < o_.hosts.size(); ++h) {
    first += o_.hosts[h].slots;
    if (device < first) return static_cast<int>(h);
  }
  return 0;
}

std::optional<Spawner::Problem> AgentSpawner::prepare() {
  bool started = true;
  if (o_.hosts.empty()) {
    start_local_agent();
  } else {
    started = start_remote_agents();
  }
  const milliseconds wait = started ? o_.started_wait : o_.agents_wait;
  const auto deadline = Clock::now() + wait;
  auto next_word = Clock::now() + kWaitingWord;
  std::string lacking;
  for (const std::string& node : nodes_) {
    while (!store_.client().get("node/" + node, milliseconds(100))) {
      if (o_.is_interrupted()) return std::nullopt;
      if (const std::string ended = find_ended_agent(); !ended.empty()) {
        return Problem{false, o_.hosts.empty() ? ended : ended + " before it joined"};
      }
      if (Clock::now() > deadline) {
        return Problem{false,
                       fmt::format("no agent came from {} in {} s", node, wait.count() / 1000)};
      }
      if (Clock::now() < next_word) continue;
      o_.say(fmt::format("waiting for the agent of {}", node));
      next_word = Clock::now() + kWaitingWord;
    }
    if (!o_.hosts.empty()) o_.say(fmt::format("{} is here", node));
    const auto problems = store_.client().get("refuse/" + node, milliseconds(0));
    if (!problems) continue;
    std::istringstream lines(*problems);
    for (std::string line; std::getline(lines, line);) {
      lacking += (lacking.empty() ? "" : "; ") +
                 (o_.hosts.empty() ? line : fmt::format("{}: {}", node, line));
    }
  }
  if (lacking.empty()) return std::nullopt;
  return Problem{true, lacking};
}

void AgentSpawner::start_local_agent() {
  AgentOptions agent;
  agent.store = store_.for_this_machine();
  agent.token = store_.token();
  agent.node = nodes_.front();
  agent.executable = o_.executable;
  agent.arguments = o_.arguments;
  agent.interrupted = &abandoned_;
  local_agent_ = std::thread([this, agent] {
    try {
      run_agent(agent);
    } catch (const std::exception& error) {
      const std::string what = fmt::format("this machine's agent ended: {}", error.what());
      o_.say(what);
      const std::lock_guard lock(mutex_);
      local_problem_ = what;
    }
  });
}

bool AgentSpawner::start_remote_agents() {
  const Endpoint store = store_.for_others();
  const std::string address = fmt::format("{}:{}", store.host, store.port);
  bool all_started = true;
  std::string secret = fmt::format("ORRERY_TOKEN={} ", store_.token());
  std::string argument;
  if (!o_.token_file.empty()) {
    if (const auto problem = write_file_atomically(o_.token_file, store_.token() + "\n", 0600)) {
      throw std::runtime_error(*problem);
    }
    secret.clear();
    argument = " --token-file " + quoted(o_.token_file);
  }
  for (const HostSlots& host : o_.hosts) {
    const std::string command = fmt::format("{} execute-agent --store {} --node {}",
                                            quoted(o_.executable), address, quoted(host.name));
    if (!host.local_agent.empty()) {
      std::vector<std::string> words = {o_.executable, "execute-agent", "--store",
                                        address,       "--node",        host.name};
      words.insert(words.end(), host.local_agent.begin(), host.local_agent.end());
      start_agent(host.name, std::move(words), true);
    } else if (o_.ssh) {
      std::vector<std::string> words = {"ssh"};
      for (const char* option : kSshOptions) words.insert(words.end(), {"-o", option});
      words.insert(words.end(), {"--", host.name});
      words.push_back("read -r ORRERY_TOKEN; export ORRERY_TOKEN; exec " + command);
      start_agent(host.name, std::move(words), false);
    } else {
      all_started = false;
      o_.say(fmt::format("on {}: {}{}{}", host.name, secret, command, argument));
    }
  }
  return all_started;
}

void AgentSpawner::start_agent(const std::string& host, std::vector<std::string> words, bool here) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  const Socket from(ends[0]);
  const Socket to(ends[1]);
  // The pipe holds it: an agent that ends before it reads is noticed by find_ended_agent().
  const std::string line = store_.token() + "\n";
  ORRERY_CHECK(::write(to.fd(), line.data(), line.size()) == static_cast<ssize_t>(line.size()),
               "a token of {} bytes", line.size());
  SubprocessOptions child;
  child.command = std::move(words);
  child.environment = environment_without({"ORRERY_TOKEN"});
  if (here) child.environment->push_back("ORRERY_TOKEN=" + store_.token());
  child.in = from.fd();
  child.out = STDERR_FILENO;
  child.signals = ChildSignals::ignore_interrupt;
  child.death_signal = SIGKILL;  // It may wait for an answer of the store, which has gone as well.
  agents_[host] = Subprocess(child);
}

std::string AgentSpawner::find_ended_agent() {
  {
    const std::lock_guard lock(mutex_);
    if (!local_problem_.empty()) return local_problem_;
  }
  for (auto& [host, agent] : agents_) {
    const auto status = agent.poll();
    if (!status) continue;
    const std::string how = status->signal != 0
                                ? fmt::format("was killed by signal {}", status->signal)
                                : fmt::format("ended with status {}", status->code);
    return fmt::format("{} {} {}", o_.ssh ? "ssh to" : "the agent of", host, how);
  }
  return {};
}

void AgentSpawner::order(int node, const std::string& command) {
  const std::size_t index = node;
  store_.client().set(fmt::format("spawn/{}/{}", nodes_[index], orders_[index]++), command);
}

std::vector<std::int32_t> AgentSpawner::alive() const {
  std::vector<std::int32_t> out;
  for (const auto& [device, pulse] : pulses_) out.push_back(device);
  return out;
}

void AgentSpawner::start(std::int32_t device, std::int64_t generation) {
  // The heartbeat of a process that had this place before.
  store_.client().remove(fmt::format("beat/{}", device));
  order(node_of(device), fmt::format("start {} {}", device, generation));
  pulses_[device] = {};
}

void AgentSpawner::kill(std::int32_t device) {
  order(node_of(device), fmt::format("kill {}", device));
  pulses_.erase(device);
}

std::vector<Spawner::Ended> AgentSpawner::take_exits() {
  std::vector<Ended> out;
  for (const auto& [key, how] : store_.client().list("exit/")) {
    const std::int32_t device = std::stoi(key.substr(5));
    store_.client().remove(key);
    if (pulses_.erase(device) > 0) out.emplace_back(device, how);
  }
  return out;
}

std::vector<Spawner::Ended> AgentSpawner::take_ended() {
  std::vector<Ended> out = take_exits();
  if (Clock::now() < next_look_) return out;
  for (const std::int32_t device : find_silent()) {
    out.emplace_back(device, "silent");
    kill(device);
  }
  next_look_ = Clock::now() + kHeartbeatLook;
  return out;
}

bool AgentSpawner::is_silent(Pulse& pulse, const std::string& key,
                             const std::map<std::string, std::string>& beats) const {
  const auto now = Clock::now();
  const auto it = beats.find(key);
  if (it != beats.end() && it->second != pulse.beat) pulse = {it->second, now, true};
  const RunSettings& s = o_.settings;
  return now - pulse.seen > (pulse.begun ? s.silence : std::max(s.silence, s.connect));
}

std::vector<std::int32_t> AgentSpawner::find_silent() {
  const auto beats = store_.client().list("beat/");
  std::vector<bool> silent_nodes;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    silent_nodes.push_back(is_silent(node_pulses_[n], "beat/node/" + nodes_[n], beats));
  }
  std::vector<std::int32_t> out;
  for (auto& [device, pulse] : pulses_) {
    const bool silent = is_silent(pulse, fmt::format("beat/{}", device), beats);
    if (silent || silent_nodes[node_of(device)]) out.push_back(device);
  }
  return out;
}

bool AgentSpawner::answers(int node, milliseconds limit) {
  const std::string key = "beat/node/" + nodes_[node];
  const auto before = store_.client().get(key, milliseconds(0));
  const auto deadline = Clock::now() + limit;
  while (store_.client().get(key, milliseconds(0)) == before) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(kExitPoll);
  }
  return true;
}

void AgentSpawner::end() {
  store_.command("stop");
  const auto begin = Clock::now();
  bool killed = false;
  while (!pulses_.empty() && Clock::now() - begin < grace()) {
    take_exits();
    if (!killed && Clock::now() - begin > grace() / 2) {
      for (const auto& [device, pulse] : pulses_) {
        order(node_of(device), fmt::format("kill {}", device));
      }
      killed = true;
    }
    std::this_thread::sleep_for(kExitPoll);
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n) order(static_cast<int>(n), "end");
  // The store must live until the agents have heard that: those that are there, and still live.
  const auto until = Clock::now() + grace();
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    StoreClient& client = store_.client();
    if (!client.get("node/" + nodes_[n], milliseconds(0))) continue;  // It never came.
    while (Clock::now() < until && !client.get("bye/" + nodes_[n], kGoodbyeWait)) {
      if (is_silent(node_pulses_[n], "beat/node/" + nodes_[n], client.list("beat/node/"))) break;
    }
  }
}

}  // namespace orrery::executor
