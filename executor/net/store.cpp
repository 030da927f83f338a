#include "executor/net/store.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "executor/net/handshake.h"
#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Kind = TransportError::Kind;

enum class Command : std::uint32_t { set = 1, get, add, remove, list };

/// Both directions: a status or command, a number, two texts.
struct Message {
  std::uint32_t code = 0;  ///< Command; of answers 1: there, 0: not there.
  std::int64_t number = 0;
  std::string key;
  std::string value;
};

struct MessageHeader {
  std::uint32_t code = 0;
  std::uint32_t key_bytes = 0;
  std::int64_t number = 0;
  std::uint64_t value_bytes = 0;
};

/// Values are endpoints, plans and states in words; larger ones are a broken client.
constexpr std::uint64_t kMostText = std::uint64_t{256} << 20;

std::span<std::byte> text_bytes(std::string& text) {
  return std::as_writable_bytes(std::span<char>(text.data(), text.size()));
}

void write_message(const Socket& socket, const Message& message, SteadyTime deadline) {
  MessageHeader header{message.code, static_cast<std::uint32_t>(message.key.size()), message.number,
                       message.value.size()};
  // One call and, for what is short, one packet.
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes.reserve(bytes.size() + message.key.size() + message.value.size());
  bytes += message.key;
  bytes += message.value;
  write_all(socket, text_bytes(bytes), deadline, -1);
}

Message read_message(const Socket& socket, SteadyTime deadline) {
  MessageHeader header;
  read_all(socket, bytes_of(header), deadline, -1);
  if (header.key_bytes > kMostText || header.value_bytes > kMostText) {
    throw TransportError(Kind::corrupt, -1, "a message to the store that makes no sense");
  }
  Message message{header.code, header.number, std::string(header.key_bytes, '\0'),
                  std::string(header.value_bytes, '\0')};
  read_all(socket, text_bytes(message.key), deadline, -1);
  read_all(socket, text_bytes(message.value), deadline, -1);
  return message;
}

constexpr milliseconds kAnswerTime{30'000};
constexpr auto kForever = std::chrono::hours(24 * 365);

}  // namespace

class StoreServer::Impl {
 public:
  Impl(Listener listener, std::string token)
      : listener_(std::move(listener)), token_(std::move(token)) {
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      for (Client& client : clients_) {
        if (client.socket.open()) ::shutdown(client.socket.fd(), SHUT_RDWR);
      }
    }
    changed_.notify_all();
    acceptor_.join();
    for (Client& client : clients_) client.thread.join();
  }
  int port() const { return listener_.port(); }

 private:
  struct Client {
    Socket socket;
    std::thread thread;
    bool ended = false;
  };

  void accept_all() {
    while (!stop_) {
      Socket socket = listener_.accept(Clock::now() + milliseconds(100));
      const std::lock_guard lock(mutex_);
      for (auto it = clients_.begin(); it != clients_.end();) {
        if (!it->ended) {
          ++it;
          continue;
        }
        it->thread.join();
        it = clients_.erase(it);
      }
      if (!socket.open() || stop_) continue;
      Client& client = clients_.emplace_back();
      client.socket = std::move(socket);
      client.thread = std::thread([this, &client] { serve(client); });
    }
  }

  void serve(Client& client) {
    try {
      admit(client.socket, token_, {Role::store, -1, 0, 0}, Clock::now() + milliseconds(2'000));
      prepare(client.socket, kAnswerTime);
      while (!stop_) {
        const Message answer = answer_to(read_message(client.socket, Clock::now() + kForever));
        write_message(client.socket, answer, Clock::now() + kAnswerTime);
      }
    } catch (const TransportError&) {
      // The client left, or was no client of this run: nobody is left to be told.
    }
    const std::lock_guard lock(mutex_);
    client.socket.close();
    client.ended = true;
  }

  Message answer_to(const Message& message) {
    std::unique_lock lock(mutex_);
    switch (static_cast<Command>(message.code)) {
      case Command::set:
        values_[message.key] = message.value;
        changed_.notify_all();
        return {1, 0, "", ""};
      case Command::get:
        changed_.wait_for(lock, milliseconds(message.number),
                          [&] { return stop_ || values_.contains(message.key); });
        if (const auto it = values_.find(message.key); it != values_.end()) {
          return {1, 0, "", it->second};
        }
        return {};
      case Command::add: {
        const std::int64_t sum = numbers_[message.key] += message.number;
        values_[message.key] = std::to_string(sum);
        changed_.notify_all();
        return {1, sum, "", ""};
      }
      case Command::remove:
        values_.erase(message.key);
        numbers_.erase(message.key);
        return {1, 0, "", ""};
      case Command::list: {
        // Texts with their lengths in front.
        std::string out;
        for (auto it = values_.lower_bound(message.key);
             it != values_.end() && it->first.starts_with(message.key); ++it) {
          out +=
              fmt::format("{} {} {}{}", it->first.size(), it->second.size(), it->first, it->second);
        }
        return {1, 0, "", std::move(out)};
      }
    }
    throw TransportError(Kind::corrupt, -1, "unknown command to the store");
  }

  Listener listener_;
  std::string token_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> numbers_;
  std::list<Client> clients_;
  std::atomic<bool> stop_ = false;
  std::thread acceptor_;
};

StoreServer::StoreServer(Listener listener, std::string token)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(token))) {}
StoreServer::~StoreServer() = default;
int StoreServer::port() const { return impl_->port(); }

class StoreClient::Impl {
 public:
  Impl(const Endpoint& server, const std::string& token, milliseconds connect) {
    const SteadyTime deadline = Clock::now() + connect;
    socket_ = connect_to(server, deadline, -1);
    introduce(socket_, token, {Role::store, -1, 0, 0}, deadline, -1);
    prepare(socket_, kAnswerTime);
  }

  Message ask(const Message& message, milliseconds waits = milliseconds(0)) {
    const std::lock_guard lock(mutex_);
    const SteadyTime deadline = Clock::now() + kAnswerTime + waits;
    write_message(socket_, message, deadline);
    return read_message(socket_, deadline);
  }

 private:
  std::mutex mutex_;
  Socket socket_;
};

StoreClient::StoreClient(const Endpoint& server, const std::string& token, milliseconds connect)
    : impl_(std::make_unique<Impl>(server, token, connect)) {}
StoreClient::~StoreClient() = default;

void StoreClient::set(const std::string& key, const std::string& value) {
  impl_->ask({static_cast<std::uint32_t>(Command::set), 0, key, value});
}

std::optional<std::string> StoreClient::get(const std::string& key, milliseconds timeout) {
  Message answer =
      impl_->ask({static_cast<std::uint32_t>(Command::get), timeout.count(), key, ""}, timeout);
  if (answer.code == 0) return std::nullopt;
  return std::move(answer.value);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount) {
  return impl_->ask({static_cast<std::uint32_t>(Command::add), amount, key, ""}).number;
}

void StoreClient::remove(const std::string& key) {
  impl_->ask({static_cast<std::uint32_t>(Command::remove), 0, key, ""});
}

std::map<std::string, std::string> StoreClient::list(const std::string& prefix) {
  const std::string text =
      impl_->ask({static_cast<std::uint32_t>(Command::list), 0, prefix, ""}).value;
  std::map<std::string, std::string> out;
  const auto number = [&](std::size_t& at) {
    std::size_t value = 0;
    while (at < text.size() && text[at] != ' ') {
      value = 10 * value + (text[at++] - '0');
    }
    ++at;
    return value;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t key_bytes = number(at);
    const std::size_t value_bytes = number(at);
    out[text.substr(at, key_bytes)] = text.substr(at + key_bytes, value_bytes);
    at += key_bytes + value_bytes;
  }
  return out;
}

}  // namespace orrery::executor
