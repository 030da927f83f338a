#include "executor/cuda/ordered_transport.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "executor/cuda/exchange_order.h"
#include "executor/cuda/exchange_outbox.h"
#include "executor/net/request.h"

namespace orrery::executor {
namespace {

using Kind = TransportError::Kind;
using std::chrono::milliseconds;
using SteadyClock = std::chrono::steady_clock;

/// Carries the id of the exchange; the tags of places have their highest bit set.
constexpr Tag kIdTag{1};

class OrderedTransport final : public Transport {
 public:
  OrderedTransport(std::unique_ptr<Transport> control, std::unique_ptr<ExchangeMaker> maker,
                   std::string name, milliseconds farewell)
      : control_(std::move(control)),
        maker_(std::move(maker)),
        name_(std::move(name)),
        farewell_(farewell),
        patience_(std::make_shared<std::atomic<std::int64_t>>(60'000)),
        on_timeout_([this](const TransportError& error) { fail(error); }),
        inbox_(patience_, on_timeout_),
        traffic_(size()),
        left_(size()),
        outbox_(rank(), maker_->piece_bytes(), [this](const Place& place) { wish(place); }) {
    for (int peer = 0; peer < size(); ++peer) traffic_[peer].peer = peer;
    if (rank() == 0) {
      keeper_.emplace(*control_, [this](const Place& place) { enqueue(place); });
      for (int peer = 1; peer < size(); ++peer) {
        threads_.emplace_back([this, peer] { run([&] { hear_wishes(peer); }); });
      }
    } else {
      threads_.emplace_back([this] { run([this] { hear_order(); }); });
    }
    threads_.emplace_back([this] {
      // Outlives run(): after an error the others hear of it before the exchange is given up.
      std::unique_ptr<PayloadExchange> exchange;
      run([this, &exchange] { follow_order(exchange); });
    });
  }

  ~OrderedTransport() override {
    if (!leave()) fail({Kind::peer_lost, -1, "this rank has left"});
    for (std::thread& thread : threads_) thread.join();
  }

  /// Until the exchange is open; throws what prevents it.
  void await_open() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return open_ || failure_; });  // Opening has a deadline.
    if (failure_) throw TransportError(*failure_);
  }

  int rank() const override { return control_->rank(); }
  int size() const override { return control_->size(); }
  std::string name() const override { return name_; }

  RequestPointer send(int to, Tag tag, std::span<const std::byte> data) override {
    auto request = std::make_shared<PendingRequest>(to, tag, patience_, &on_timeout_);
    std::optional<TransportError> error;
    {
      const std::lock_guard lock(mutex_);
      if (failure_) {
        error = failure_;
      } else if (leaving_ || left_[to]) {
        error = has_left(to);
      } else {
        outbox_.add(to, tag, data, request);
      }
    }
    if (error) request->fail(*error);
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
    const std::lock_guard lock(mutex_);
    return traffic_;
  }

 private:
  static TransportError has_left(int peer) {
    return {Kind::peer_lost, peer, fmt::format("rank {} has left", peer)};
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
    std::vector<PendingPointer> outgoing;
    {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = error;
      first = *failure_;
      limits_.stop = true;
      outgoing = outbox_.drop_all();
      changed_.notify_all();
    }
    ordered_.notify_all();
    control_->abort(first.what());
    std::map<std::pair<int, std::uint64_t>, Inbox::Arrival> arriving;
    {
      const std::lock_guard quiet(touching_);
      arriving.swap(arriving_);
    }
    for (const PendingPointer& request : outgoing) request->fail(first);
    for (const auto& [key, one] : arriving) {
      if (one.request) one.request->fail(first);
    }
    inbox_.fail_all(first);
  }

  // What this rank asks rank 0 for. All of it under the lock, so that wishes have their order.

  void wish(const Place& place) {
    if (keeper_) {
      keeper_->give(place);
    } else {
      send_place(*control_, 0, wishes_++, place);
    }
  }

  // Threads that hear places.

  /// Rank 0: what another rank asks for.
  void hear_wishes(int peer) {
    for (std::uint64_t number = 0;; ++number) {
      const Place place = receive_place(*control_, peer, number);
      if (place.from != peer) {
        throw TransportError(Kind::corrupt, peer, fmt::format("rank {} asks for others", peer));
      }
      keeper_->give(place);
      if (place.what == Place::What::gone) return;
    }
  }

  /// Other ranks: what rank 0 tells.
  void hear_order() {
    for (std::uint64_t number = 0;; ++number) {
      const Place place = receive_place(*control_, 0, number);
      enqueue(place);
      if (place.what == Place::What::gone && place.from == rank()) return;
    }
  }

  void enqueue(const Place& place) {
    const std::lock_guard lock(order_mutex_);
    order_.push_back(place);
    ordered_.notify_all();
  }

  // The thread that follows the order.

  void follow_order(std::unique_ptr<PayloadExchange>& exchange) {
    if (size() > 1) exchange = maker_->open(agree_on_id(), rank(), size(), limits_);
    {
      const std::lock_guard lock(mutex_);
      open_ = true;
      changed_.notify_all();
    }
    while (!ended_) {
      const std::vector<Place> next = take_next();
      if (next.empty()) return;
      if (next.front().what == Place::What::piece) {
        pass(exchange.get(), next);
      } else {
        note_leaving(exchange.get(), next.front());
      }
    }
  }

  ExchangeId agree_on_id() {
    ExchangeId id{};
    if (rank() != 0) {
      control_->receive(0, kIdTag, id)->wait();
      return id;
    }
    id = maker_->draw_id();
    for (int peer = 1; peer < size(); ++peer) control_->send(peer, kIdTag, id)->wait();
    return id;
  }

  bool outward(const Place& place) const { return place.from == rank(); }
  /// The connection that a piece takes, and whether it is its first.
  std::pair<int, bool> connection(const Place& place) const {
    return {static_cast<int>(outward(place) ? place.to : place.from), outward(place)};
  }
  bool shares(const Place& place) const {
    return place.what == Place::What::piece && place.length > 0 &&
           connected_.contains(connection(place));
  }

  /// What comes next in the order, two pieces where they may share an exchange; none: it has ended.
  std::vector<Place> take_next() {
    std::unique_lock lock(order_mutex_);
    while (order_.empty() && !limits_.stop) ordered_.wait_for(lock, milliseconds(50));
    if (limits_.stop) return {};
    std::vector<Place> out = {order_.front()};
    order_.pop_front();
    if (!order_.empty() && shares(out.front()) && shares(order_.front()) &&
        outward(out.front()) != outward(order_.front())) {
      out.push_back(order_.front());
      order_.pop_front();
    }
    return out;
  }

  void pass(PayloadExchange* exchange, const std::vector<Place>& places) {
    {
      const std::lock_guard touching(touching_);
      if (limits_.stop) return;
      PayloadExchange::Out out;
      PayloadExchange::In in;
      for (const Place& place : places) {
        if (outward(place)) {
          out = {static_cast<int>(place.to), outgoing_bytes(place)};
        } else {
          in = {static_cast<int>(place.from), arriving_bytes(place)};
        }
        if (place.length > 0) connected_.insert(connection(place));
      }
      if (!out.data.empty() || !in.into.empty()) {
        if (out.data.empty()) out.to = -1;
        if (in.into.empty()) in.from = -1;
        exchange->pass(out, in);
      }
    }
    for (const Place& place : places) outward(place) ? note_sent(place) : note_received(place);
  }

  std::span<const std::byte> outgoing_bytes(const Place& place) {
    const std::lock_guard lock(mutex_);
    const auto bytes = outbox_.bytes(place);
    if (!bytes) throw TransportError(failure_.value_or(has_left(rank())));
    return *bytes;
  }

  std::span<std::byte> arriving_bytes(const Place& place) {
    const std::pair<int, std::uint64_t> key{static_cast<int>(place.from), place.message};
    if (place.offset == 0) arriving_[key] = inbox_.begin(key.first, {place.tag}, place.bytes);
    const auto at = arriving_.find(key);
    if (at == arriving_.end() || at->second.data.size() != place.bytes) {
      throw TransportError(Kind::corrupt, key.first,
                           fmt::format("rank {} sent a piece of no message", key.first));
    }
    return at->second.data.subspan(place.offset, place.length);
  }

  void note_sent(const Place& place) {
    PendingPointer done;
    {
      const std::lock_guard lock(mutex_);
      LinkTraffic& link = traffic_[place.to];
      link.sent_bytes += static_cast<std::int64_t>(place.length);
      done = outbox_.pass(place);
      if (done) ++link.messages_sent;
      changed_.notify_all();
    }
    if (done) done->finish();
  }

  void note_received(const Place& place) {
    {
      const std::lock_guard lock(mutex_);
      traffic_[place.from].received_bytes += static_cast<std::int64_t>(place.length);
    }
    if (place.offset + place.length < place.bytes) return;
    Inbox::Arrival arrival;
    {
      const std::lock_guard touching(touching_);
      const auto at = arriving_.find({static_cast<int>(place.from), place.message});
      if (at == arriving_.end()) return;  // It has failed.
      arrival = std::move(at->second);
      arriving_.erase(at);
    }
    inbox_.deliver(std::move(arrival)).tell();
  }

  void note_leaving(PayloadExchange* exchange, const Place& place) {
    const int who = static_cast<int>(place.from);
    if (place.what == Place::What::gone) {
      ++gone_;
      ended_ = rank() == 0 ? gone_ == size() : who == rank();
    } else {
      inbox_.close(who);
      drop_messages_to(who);
      ++leavers_;
      // Ranks that are gone no longer come to the close.
      if (leavers_ == size() && gone_ == 0 && exchange != nullptr) exchange->close();
    }
    const std::lock_guard lock(mutex_);
    all_left_ = leavers_ == size();
    done_ = ended_;
    changed_.notify_all();
  }

  void drop_messages_to(int who) {
    std::vector<PendingPointer> dropped;
    {
      const std::lock_guard lock(mutex_);
      left_[who] = true;
      dropped = outbox_.drop(who);
      changed_.notify_all();
    }
    for (const PendingPointer& request : dropped) request->fail(has_left(who));
  }

  /// Takes leave of the others; false when that took too long.
  bool leave() {
    const milliseconds patience(patience_->load());
    std::unique_lock lock(mutex_);
    const bool quiet =
        changed_.wait_for(lock, patience, [this] { return failure_ || outbox_.empty(); });
    if (failure_ || !quiet) return failure_.has_value();
    leaving_ = true;
    wish({Place::What::leave, rank(), rank()});
    changed_.wait_for(lock, farewell_, [this] { return failure_ || all_left_; });
    if (failure_) return true;
    wish({Place::What::gone, rank(), rank()});
    return changed_.wait_for(lock, patience, [this] { return failure_ || done_; });
  }

  std::unique_ptr<Transport> control_;
  std::unique_ptr<ExchangeMaker> maker_;
  std::string name_;
  milliseconds farewell_;
  ExchangeLimits limits_;
  Patience patience_;
  PendingRequest::OnTimeout on_timeout_;
  Inbox inbox_;
  std::optional<OrderKeeper> keeper_;  ///< Rank 0 has it.

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<TransportError> failure_;
  std::vector<LinkTraffic> traffic_;
  std::vector<bool> left_;
  Outbox outbox_;
  std::uint64_t wishes_ = 0;
  bool open_ = false;
  bool leaving_ = false;
  bool all_left_ = false;
  bool done_ = false;

  std::mutex order_mutex_;
  std::condition_variable ordered_;
  std::deque<Place> order_;

  std::mutex touching_;  ///< Held while a caller's buffer is touched.
  std::map<std::pair<int, std::uint64_t>, Inbox::Arrival> arriving_;  ///< By sender and number.

  // Used only by the thread that follows the order.
  std::set<std::pair<int, bool>> connected_;
  int leavers_ = 0;
  int gone_ = 0;
  bool ended_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<Transport> make_ordered_transport(std::unique_ptr<Transport> control,
                                                  std::unique_ptr<ExchangeMaker> maker,
                                                  std::string name, milliseconds farewell) {
  auto transport = std::make_unique<OrderedTransport>(std::move(control), std::move(maker),
                                                      std::move(name), farewell);
  transport->await_open();
  return transport;
}

}  // namespace orrery::executor
