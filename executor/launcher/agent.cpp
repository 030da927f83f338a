#include "executor/launcher/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <sstream>
#include <stdexcept>

#include "executor/launcher/places.h"
#include "executor/launcher/rank_process.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/settings.h"
#include "executor/net/store.h"
#include "executor/net/transport.h"

extern char** environ;  // NOLINT

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kOrderWait{10};
constexpr milliseconds kBeat{200};
/// For ranks to end by themselves after the end was ordered.
constexpr milliseconds kEndGrace{5'000};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

/// The caller's environment without our own variables.
std::vector<std::string> plain_environment() {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    if (std::strncmp(*at, "ORRERY_TOKEN=", 13) != 0) out.emplace_back(*at);
  }
  return out;
}

std::string ending(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

class Agent {
 public:
  explicit Agent(const AgentOptions& options)
      : options_(options), client_(options.store, options.token, options.wait) {}
  ~Agent() {
    for (const auto& [device, pid] : children_) {
      ::kill(pid, SIGKILL);
      int status = 0;
      while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
      }
    }
  }

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
          obey(*order);
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
    for (const BadPlace& place : find_bad_places(settings_from(*settings))) {
      problems += place.problem + "\n";
    }
    if (!problems.empty()) client_.set("refuse/" + options_.node, problems);
    client_.set("node/" + options_.node, boot_id());
    if (options_.on_joined) options_.on_joined(address());
  }

  std::string address() const { return options_.address.empty() ? "127.0.0.1" : options_.address; }

  void obey(const std::string& order) {
    std::istringstream words(order);
    std::string verb;
    std::int32_t device = -1;
    std::int64_t generation = 0;
    words >> verb >> device >> generation;
    const auto child = children_.find(device);
    if (verb == "kill" && child != children_.end()) ::kill(child->second, SIGKILL);
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
    std::vector<std::string> environment = plain_environment();
    for (std::string& one : to_environment(rank)) environment.push_back(std::move(one));
    std::vector<std::string> words = {options_.executable};
    if (const auto command = client_.get("rank", milliseconds(0))) {
      words.push_back(*command);
    } else {
      words.insert(words.end(), options_.arguments.begin(), options_.arguments.end());
    }
    const std::vector<char*> argv = pointers(words);
    const std::vector<char*> envp = pointers(environment);
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid == 0) {
      // Between fork and exec only what is safe in a process of many threads.
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(kStoreLost);
      ::signal(SIGINT, SIG_IGN);  // Ctrl-C is the launcher's.
      sigset_t none;
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      const int null = ::open("/dev/null", O_RDWR);
      ::dup2(null, STDIN_FILENO);
      ::dup2(STDERR_FILENO, STDOUT_FILENO);
      ::execve(argv[0], argv.data(), envp.data());
      ::_exit(127);
    }
    if (pid < 0) {
      note_exit(device, fmt::format("cannot be started: {}", std::strerror(errno)));
    } else {
      children_[device] = pid;
    }
  }

  void note_exit(std::int32_t device, const std::string& how) {
    client_.set(fmt::format("exit/{}/{}", device, exits_[device]++), how);
  }

  void reap() {
    for (auto it = children_.begin(); it != children_.end();) {
      int status = 0;
      if (::waitpid(it->second, &status, WNOHANG) != it->second) {
        ++it;
        continue;
      }
      const std::int32_t device = it->first;
      it = children_.erase(it);
      note_exit(device, ending(status));
    }
  }

  void kill_all() {
    for (const auto& [device, pid] : children_) ::kill(pid, SIGKILL);
  }

  const AgentOptions& options_;
  StoreClient client_;
  std::map<std::int32_t, pid_t> children_;
  std::map<std::int32_t, int> exits_;
};

}  // namespace

std::string own_executable() {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) {
    throw std::runtime_error(fmt::format("/proc/self/exe: {}", std::strerror(errno)));
  }
  return {path, static_cast<std::size_t>(length)};
}

void run_agent(const AgentOptions& options) { Agent(options).serve(); }

}  // namespace orrery::executor
