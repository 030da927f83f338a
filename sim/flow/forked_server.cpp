#include "sim/flow/forked_server.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string_view>
#include <system_error>

#include "models/base/check.h"
#include "sim/flow/fresh_memory.h"

namespace orrery::sim {
namespace {

// First byte of an answer.
constexpr char kAnswered = 'r';
constexpr char kThrown = 'x';

bool write_bytes(int file, const char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::send(file, bytes, size, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

bool read_bytes(int file, char* bytes, std::size_t size) {
  while (size > 0) {
    const ssize_t count = ::read(file, bytes, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes += count;
    size -= static_cast<std::size_t>(count);
  }
  return true;
}

/// Preceded by its length.
bool send_message(int file, std::string_view message) {
  const std::uint64_t size = message.size();
  return write_bytes(file, reinterpret_cast<const char*>(&size), sizeof size) &&
         write_bytes(file, message.data(), message.size());
}

std::optional<std::string> receive_message(int file) {
  std::uint64_t size = 0;
  if (!read_bytes(file, reinterpret_cast<char*>(&size), sizeof size)) return std::nullopt;
  std::string message(size, '\0');
  if (!read_bytes(file, message.data(), message.size())) return std::nullopt;
  return message;
}

int serve(int channel, const std::function<std::string(const std::string&)>& work) {
  while (const auto question = receive_message(channel)) {
    std::string answer;
    try {
      answer = kAnswered + work(*question);
    } catch (const std::exception& error) {
      answer = kThrown + std::string(error.what());
    }
    if (!send_message(channel, answer)) return 1;
  }
  return 0;
}

}  // namespace

ForkedServer::ForkedServer(const std::function<std::string(const std::string&)>& answer) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  std::fflush(nullptr);
  SubprocessOptions child;
  child.death_signal = SIGKILL;
  child.body = [&] {
    ::close(ends[0]);
    use_up_free_memory();  // Answers are made in copies of this one.
    return serve(ends[1], answer);
  };
  try {
    child_ = Subprocess(child);
  } catch (...) {
    for (const int end : ends) ::close(end);
    throw;
  }
  ::close(ends[1]);
  channel_ = ends[0];
}

ForkedServer::~ForkedServer() { ::close(channel_); }

void ForkedServer::ask(const std::string& question) {
  ORRERY_CHECK(!busy_, "a question is under way");
  busy_ = true;
  // join() tells where it was not delivered.
  send_message(channel_, question);
}

ForkResult ForkedServer::join() {
  ORRERY_CHECK(busy_, "nothing was asked");
  busy_ = false;
  std::optional<std::string> answer = receive_message(channel_);
  if (!answer || answer->empty()) {
    if (child_.pid() < 0) return ChildFailure{ChildFailure::Kind::exited, 0, "it has ended"};
    child_.signal(SIGKILL);
    const ExitStatus status = child_.wait();
    return ChildFailure{ChildFailure::Kind::signal, status.signal, in_words(status)};
  }
  const char tag = answer->front();
  answer->erase(0, 1);
  if (tag == kAnswered) return std::move(*answer);
  return ChildFailure{ChildFailure::Kind::exception, 0, std::move(*answer)};
}

}  // namespace orrery::sim
