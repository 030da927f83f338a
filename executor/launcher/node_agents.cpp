#include "executor/launcher/node_agents.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <sstream>

#include "executor/launcher/agent.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// Between words about who is waited for.
constexpr milliseconds kWaitingWord{10'000};

}  // namespace

NodeAgents::~NodeAgents() {
  if (local_.joinable()) local_.join();
}

void NodeAgents::start(const Endpoint& here, const Endpoint& there, const std::string& token) {
  if (!o_.hosts.empty()) {
    remote_ = std::make_unique<RemoteAgents>(o_.hosts, there, o_.executable, token, o_.ssh, say_);
    return;
  }
  AgentOptions agent;
  agent.store = here;
  agent.token = token;
  agent.node = nodes_.front();
  agent.executable = o_.executable;
  agent.arguments = o_.arguments;
  local_ = std::thread([this, agent] {
    try {
      run_agent(agent);
    } catch (const std::exception& error) {
      const std::string what = fmt::format("this machine's agent ended: {}", error.what());
      say_(what);
      const std::lock_guard lock(mutex_);
      local_problem_ = what;
    }
  });
}

std::optional<NodeAgents::Problem> NodeAgents::await() {
  const bool started = remote_ == nullptr || remote_->all_started();
  const milliseconds wait = started ? o_.started_wait : o_.agents_wait;
  const auto deadline = Clock::now() + wait;
  auto next_word = Clock::now() + kWaitingWord;
  std::string lacking;
  for (const std::string& node : nodes_) {
    while (!client_.get("node/" + node, milliseconds(100))) {
      if (o_.interrupted != nullptr && *o_.interrupted) return std::nullopt;
      if (auto problem = ended()) return problem;
      if (Clock::now() > deadline) {
        return Problem{false,
                       fmt::format("no agent came from {} in {} s", node, wait.count() / 1000)};
      }
      if (Clock::now() < next_word) continue;
      say_(fmt::format("waiting for the agent of {}", node));
      next_word = Clock::now() + kWaitingWord;
    }
    if (!o_.hosts.empty()) say_(fmt::format("{} is here", node));
    const auto problems = client_.get("refuse/" + node, milliseconds(0));
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

std::optional<NodeAgents::Problem> NodeAgents::ended() {
  if (remote_ == nullptr) {
    const std::lock_guard lock(mutex_);
    return local_problem_.empty() ? std::nullopt : std::optional(Problem{false, local_problem_});
  }
  for (const auto& [host, how] : remote_->take_ended()) {
    return Problem{false, fmt::format("{} {} {} before it joined",
                                      o_.ssh ? "ssh to" : "the agent of", host, how)};
  }
  return std::nullopt;
}

}  // namespace orrery::executor
