#include "executor/netlab/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "executor/netlab/error.h"
#include "models/base/file.h"
#include "models/base/subprocess.h"

namespace orrery::executor {

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
  const Socket null(open("/dev/null", O_RDWR | O_CLOEXEC));
  SubprocessOptions child;
  child.command = command;
  if (command.empty()) child.body = body;
  child.folder = "/";
  child.in = child.out = theirs.fd();
  child.err = null.fd();
  child.close_other_files = true;
  // The middle one ends at once, so that the child belongs to no one who must wait for it.
  SubprocessOptions middle;
  middle.body = [&] {
    setsid();
    const pid_t pid = Subprocess(child).release();
    return write(theirs.fd(), &pid, sizeof pid) == sizeof pid ? 0 : kCannotStart;
  };
  try {
    Subprocess(middle).wait();
  } catch (const std::system_error& error) {
    throw_netlab("start a process", error.code().value());
  }
  theirs.close();
  pid_t pid = 0;
  if (read(ours.fd(), &pid, sizeof pid) != sizeof pid) throw NetlabError("cannot start a process");
  return {find_process(pid), std::move(ours)};
}

}  // namespace orrery::executor
