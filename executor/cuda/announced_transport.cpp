#include "executor/cuda/announced_transport.h"

#include <fmt/format.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "executor/net/request.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using std::chrono::milliseconds;

/// How long a rank that leaves waits for the others to close their channels.
constexpr milliseconds kFarewell{5'000};

/// Tags of announcements, by their number in their direction.
constexpr Tag tag_of(std::uint64_t number) { return {std::uint64_t{1} << 63 | number}; }

struct Announcement {
  enum class What : std::uint64_t { open, payload, close };
  What what = What::payload;
  std::uint64_t tag = 0;
  std::uint64_t bytes = 0;
  ChannelId id{};
};

struct Job {
  Tag tag;
  std::span<const std::byte> data;
  PendingPointer request;
};

/// One other rank: a thread for each direction.
struct Peer {
  LinkTraffic traffic;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool leaving = false;           ///< Close the way there once the jobs are done.
  bool closed = false;            ///< It is closed: further sends fail.
  bool heard_end = false;         ///< The way back is closed.
  std::mutex sending, receiving;  ///< Held while a caller's buffer is touched.
  std::thread sender, receiver;
};

class AnnouncedTransport final : public Transport {
 public:
  AnnouncedTransport(std::unique_ptr<Transport> control, std::unique_ptr<ChannelMaker> maker,
                     std::string name)
      : control_(std::move(control)),
        maker_(std::move(maker)),
        name_(std::move(name)),
        patience_(std::make_shared<std::atomic<std::int64_t>>(60'000)),
        on_timeout_([this](const TransportError& error) { fail(error); }),
        inbox_(patience_, on_timeout_) {
    for (int rank = 0; rank < size(); ++rank) {
      peers_.push_back(std::make_unique<Peer>());
      peers_.back()->traffic.peer = rank;
    }
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      peer(rank).sender = std::thread([this, rank] { run([&] { send_all(rank); }); });
      peer(rank).receiver = std::thread([this, rank] { run([&] { receive_all(rank); }); });
    }
  }

  ~AnnouncedTransport() override {
    for (const auto& peer : peers_) {
      const std::lock_guard lock(peer->mutex);
      peer->leaving = true;
      peer->changed.notify_all();
    }
    const auto deadline = std::chrono::steady_clock::now() + kFarewell;
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == this->rank()) continue;
      std::unique_lock lock(peer(rank).mutex);
      peer(rank).changed.wait_until(lock, deadline, [&] {
        return (peer(rank).closed && peer(rank).heard_end) || limits_.stop;
      });
    }
    // Who has not answered by now is given up; for all others the threads have ended.
    bool all_closed = true;
    for (int rank = 0; rank < size(); ++rank) {
      const std::lock_guard lock(peer(rank).mutex);
      all_closed = all_closed && (rank == this->rank() || peer(rank).heard_end);
    }
    if (!all_closed) fail({Kind::peer_lost, -1, "this rank has left"});
    for (const auto& peer : peers_) {
      if (peer->sender.joinable()) peer->sender.join();
      if (peer->receiver.joinable()) peer->receiver.join();
    }
  }

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  std::string name() const override { return name_; }

  RequestPointer send(int to, Tag tag, std::span<const std::byte> data) override {
    auto request = std::make_shared<PendingRequest>(to, tag, patience_, &on_timeout_);
    std::optional<TransportError> error = failure();
    if (!error) {
      const std::lock_guard lock(peer(to).mutex);
      if (peer(to).closed || peer(to).leaving) {
        error.emplace(Kind::peer_lost, to, fmt::format("rank {} has left", to));
      } else {
        peer(to).jobs.push_back({tag, data, request});
        peer(to).changed.notify_all();
      }
    }
    if (error) {
      request->fail(*error);
    } else if (const auto failed = failure()) {
      request->fail(*failed);  // fail() may have emptied the queue just before.
    }
    return request;
  }

  RequestPointer receive(int from, Tag tag, std::span<std::byte> into) override {
    return inbox_.post(from, tag, into);
  }

  void set_deadline(milliseconds timeout) override {
    patience_->store(timeout.count());
    limits_.patience_ms = timeout.count();
    control_->set_deadline(timeout);
  }

  void abort(const std::string& reason) override {
    fail({Kind::peer_lost, rank(), fmt::format("this rank gave up: {}", reason)});
  }

  std::vector<LinkTraffic> traffic() const override {
    std::vector<LinkTraffic> out;
    for (const auto& peer : peers_) {
      const std::lock_guard lock(peer->mutex);
      out.push_back(peer->traffic);
    }
    return out;
  }

 private:
  Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }

  std::optional<TransportError> failure() {
    const std::lock_guard lock(failure_mutex_);
    return failure_;
  }

  template <class Body>
  void run(const Body& body) {
    try {
      body();
    } catch (const TransportError& error) {
      fail(error);
    } catch (const std::exception& error) {
      fail({Kind::local, -1, error.what()});
    }
  }

  /// Ends all; no buffer of a caller is touched when this returns.
  void fail(const TransportError& error) {
    TransportError first = error;
    {
      const std::lock_guard lock(failure_mutex_);
      if (!failure_) failure_ = error;
      first = *failure_;
    }
    limits_.stop = true;
    control_->abort(first.what());
    for (const auto& peer : peers_) {
      std::deque<Job> jobs;
      {
        const std::lock_guard lock(peer->mutex);
        jobs.swap(peer->jobs);
        peer->changed.notify_all();
      }
      { const std::scoped_lock quiet(peer->sending, peer->receiving); }
      for (const Job& job : jobs) job.request->fail(first);
    }
    inbox_.fail_all(first);
  }

  void announce(int to, std::uint64_t& number, const Announcement& what) {
    control_->send(to, tag_of(number++), std::as_bytes(std::span(&what, 1)))->wait();
  }

  void send_all(int to) {
    std::uint64_t number = 0;
    std::unique_ptr<PayloadChannel> channel;
    Peer& own = peer(to);
    for (;;) {
      std::optional<Job> job;
      {
        std::unique_lock lock(own.mutex);
        own.changed.wait(lock, [&] { return limits_.stop || own.leaving || !own.jobs.empty(); });
        if (limits_.stop) return;
        if (!own.jobs.empty()) {
          job = std::move(own.jobs.front());
          own.jobs.pop_front();
        }
      }
      if (!job) break;
      try {
        send_one(to, number, channel, *job);
      } catch (const TransportError& error) {
        job->request->fail(error);
        throw;
      } catch (const std::exception& error) {
        job->request->fail({Kind::local, to, error.what()});
        throw;
      }
    }
    announce(to, number, {Announcement::What::close, 0, 0, {}});
    if (channel) channel->close();
    const std::lock_guard lock(own.mutex);
    own.closed = true;
    own.changed.notify_all();
  }

  void send_one(int to, std::uint64_t& number, std::unique_ptr<PayloadChannel>& channel,
                const Job& job) {
    if (!channel && !job.data.empty()) {
      const ChannelId id = maker_->draw_id();
      announce(to, number, {Announcement::What::open, 0, 0, id});
      channel = maker_->open(id, to, true, limits_);
    }
    announce(to, number, {Announcement::What::payload, job.tag.value, job.data.size(), {}});
    {
      const std::lock_guard touching(peer(to).sending);
      if (limits_.stop) throw TransportError(*failure());
      if (!job.data.empty()) channel->send(job.data);
    }
    {
      const std::lock_guard lock(peer(to).mutex);
      peer(to).traffic.sent_bytes += static_cast<std::int64_t>(job.data.size());
      ++peer(to).traffic.messages_sent;
    }
    job.request->finish();
  }

  /// Waits without a deadline: announcements come when they come.
  Announcement next_announcement(int from, std::uint64_t number) {
    Announcement what;
    // Shared: whoever sets it may still be at it when this function returns.
    const auto ended = std::make_shared<std::promise<std::optional<TransportError>>>();
    control_->receive(from, tag_of(number), std::as_writable_bytes(std::span(&what, 1)))
        ->then([ended](const TransportError* error) {
          ended->set_value(error != nullptr ? std::optional(*error) : std::nullopt);
        });
    const std::optional<TransportError> error = ended->get_future().get();
    if (error) throw TransportError(*error);
    return what;
  }

  void receive_all(int from) {
    std::unique_ptr<PayloadChannel> channel;
    for (std::uint64_t number = 0;; ++number) {
      const Announcement what = next_announcement(from, number);
      if (what.what == Announcement::What::open) {
        channel = maker_->open(what.id, from, false, limits_);
      } else if (what.what == Announcement::What::payload) {
        receive_one(from, channel.get(), what);
      } else {
        break;
      }
    }
    if (channel) channel->close();
    inbox_.close(from);
    Peer& own = peer(from);
    const std::lock_guard lock(own.mutex);
    own.heard_end = true;
    own.leaving = true;  // Closes the way there, which the other side waits for.
    own.changed.notify_all();
  }

  void receive_one(int from, PayloadChannel* channel, const Announcement& what) {
    if (what.bytes > 0 && channel == nullptr) {
      throw TransportError(Kind::corrupt, from,
                           fmt::format("rank {} sends without a channel", from));
    }
    Inbox::Arrival arrival = inbox_.begin(from, {what.tag}, what.bytes);
    try {
      const std::lock_guard touching(peer(from).receiving);
      if (limits_.stop) throw TransportError(*failure());
      if (what.bytes > 0) channel->receive(arrival.data);
    } catch (const TransportError& error) {
      if (arrival.request) arrival.request->fail(error);
      throw;
    } catch (const std::exception& error) {
      if (arrival.request) arrival.request->fail({Kind::local, from, error.what()});
      throw;
    }
    {
      const std::lock_guard lock(peer(from).mutex);
      peer(from).traffic.received_bytes += static_cast<std::int64_t>(what.bytes);
    }
    inbox_.deliver(std::move(arrival)).tell();
  }

  std::unique_ptr<Transport> control_;
  std::unique_ptr<ChannelMaker> maker_;
  std::string name_;
  ChannelLimits limits_;
  Patience patience_;
  PendingRequest::OnTimeout on_timeout_;
  Inbox inbox_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::mutex failure_mutex_;
  std::optional<TransportError> failure_;
};

}  // namespace

std::unique_ptr<Transport> make_announced_transport(std::unique_ptr<Transport> control,
                                                    std::unique_ptr<ChannelMaker> maker,
                                                    std::string name) {
  return std::make_unique<AnnouncedTransport>(std::move(control), std::move(maker),
                                              std::move(name));
}

}  // namespace orrery::executor
