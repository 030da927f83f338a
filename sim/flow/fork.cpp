#include "sim/flow/fork.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <utility>

#include "models/base/check.h"

namespace orrery::sim {
namespace {

// The child writes the payload and then one of these, so that a cut-off payload is not a result.
constexpr char kResult = 'r';
constexpr char kException = 'x';
constexpr int kWriteFailed = 120;  ///< Exit status when the parent does not read.

bool write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

[[noreturn]] void run_child(int file, const std::function<std::string()>& work) {
  std::string message;
  try {
    message = work();
    message += kResult;
  } catch (const std::exception& error) {
    message = error.what();
    message += kException;
  } catch (...) {
    message = "unknown exception";
    message += kException;
  }
  const bool sent = write_all(file, message);
  std::fflush(nullptr);
  _exit(sent ? 0 : kWriteFailed);
}

/// Returns errno, 0 for success.
int read_all(int file, std::string& bytes) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return 0;
    bytes.append(buffer, static_cast<std::size_t>(count));
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

ChildFailure system_failure(int code) {
  return {ChildFailure::Kind::system, code, std::strerror(code)};
}

}  // namespace

ForkedRun::ForkedRun(const std::function<std::string()>& work) {
  int ends[2];
  if (pipe(ends) != 0) {
    error_ = errno;
    return;
  }
  std::fflush(nullptr);
  child_ = fork();
  if (child_ == 0) {
    close(ends[0]);
    run_child(ends[1], work);
  }
  if (child_ < 0) {
    error_ = errno;
    close(ends[0]);
  } else {
    pipe_ = ends[0];
  }
  close(ends[1]);
}

ForkedRun::ForkedRun(ForkedRun&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      error_(other.error_) {}

ForkedRun::~ForkedRun() {
  if (pipe_ >= 0) close(pipe_);
  if (child_ < 0) return;
  kill(child_, SIGKILL);
  wait_for(child_);
}

ForkResult ForkedRun::join() {
  if (error_ != 0) return system_failure(error_);
  ORRERY_CHECK(child_ >= 0, "this child was joined before");
  std::string bytes;
  const int read_error = read_all(pipe_, bytes);
  close(std::exchange(pipe_, -1));
  const int status = wait_for(std::exchange(child_, -1));
  if (read_error != 0) return system_failure(read_error);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return ChildFailure{ChildFailure::Kind::signal, signal,
                        fmt::format("child died of signal {} ({})", signal, strsignal(signal))};
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || bytes.empty()) {
    const int code = WEXITSTATUS(status);
    return ChildFailure{ChildFailure::Kind::exited, code,
                        fmt::format("child exited with status {}, without a result", code)};
  }
  const char tag = bytes.back();
  bytes.pop_back();
  if (tag == kResult) return bytes;
  return ChildFailure{ChildFailure::Kind::exception, 0, std::move(bytes)};
}

ForkResult run_forked(const std::function<std::string()>& work) { return ForkedRun(work).join(); }

}  // namespace orrery::sim
