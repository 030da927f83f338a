// What comes over the network, before and after a handshake, and from checkpoint folders.
#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "executor/launcher/checkpoint.h"
#include "executor/launcher/messages.h"
#include "executor/net/frame.h"
#include "executor/net/handshake.h"
#include "executor/net/request.h"
#include "executor/net/store_channel.h"
#include "executor/net/store_table.h"
#include "executor/net/tcp_connection.h"
#include "executor/net/transport.h"
#include "models/base/hash.h"
#include "tests/fuzz/targets.h"

namespace orrery::fuzz {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

struct Pair {
  executor::Socket here;
  executor::Socket there;
};

Pair connected() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
    throw std::runtime_error("no pair of sockets");
  }
  return {executor::Socket(ends[0]), executor::Socket(ends[1])};
}

/// What fits a socket's buffer; the reader then sees the end.
void say(executor::Socket& socket, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent =
      ::send(socket.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Bytes one after the other; zeros when there are no more.
class Reader {
 public:
  explicit Reader(Input input) : rest_(input) {}
  bool more() const { return !rest_.empty(); }
  std::uint64_t number(std::size_t bytes) {
    std::uint64_t out = 0;
    for (std::size_t i = 0; i < bytes && more(); ++i) {
      out |= static_cast<std::uint64_t>(rest_.front()) << (8 * i);
      rest_ = rest_.subspan(1);
    }
    return out;
  }
  std::string text(std::size_t most) {
    const std::uint64_t wanted = number(2);  // Takes from rest_: what is left is asked afterwards.
    const std::size_t size = std::min<std::size_t>(wanted % (most + 1), rest_.size());
    const std::string out(rest_.begin(), rest_.begin() + static_cast<std::ptrdiff_t>(size));
    rest_ = rest_.subspan(size);
    return out;
  }

 private:
  Input rest_;
};

}  // namespace

void handshake(Input input) {
  const executor::Identity self{executor::Role::rank, 1, 2, 3};
  if (input.size() >= sizeof(executor::wire::Hello)) {
    executor::wire::Hello hello;
    std::memcpy(&hello, input.data(), sizeof hello);
    executor::judge({}, hello, "token", self);
  }
  Pair pair = connected();
  say(pair.there, text_of(input));
  ::shutdown(pair.there.fd(), SHUT_WR);
  try {
    executor::introduce(pair.here, "token", self, Clock::now() + 1s, 0);
  } catch (const executor::TransportError&) {
    // Refused.
  }
}

/// Structure: kind, what is wrong with it, tag, claimed size, payload, once and again; the
/// authentication is right, or no frame would get anywhere.
void frames(Input input) {
  using executor::Authenticator;
  Reader reader(input);
  const executor::SessionKeys keys;
  const Authenticator key(keys.receive);
  Pair pair = connected();
  executor::TcpConnection connection(0, keys);
  connection.socket = std::move(pair.here);
  executor::Inbox inbox(std::make_shared<std::atomic<std::int64_t>>(1), [](const auto&) {});
  std::vector<std::byte> wanted(64);
  inbox.post(0, {1}, wanted);
  for (std::uint64_t n = 0; reader.more(); ++n) {
    const auto kind = static_cast<executor::FrameKind>(reader.number(1) % 5);
    const std::uint64_t wrong = reader.number(1);
    const executor::Tag tag{reader.number(1) % 4};
    const std::string payload = reader.text(4096);
    executor::FrameHeader header = executor::make_header(
        key, kind, n, tag, std::as_bytes(std::span(payload.data(), payload.size())));
    // Memory for what never comes is most of the time of this target.
    if (wrong % 32 == 1) header.bytes = reader.number(wrong == 1 ? 8 : 2);
    if (wrong % 8 == 2) header.sequence = reader.number(8);
    if (wrong % 16 != 3) {
      header.mac = key.mac(
          Authenticator::Part::header, header.sequence,
          {std::as_bytes(std::span(&header, 1)).first(offsetof(executor::FrameHeader, mac))});
    }
    say(pair.there, std::string_view(reinterpret_cast<const char*>(&header), sizeof header));
    say(pair.there, payload);
    std::vector<executor::Settlement> arrived;
    try {
      connection.drain(inbox, arrived);
    } catch (const executor::TransportError& error) {
      inbox.fail_all(error);
      return;
    }
    for (const executor::Settlement& one : arrived) one.tell();
  }
}

/// Structure: command, number, key, value, once and again.
void store(Input input) {
  using executor::StoreChannel;
  using executor::StoreMessage;
  Reader reader(input);
  Pair pair = connected();
  StoreChannel client({std::move(pair.here), {}});
  StoreChannel server({std::move(pair.there), {}});
  executor::StoreTable table;
  table.stop();  // A get that waits as long as it says is no fault.
  while (reader.more()) {
    StoreMessage message;
    message.code = static_cast<std::uint32_t>(reader.number(1) % 7);
    message.number = static_cast<std::int64_t>(reader.number(8));
    message.key = reader.text(64);
    message.value = reader.text(4096);
    try {
      client.write(message, Clock::now() + 10s);
      const StoreMessage answer = table.answer(server.read(Clock::now() + 10s));
      // What a list holds may be more than a pair of sockets takes at once.
      if (answer.value.size() > 65536) return;
      server.write(answer, Clock::now() + 10s);
      const StoreMessage heard = client.read(Clock::now() + 10s);
      if (message.code == static_cast<std::uint32_t>(executor::StoreCommand::list)) {
        executor::list_from(heard.value);
      }
    } catch (const executor::TransportError&) {
      return;
    }
  }
}

void checkpoint(Input input) {
  static const MemoryFolder kFolder;
  static const std::string kRun = "run";
  static const executor::CheckpointFolder reader(kFolder.path().string(), kRun);
  std::filesystem::create_directories(kFolder.path() / kRun);
  const std::string body = text_of(input);
  const auto file = kFolder.path() / kRun / "step-1.generation-0.block-0.device-0.state";
  std::ofstream(file, std::ios::binary)
      << fmt::format("orrery-checkpoint-1 {}\n{}", content_hash(body), body);
  const auto found = reader.read();
  for (const executor::StateBank& bank : found.banks) {
    for (const auto& entry : bank.entries()) bank.covers(entry.slice);
  }
}

void step_report(Input input) {
  try {
    executor::to_text(executor::step_report_from(text_of(input)));
  } catch (const std::runtime_error&) {
    // Refused.
  }
}

}  // namespace orrery::fuzz
