#include "sim/flow/fork.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <system_error>
#include <utility>

#include "models/base/check.h"
#include "sim/flow/fresh_memory.h"

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
    bytes.remove_prefix(count);
  }
  return true;
}

/// In the child: its exit status.
int deliver(int file, const std::function<std::string()>& work) {
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
  return sent ? 0 : kWriteFailed;
}

/// Returns errno, 0 for success.
int read_all(int file, std::string& bytes) {
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = read(file, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    if (count == 0) return 0;
    bytes.append(buffer, count);
  }
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
  SubprocessOptions child;
  child.body = [&] {
    close(ends[0]);
    take_huge_pages();
    return deliver(ends[1], work);
  };
  try {
    child_ = Subprocess(child);
    pipe_ = ends[0];
  } catch (const std::system_error& error) {
    error_ = error.code().value();
    close(ends[0]);
  }
  close(ends[1]);
}

ForkedRun::ForkedRun(ForkedRun&& other) noexcept
    : child_(std::move(other.child_)),
      pipe_(std::exchange(other.pipe_, -1)),
      error_(other.error_) {}

ForkedRun::~ForkedRun() {
  if (pipe_ >= 0) close(pipe_);
}

ForkResult ForkedRun::join() {
  if (error_ != 0) return system_failure(error_);
  ORRERY_CHECK(child_.pid() >= 0, "this child was joined before");
  std::string bytes;
  const int read_error = read_all(pipe_, bytes);
  close(std::exchange(pipe_, -1));
  const ExitStatus status = child_.wait();
  if (read_error != 0) return system_failure(read_error);
  if (status.signal != 0) {
    return ChildFailure{
        ChildFailure::Kind::signal, status.signal,
        fmt::format("child died of signal {} ({})", status.signal, strsignal(status.signal))};
  }
  if (status.code != 0 || bytes.empty()) {
    return ChildFailure{ChildFailure::Kind::exited, status.code,
                        fmt::format("child exited with status {}, without a result", status.code)};
  }
  const char tag = bytes.back();
  bytes.pop_back();
  if (tag == kResult) return bytes;
  return ChildFailure{ChildFailure::Kind::exception, 0, std::move(bytes)};
}

ForkResult run_forked(const std::function<std::string()>& work) { return ForkedRun(work).join(); }

}  // namespace orrery::sim
