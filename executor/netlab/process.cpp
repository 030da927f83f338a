#include "executor/netlab/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <thread>

#include "executor/netlab/error.h"
#include "models/base/file.h"

namespace orrery::executor {
namespace {

constexpr int kNotStarted = 127;

/// The process itself: standard input and output are the channel, nothing else stays open.
[[noreturn]] void become(int channel, const std::vector<std::string>& command,
                         const std::function<int()>& body) {
  const int nothing = open("/dev/null", O_RDWR);
  dup2(channel, STDIN_FILENO);
  dup2(channel, STDOUT_FILENO);
  dup2(nothing, STDERR_FILENO);
  close_range(STDERR_FILENO + 1, ~0U, 0);
  if (chdir("/") != 0) _exit(kNotStarted);
  if (command.empty()) _exit(body());
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  execv(words.front(), words.data());
  _exit(kNotStarted);
}

}  // namespace

ProcessId find_process(int pid) {
  std::string text;
  if (pid <= 0 || read_file(fmt::format("/proc/{}/stat", pid), text)) return {};
  // The name, in parentheses, may hold anything; fields are counted from behind it.
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return {};
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  constexpr int kState = 3, kStartTime = 22;
  for (int number = kState; fields >> field; ++number) {
    if (number == kState && (field == "Z" || field == "X")) return {};
    if (number == kStartTime) return {pid, std::stoll(field)};
  }
  return {};
}

bool is_running(const ProcessId& process) {
  if (process.pid <= 0) return false;
  const ProcessId now = find_process(process.pid);
  return now.pid == process.pid && now.start_tick == process.start_tick;
}

void end_process(const ProcessId& process, std::chrono::milliseconds patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  constexpr std::chrono::seconds kLast(10);  // SIGKILL works sooner on any machine that lives
  int signal = SIGTERM;
  while (is_running(process)) {
    const auto waited = Clock::now() - start;
    if (waited > patience) signal = SIGKILL;
    if (kill(process.pid, signal) != 0 && errno != ESRCH) {
      throw_netlab(fmt::format("end process {}", process.pid), errno);
    }
    if (waited > patience + kLast) {
      throw NetlabError(fmt::format("process {} does not end", process.pid));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

Detached start_detached(const std::vector<std::string>& command, const std::function<int()>& body) {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw_netlab("open a socket pair", errno);
  }
  Socket ours(ends[0]), theirs(ends[1]);
  // The first child ends at once, so that the second belongs to no one who must wait for it.
  const pid_t first = fork();
  if (first < 0) throw_netlab("start a process", errno);
  if (first == 0) {
    setsid();
    const pid_t second = fork();
    if (second == 0) become(theirs.fd(), command, body);
    const bool told = second > 0 && write(theirs.fd(), &second, sizeof second) == sizeof second;
    _exit(told ? 0 : kNotStarted);
  }
  theirs.close();
  while (waitpid(first, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_t second = 0;
  if (read(ours.fd(), &second, sizeof second) != sizeof second) {
    throw NetlabError("cannot start a process");
  }
  return {find_process(second), std::move(ours)};
}

}  // namespace orrery::executor
