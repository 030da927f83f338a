#include "executor/net/store.h"

#include <sys/socket.h>

#include <atomic>
#include <exception>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "executor/net/gate.h"
#include "executor/net/handshake.h"
#include "executor/net/store_channel.h"
#include "executor/net/store_table.h"
#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kAnswerTime{30'000};
constexpr milliseconds kSilence{30'000};
constexpr auto kForever = std::chrono::hours(24 * 365);

StoreChannel prepared(Joined joined) {
  prepare(joined.socket, kSilence);
  return StoreChannel(std::move(joined));
}

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
    table_.stop();
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
      client.channel.emplace(prepared(std::move(joined)));
      client.thread = std::thread([this, &client] { serve(client); });
    } catch (const std::exception&) {
      // No thread or no socket for it: the client notices and may come again.
      clients_.pop_back();
    }
  }

  void serve(Client& client) {
    try {
      while (!stop_) {
        const StoreMessage answer = table_.answer(client.channel->read(Clock::now() + kForever));
        client.channel->write(answer, Clock::now() + kAnswerTime);
      }
    } catch (const TransportError&) {
      // The client left: nobody is left to be told.
    }
    const std::lock_guard lock(mutex_);
    client.channel.reset();
    client.ended = true;
  }

  Gate gate_;
  StoreTable table_;
  std::mutex mutex_;
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
      : channel_(
            prepared(join(server, token, {Role::store, -1, 0, 0}, Clock::now() + connect, -1))) {}

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
  impl_->ask({static_cast<std::uint32_t>(StoreCommand::set), 0, key, value});
}

std::optional<std::string> StoreClient::get(const std::string& key, milliseconds timeout) {
  StoreMessage answer = impl_->ask(
      {static_cast<std::uint32_t>(StoreCommand::get), timeout.count(), key, ""}, timeout);
  if (answer.code == 0) return std::nullopt;
  return std::move(answer.value);
}

std::int64_t StoreClient::add(const std::string& key, std::int64_t amount) {
  return impl_->ask({static_cast<std::uint32_t>(StoreCommand::add), amount, key, ""}).number;
}

void StoreClient::remove(const std::string& key) {
  impl_->ask({static_cast<std::uint32_t>(StoreCommand::remove), 0, key, ""});
}

std::map<std::string, std::string> StoreClient::list(const std::string& prefix) {
  return list_from(
      impl_->ask({static_cast<std::uint32_t>(StoreCommand::list), 0, prefix, ""}).value);
}

}  // namespace orrery::executor
