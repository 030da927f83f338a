#include "models/base/subprocess.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "models/base/check.h"

extern char** environ;  // NOLINT

namespace orrery {
namespace {

/// Into `texts`, which must live as long.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));
  out.push_back(nullptr);
  return out;
}

ExitStatus exit_status(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

void set_child_signals(ChildSignals signals) {
  if (signals == ChildSignals::inherited) return;
  ::signal(SIGINT, signals == ChildSignals::ignore_interrupt ? SIG_IGN : SIG_DFL);
  if (signals == ChildSignals::defaults) {
    ::signal(SIGTERM, SIG_DFL);
    return;
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// In the child. The parent may have had many threads: until the program or the body runs, only
/// async-signal-safe calls, and no memory is allocated.
[[noreturn]] void become(const SubprocessOptions& o, char* const* argv, char* const* envp,
                         pid_t parent) {
  if (o.death_signal != 0) {
    ::prctl(PR_SET_PDEATHSIG, o.death_signal);
    if (::getppid() != parent) ::_exit(kCannotStart);  // It ended before the call.
  }
  set_child_signals(o.signals);
  if (o.in >= 0) ::dup2(o.in, STDIN_FILENO);
  if (o.out >= 0) ::dup2(o.out, STDOUT_FILENO);
  if (o.err >= 0) ::dup2(o.err, STDERR_FILENO);
  if (o.close_other_files) ::close_range(STDERR_FILENO + 1, ~0U, 0);
  if (!o.folder.empty() && ::chdir(o.folder.c_str()) != 0) ::_exit(kCannotStart);
  if (o.command.empty()) ::_exit(o.body());
  ::execvpe(argv[0], argv, envp);
  ::_exit(kCannotStart);
}

}  // namespace

std::string in_words(const ExitStatus& status) {
  if (status.signal == 0) return fmt::format("exit status {}", status.code);
  return fmt::format("killed by signal {} ({})", status.signal, strsignal(status.signal));
}

Subprocess::Subprocess(const SubprocessOptions& options) {
  ORRERY_CHECK(options.command.empty() == static_cast<bool>(options.body),
               "a child is either a program or a function");
  const std::vector<char*> argv = pointers_to(options.command);
  std::vector<char*> variables;
  if (options.environment) variables = pointers_to(*options.environment);
  char* const* envp = options.environment ? variables.data() : environ;
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(options, argv.data(), envp, parent);
  if (pid_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
}

Subprocess::~Subprocess() { end(); }

Subprocess::Subprocess(Subprocess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Subprocess& Subprocess::operator=(Subprocess&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

void Subprocess::end() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  wait();
}

void Subprocess::signal(int number) const {
  if (pid_ >= 0) ::kill(pid_, number);
}

std::optional<ExitStatus> Subprocess::poll() {
  int status = 0;
  if (pid_ < 0 || ::waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
  pid_ = -1;
  return exit_status(status);
}

ExitStatus Subprocess::wait() {
  ORRERY_CHECK(pid_ >= 0, "no child is left to wait for");
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return exit_status(status);
}

pid_t Subprocess::release() { return std::exchange(pid_, -1); }

std::vector<std::string> environment_without(const std::vector<std::string>& names) {
  std::vector<std::string> out;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string_view variable = *at;
    const std::string_view name = variable.substr(0, variable.find('='));
    if (std::find(names.begin(), names.end(), name) == names.end()) out.emplace_back(variable);
  }
  return out;
}

std::string own_executable() {
  // Set by the package of Python, where the running program is Python itself.
  if (const char* program = std::getenv("ORRERY_PROGRAM")) return program;
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace orrery
