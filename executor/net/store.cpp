#include "executor/net/store.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "executor/net/gate.h"
#include "executor/net/handshake.h"
#include "executor/net/store_channel.h"
#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Kind = TransportError::Kind;

enum class Command : std::uint32_t { set = 1, get, add, remove, list };

constexpr milliseconds kAnswerTime{30'000};
constexpr auto kForever = std::chrono::hours(24 * 365);

}  // namespace

class StoreServer::Impl {
 public:
  Impl(Listener listener, std::string token)
      : gate_(std::move(listener), std::move(token), {Role::store, -1, 0, 0}) {
    acceptor_ = std::thread([this] { accept_all(); });
  }
  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      for (Client& client : clients_) {
        if (!client.ended) ::shutdown(client.channel->fd(), SHUT_RDWR);
      }
    }
    changed_.notify_all();
    acceptor_.join();
    for (Client& client : clients_) client.thread.join();
  }
  int port() const { return gate_.port(); }

 private:
  struct Client {
    std::optional<StoreChannel> channel;
    std::thread thread;
    bool ended = false;
  };

  void accept_all() {
    while (!stop_) {
      std::optional<Admitted> admitted;
      try {
        admitted = gate_.next(Clock::now() + milliseconds(100));
      } catch (const TransportError&) {
        // Nobody else can come in; those who are in are served on.
        std::this_thread::sleep_for(milliseconds(100));
      }
      const std::lock_guard lock(mutex_);
      std::erase_if(clients_, [](Client& client) {
        if (client.ended) client.thread.join();
        return client.ended;
      });
      if (admitted && !stop_) welcome({std::move(admitted->socket), admitted->keys});
    }
  }

  void welcome(Joined joined) {
    Client& client = clients_.emplace_back();
    try {
      client.channel.emplace(std::move(joined));
      client.thread = std::thread([this, &client] { serve(client); });
    } catch (const std::exception&) {
      // No thread or no socket for it: the client notices and may come again.
      clients_.pop_back();
    }
  }

  void serve(Client& client) {
    try {
      while (!stop_) {
        const StoreMessage answer = answer_to(client.channel->read(Clock::now() + kForever));
        client.channel->write(answer, Clock::now() + kAnswerTime);
      }
    } catch (const TransportError&) {
      // The client left: nobody is left to be told.
    }
    const std::lock_guard lock(mutex_);
    client.channel.reset();
    client.ended = true;
  }

  StoreMessage answer_to(const StoreMessage& message) {
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
        std::int64_t& sum = numbers_[message.key];
        if (__builtin_add_overflow(sum, message.number, &sum)) {
          throw TransportError(Kind::corrupt, -1, "a sum in the store that no number holds");
        }
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

  Gate gate_;
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
  Impl(const Endpoint& server, const std::string& token, milliseconds connect)
      : channel_(join(server, token, {Role::store, -1, 0, 0}, Clock::now() + connect, -1)) {}

  StoreMessage ask(const StoreMessage& message, milliseconds waits = milliseconds(0)) {
    const std::lock_guard lock(mutex_);
    const SteadyTime deadline = Clock::now() + kAnswerTime + waits;
    channel_.write(message, deadline);
    return channel_.read(deadline);
  }

 private:
  std::mutex mutex_;
  StoreChannel channel_;
};

StoreClient::StoreClient(const Endpoint& server, const std::string& token, milliseconds connect)
    : impl_(std::make_unique<Impl>(server, token, connect)) {}
StoreClient::~StoreClient() = default;

void StoreClient::set(const std::string& key, const std::string& value) {
  impl_->ask({static_cast<std::uint32_t>(Command::set), 0, key, value});
}

std::optional<std::string> StoreClient::get(const std::string& key, milliseconds timeout) {
  StoreMessage answer =
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
