#include "executor/launcher/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <map>
#include <optional>
#include <sstream>
#include <system_error>

#include "executor/launcher/messages.h"
#include "executor/launcher/paths.h"
#include "executor/launcher/rank.h"
#include "executor/launcher/settings.h"
#include "executor/net/message.h"
#include "executor/net/store.h"
#include "executor/net/transport.h"
#include "models/base/subprocess.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOrderWait{10};
constexpr milliseconds kBeat{200};
/// For ranks to end by themselves after the end was ordered.
constexpr milliseconds kEndGrace{5'000};

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options), client_(options.store, options.token, options.wait) {}

  void serve() {
    introduce();
    std::int64_t beats = 0;
    Clock::time_point next_beat = Clock::now();
    std::optional<Clock::time_point> end;
    for (std::int64_t n = 0; !end || !children_.empty();) {
      if (Clock::now() >= next_beat) {
        client_.set("beat/node/" + options_.node, std::to_string(++beats));
        next_beat = Clock::now() + kBeat;
      }
      const auto order = client_.get(fmt::format("spawn/{}/{}", options_.node, n), kOrderWait);
      if (order) {
        ++n;
        if (*order == "end") {
          end = Clock::now() + kEndGrace;
        } else {
          apply(*order);
        }
      }
      reap();
      const bool interrupted = options_.interrupted != nullptr && *options_.interrupted;
      if (interrupted || (end && Clock::now() > *end)) kill_all();
      if (interrupted) return;
    }
    try {
      client_.set("bye/" + options_.node, "1");
    } catch (const TransportError&) {
      // The launcher may go as soon as it has heard this: there is nothing more to say.
    }
  }

 private:
  void introduce() {
    const auto nodes = client_.get("nodes", kEndGrace);
    const auto settings = client_.get("settings", kEndGrace);
    if (!nodes || !settings) throw AgentRefused("the launcher names no nodes");
    bool known = false;
    std::string names;
    std::istringstream lines(*nodes);
    for (std::string name; std::getline(lines, name);) {
      known = known || name == options_.node;
      names += (names.empty() ? "" : ", ") + name;
    }
    if (!known) {
      throw AgentRefused(
          fmt::format("the launcher has no node '{}', it has {}", options_.node, names));
    }
    if (client_.add("claim/" + options_.node, 1) > 1) {
      throw AgentRefused(fmt::format("node '{}' has an agent already", options_.node));
    }
    std::string problems;
    try {
      const Listener here(address());  // As each rank will.
    } catch (const TransportError& error) {
      problems += fmt::format("{}\n", error.what());
    }
    for (const PathProblem& path :
         find_path_problems(from_message<RunSettings>(*settings, "settings"))) {
      problems += path.problem + "\n";
    }
    if (!problems.empty()) client_.set("refuse/" + options_.node, problems);
    client_.set("node/" + options_.node, boot_id());
    if (options_.on_joined) options_.on_joined(address());
  }

  std::string address() const { return options_.address.empty() ? "127.0.0.1" : options_.address; }

  void apply(const std::string& order) {
    std::istringstream words(order);
    std::string verb;
    std::int32_t device = -1;
    std::int64_t generation = 0;
    words >> verb >> device >> generation;
    const auto child = children_.find(device);
    if (verb == "kill" && child != children_.end()) child->second.signal(SIGKILL);
    if (verb == "start" && child == children_.end()) start(device, generation);
  }

  void start(std::int32_t device, std::int64_t generation) {
    RankEnvironment rank;
    rank.store = options_.store;
    rank.token = options_.token;
    rank.device = device;
    rank.node = options_.node;
    rank.address = address();
    rank.generation = generation;
    SubprocessOptions child;
    child.command = {options_.executable};
    if (const auto command = client_.get("rank", milliseconds(0))) {
      child.command.push_back(*command);
    } else {
      child.command.insert(child.command.end(), options_.arguments.begin(),
                           options_.arguments.end());
    }
    child.environment = environment_without({"ORRERY_TOKEN"});
    for (std::string& one : to_environment(rank)) child.environment->push_back(std::move(one));
    child.in = null_.fd();
    child.out = STDERR_FILENO;
    child.signals = ChildSignals::ignore_interrupt;  // Ctrl-C is the launcher's.
    child.death_signal = SIGKILL;
    try {
      children_[device] = Subprocess(child);
    } catch (const std::system_error& error) {
      children_.erase(device);
      note_exit(device, fmt::format("cannot be started: {}", error.what()));
    }
  }

  void note_exit(std::int32_t device, const std::string& how) {
    client_.set(fmt::format("exit/{}/{}", device, exits_[device]++), how);
  }

  void reap() {
    for (auto it = children_.begin(); it != children_.end();) {
      const auto status = it->second.poll();
      if (!status) {
        ++it;
        continue;
      }
      const std::int32_t device = it->first;
      it = children_.erase(it);
      note_exit(device, in_words(*status));
    }
  }

  void kill_all() {
    for (const auto& [device, child] : children_) child.signal(SIGKILL);
  }

  const AgentOptions& options_;
  StoreClient client_;
  const Socket null_{::open("/dev/null", O_RDWR | O_CLOEXEC)};
  std::map<std::int32_t, Subprocess> children_;
  std::map<std::int32_t, int> exits_;
};

}  // namespace

void run_agent(const AgentOptions& options) { Agent(options).serve(); }

}  // namespace orrery::executor
