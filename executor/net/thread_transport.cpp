#include "executor/net/thread_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "executor/net/request.h"

namespace orrery::executor {
namespace {

struct Room {
  explicit Room(int size) : patience(std::make_shared<std::atomic<std::int64_t>>(60'000)) {
    const PendingRequest::OnTimeout fail = [this](const TransportError& error) { fail_all(error); };
    for (int i = 0; i < size; ++i) inboxes.push_back(std::make_unique<Inbox>(patience, fail));
  }
  void fail_all(const TransportError& error) {
    for (const auto& inbox : inboxes) inbox->fail_all(error);
  }
  Patience patience;
  std::vector<std::unique_ptr<Inbox>> inboxes;
};

class ThreadTransport final : public Transport {
 public:
  ThreadTransport(int rank, std::shared_ptr<Room> room)
      : rank_(rank), room_(std::move(room)), traffic_(room_->inboxes.size()) {
    for (std::size_t i = 0; i < traffic_.size(); ++i) traffic_[i].peer = static_cast<int>(i);
  }
  ~ThreadTransport() override {
    for (std::size_t i = 0; i < room_->inboxes.size(); ++i) {
      if (static_cast<int>(i) != rank_) room_->inboxes[i]->close(rank_);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(room_->inboxes.size()); }

  RequestPointer send(int peer, Tag tag, std::span<const std::byte> data) override {
    room_->inboxes[peer]->put(rank_, tag, data).tell();
    count(peer, data.size(), true);
    auto request = std::make_shared<PendingRequest>(peer, tag, room_->patience, nullptr);
    request->finish();
    return request;
  }

  RequestPointer receive(int peer, Tag tag, std::span<std::byte> into) override {
    count(peer, into.size(), false);
    return room_->inboxes[rank_]->post(peer, tag, into);
  }

  void set_deadline(std::chrono::milliseconds timeout) override {
    room_->patience->store(timeout.count());
  }

  void abort(const std::string& reason) override {
    room_->fail_all({TransportError::Kind::peer_lost, rank_,
                     fmt::format("rank {} gave up: {}", rank_, reason)});
  }

  std::vector<LinkTraffic> traffic() const override {
    const std::lock_guard lock(mutex_);
    return traffic_;
  }
  std::string name() const override { return "threads"; }

 private:
  void count(int peer, std::size_t bytes, bool sent) {
    const std::lock_guard lock(mutex_);
    LinkTraffic& link = traffic_[peer];
    (sent ? link.sent_bytes : link.received_bytes) += static_cast<std::int64_t>(bytes);
    if (sent) ++link.messages_sent;
  }

  int rank_;
  std::shared_ptr<Room> room_;
  mutable std::mutex mutex_;
  std::vector<LinkTraffic> traffic_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> make_thread_transports(int size) {
  const auto room = std::make_shared<Room>(size);
  std::vector<std::unique_ptr<Transport>> out;
  for (int rank = 0; rank < size; ++rank) {
    out.push_back(std::make_unique<ThreadTransport>(rank, room));
  }
  return out;
}

}  // namespace orrery::executor
