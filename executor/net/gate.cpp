#include "executor/net/gate.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// True when all of it was taken at once, as a fresh connection takes what is short.
bool send_now(const Socket& socket, std::span<const std::byte> data) {
  const ssize_t count = ::send(socket.fd(), data.data(), data.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return count == static_cast<ssize_t>(data.size());
}

int milliseconds_until(SteadyTime deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

Gate::Gate(Listener listener, std::string token, const Identity& expected)
    : listener_(std::move(listener)), token_(std::move(token)), expected_(expected) {}

std::optional<Admitted> Gate::next(SteadyTime deadline) {
  for (;;) {
    const auto now = Clock::now();
    while (!pending_.empty() && pending_.front().until <= now) {
      last_refusal_ = "somebody who said nothing";
      pending_.pop_front();
    }
    std::vector<pollfd> entries = {{listener_.fd(), POLLIN, 0}};
    for (const Pending& one : pending_) entries.push_back({one.socket.fd(), POLLIN, 0});
    const SteadyTime wake =
        pending_.empty() ? deadline : std::min(deadline, pending_.front().until);
    const int ready = ::poll(entries.data(), entries.size(), milliseconds_until(wake));
    if (ready < 0 && errno != EINTR) {
      throw TransportError(TransportError::Kind::local, -1,
                           std::string("poll: ") + std::strerror(errno));
    }
    if (ready > 0) {
      auto entry = entries.begin() + 1;
      for (auto it = pending_.begin(); it != pending_.end(); ++entry) {
        if (entry->revents == 0) {
          ++it;
          continue;
        }
        const bool alive = read_hello(*it);
        const bool complete = it->received == sizeof it->hello;
        std::optional<Admitted> admitted;
        if (complete) admitted = answer(*it);
        it = alive && !complete ? std::next(it) : pending_.erase(it);
        if (admitted) return admitted;
      }
      if (entries.front().revents != 0) accept_waiting();
    }
    if (Clock::now() >= deadline) return std::nullopt;
  }
}

void Gate::accept_waiting() {
  for (std::size_t n = 0; n < kMostPending; ++n) {
    const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      challenge(Socket(fd));
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return;
    const bool scarce = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    if (!scarce) {
      throw TransportError(TransportError::Kind::local, -1,
                           std::string("accept: ") + std::strerror(errno));
    }
    // No descriptor is left for a newcomer: the oldest stranger gives up its own.
    last_refusal_ = std::string("for lack of descriptors: ") + std::strerror(errno);
    if (pending_.empty()) {
      std::this_thread::sleep_for(milliseconds(20));
      return;
    }
    pending_.pop_front();
  }
}

void Gate::challenge(Socket socket) {
  if (pending_.size() == kMostPending) {
    last_refusal_ = fmt::format("the oldest of {} who said nothing", kMostPending);
    pending_.pop_front();
  }
  Pending& one = pending_.emplace_back();
  one.socket = std::move(socket);
  one.challenge = make_challenge();
  one.until = Clock::now() + kPatience;
  if (!send_now(one.socket, bytes_of(one.challenge))) pending_.pop_back();
}

bool Gate::read_hello(Pending& pending) {
  const std::span<std::byte> rest = bytes_of(pending.hello).subspan(pending.received);
  const ssize_t count = ::recv(pending.socket.fd(), rest.data(), rest.size(), MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  pending.received += static_cast<std::size_t>(count);
  return count > 0;
}

std::optional<Admitted> Gate::answer(Pending& pending) {
  Judgment judgment = judge(pending.challenge, pending.hello, token_, expected_);
  const bool told = send_now(pending.socket, bytes_of(judgment.verdict));
  if (!judgment.problem.empty() || !told) {
    last_refusal_ = judgment.problem;
    return std::nullopt;
  }
  return Admitted{std::move(pending.socket), judgment.identity, judgment.keys};
}

}  // namespace orrery::executor
