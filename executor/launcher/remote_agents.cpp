#include "executor/launcher/remote_agents.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <thread>

namespace orrery::executor {
namespace {

/// For ssh to end after its agent did.
constexpr std::chrono::milliseconds kGrace{3'000};

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string own_host_name() {
  char name[256] = {};
  if (::gethostname(name, sizeof name - 1) != 0) {
    throw std::runtime_error(fmt::format("gethostname: {}", std::strerror(errno)));
  }
  return name;
}

RemoteAgents::RemoteAgents(const std::vector<HostSlots>& hosts, const Endpoint& store,
                           const std::string& executable, const std::string& token, bool ssh,
                           const std::function<void(const std::string&)>& say) {
  for (const HostSlots& host : hosts) {
    const std::string command =
        fmt::format("{} execute-agent --store {}:{} --node {}", quoted(executable), store.host,
                    store.port, quoted(host.name));
    if (ssh) {
      start(host.name, "read -r ORRERY_TOKEN; export ORRERY_TOKEN; exec " + command, token);
    } else {
      say(fmt::format("on {}: ORRERY_TOKEN={} {}", host.name, token, command));
    }
  }
}

void RemoteAgents::start(const std::string& host, const std::string& command,
                         const std::string& token) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  std::string words[] = {"ssh", "-o", "BatchMode=yes", host, command};
  char* argv[] = {words[0].data(), words[1].data(), words[2].data(),
                  words[3].data(), words[4].data(), nullptr};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);
    ::dup2(ends[0], STDIN_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvp("ssh", argv);
    ::_exit(127);
  }
  ::close(ends[0]);
  if (pid < 0) {
    ::close(ends[1]);
    throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  }
  children_.push_back(pid);
  const std::string line = token + "\n";
  const ssize_t written = ::write(ends[1], line.data(), line.size());
  ::close(ends[1]);
  if (written != static_cast<ssize_t>(line.size())) {
    throw std::runtime_error(fmt::format("ssh {} takes no token", host));
  }
}

RemoteAgents::~RemoteAgents() {
  const auto deadline = std::chrono::steady_clock::now() + kGrace;
  for (const pid_t pid : children_) {
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace orrery::executor
