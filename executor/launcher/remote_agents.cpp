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

#include "models/base/check.h"

extern char** environ;  // NOLINT

namespace orrery::executor {
namespace {

/// For ssh to end after its agent did.
constexpr std::chrono::milliseconds kSshGrace{3'000};
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
  const std::string address = fmt::format("{}:{}", store.host, store.port);
  for (const HostSlots& host : hosts) {
    const std::string command = fmt::format("{} execute-agent --store {} --node {}",
                                            quoted(executable), address, quoted(host.name));
    if (!host.local_agent.empty()) {
      std::vector<std::string> words = {executable, "execute-agent", "--store",
                                        address,    "--node",        host.name};
      words.insert(words.end(), host.local_agent.begin(), host.local_agent.end());
      start(host.name, std::move(words), token, true);
    } else if (ssh) {
      std::vector<std::string> words = {"ssh"};
      for (const char* option : kSshOptions) words.insert(words.end(), {"-o", option});
      words.push_back(host.name);
      words.push_back("read -r ORRERY_TOKEN; export ORRERY_TOKEN; exec " + command);
      start(host.name, std::move(words), token, false);
    } else {
      all_started_ = false;
      say(fmt::format("on {}: ORRERY_TOKEN={} {}", host.name, token, command));
    }
  }
}

void RemoteAgents::start(const std::string& host, std::vector<std::string> words,
                         const std::string& token, bool here) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  // The pipe holds it: a process that ends before it reads makes no error here, take_ended() tells.
  const std::string line = token + "\n";
  ORRERY_CHECK(::write(ends[1], line.data(), line.size()) == static_cast<ssize_t>(line.size()),
               "a token of {} bytes", token.size());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** at = environ; *at != nullptr; ++at) variables.emplace_back(*at);
  if (here) variables.push_back("ORRERY_TOKEN=" + token);
  std::vector<char*> envp;
  for (std::string& variable : variables) envp.push_back(variable.data());
  envp.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);
    ::dup2(ends[0], STDIN_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::execvpe(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  ::close(ends[0]);
  ::close(ends[1]);
  if (pid < 0) {
    throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  }
  children_.emplace_back(host, pid);
}

std::vector<std::pair<std::string, std::string>> RemoteAgents::take_ended() {
  std::vector<std::pair<std::string, std::string>> out;
  for (auto it = children_.begin(); it != children_.end();) {
    int status = 0;
    if (::waitpid(it->second, &status, WNOHANG) != it->second) {
      ++it;
      continue;
    }
    const std::string how = WIFSIGNALED(status)
                                ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                : fmt::format("ended with status {}", WEXITSTATUS(status));
    out.emplace_back(it->first, how);
    it = children_.erase(it);
  }
  return out;
}

RemoteAgents::~RemoteAgents() {
  const auto deadline = std::chrono::steady_clock::now() + kSshGrace;
  for (const auto& [host, pid] : children_) {
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > deadline) ::kill(pid, SIGTERM);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
}

}  // namespace orrery::executor
