#include "tools/commands/execute_recovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <exception>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "models/ir/wire.h"

namespace orrery::tools {
namespace {

/// A policy may search for a plan; longer than this the run does not wait.
constexpr int kPatience = 600;

bool write_text(int fd, const std::string& text) {
  const std::uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += text;
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

bool read_exactly(int fd, char* into, std::size_t size, int patience_ms) {
  for (std::size_t at = 0; at < size;) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(fd, into + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

/// True when something is to be read before patience ends or `waits` says so.
bool await(int fd, const PlanningProcess::Waits& waits) {
  for (int seconds = 0; seconds < kPatience && waits(seconds); ++seconds) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 1000) > 0) return true;
  }
  return false;
}

std::optional<std::string> read_text(int fd, int patience_ms) {
  std::uint64_t size = 0;
  if (!read_exactly(fd, reinterpret_cast<char*>(&size), sizeof size, patience_ms)) {
    return std::nullopt;
  }
  std::string text(size, '\0');
  if (!read_exactly(fd, text.data(), text.size(), patience_ms)) return std::nullopt;
  return text;
}

std::string to_text(const executor::LostDevices& lost) {
  std::string text =
      fmt::format("{} {} {}\n", lost.last_step, lost.generation, lost.switched_after);
  for (const auto* devices : {&lost.lost, &lost.live}) {
    for (const DeviceId device : *devices) text += fmt::format("{} ", device.value);
    text += "\n";
  }
  return text;
}

executor::LostDevices lost_from(const std::string& text) {
  executor::LostDevices lost;
  std::istringstream lines(text);
  std::string line;
  lines >> lost.last_step >> lost.generation >> lost.switched_after;
  std::getline(lines, line);
  for (auto* devices : {&lost.lost, &lost.live}) {
    std::getline(lines, line);
    std::istringstream words(line);
    for (std::int32_t device = 0; words >> device;) devices->push_back({device});
  }
  return lost;
}

/// The first letter tells what follows: ok with a description, a newline and a program, a problem,
/// or a loss that the policy has no plan for.
constexpr char kOk = '+';
constexpr char kNoPlanForLoss = '!';

std::string problem(const std::string& what) { return "-" + what; }

int serve(const experiments::LoadedRun& run, const PolicyQuestion& question, int in, int out) {
  try {
    PolicyServer server(run, question);
    const std::string loss = server.find_unanswered_loss();
    if (!loss.empty()) return write_text(out, kNoPlanForLoss + loss) ? 0 : 1;
    if (!write_text(out, std::string(1, kOk))) return 1;
    while (const auto asked = read_text(in, -1)) {
      std::string answer;
      try {
        const PolicyServer::Answer given = server.answer(lost_from(*asked));
        answer = given.problem.empty() ? kOk + given.what + "\n" + ir::serialize(given.program)
                                       : problem(given.problem);
      } catch (const std::exception& error) {
        answer = problem(error.what());
      }
      if (!write_text(out, answer)) return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    write_text(out, problem(error.what()));
    return 1;
  }
}

}  // namespace

struct PlanningProcess::State {
  pid_t pid = -1;
  int to = -1;
  int from = -1;
  ~State() {
    if (to >= 0) ::close(to);
    if (from >= 0) ::close(from);
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
};

PlanningProcess::PlanningProcess(const experiments::LoadedRun& run, const PolicyQuestion& question,
                                 const Waits& waits)
    : state_(std::make_unique<State>()) {
  int down[2];
  int up[2];
  if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  state_->pid = ::fork();
  if (state_->pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);
    ::close(down[1]);
    ::close(up[0]);
    ::_exit(serve(run, question, down[0], up[1]));
  }
  ::close(down[0]);
  ::close(up[1]);
  state_->to = down[1];
  state_->from = up[0];
  if (state_->pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  bool wanted = true;
  const auto waits_on = [&](int seconds) { return wanted = waits(seconds); };
  if (!await(state_->from, waits_on)) {
    if (!wanted) return;
    throw std::runtime_error(
        fmt::format("policy {} is not ready after {} s", question.policy, kPatience));
  }
  const auto ready = read_text(state_->from, kPatience * 1000);
  if (!ready) throw std::runtime_error("the planning process ended without a word");
  if (ready->front() != kOk) {
    throw PolicyRefuses(ready->substr(1), ready->front() == kNoPlanForLoss);
  }
}

PlanningProcess::~PlanningProcess() = default;

std::variant<executor::NextProgram, std::string> PlanningProcess::ask(
    const executor::LostDevices& lost, const Waits& waits) {
  if (!write_text(state_->to, to_text(lost))) return "the planning process has ended";
  if (!await(state_->from, waits)) return "the planning process does not answer";
  const auto answer = read_text(state_->from, kPatience * 1000);
  if (!answer) return "the planning process does not answer";
  if (answer->front() != kOk) return answer->substr(1);
  const std::size_t line_end = answer->find('\n');
  auto program = ir::parse_program(std::string_view(*answer).substr(line_end + 1));
  if (const auto* what = std::get_if<std::string>(&program)) return "the new program " + *what;
  return executor::NextProgram{std::move(std::get<ir::Program>(program)),
                               answer->substr(1, line_end - 1)};
}

}  // namespace orrery::tools
