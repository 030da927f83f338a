#include "executor/net/request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace orrery::executor {

PendingRequest::PendingRequest(int peer, Tag tag, Patience patience, const OnTimeout* on_timeout)
    : peer_(peer), tag_(tag), patience_(std::move(patience)), on_timeout_(on_timeout) {}

void PendingRequest::wait() {
  std::unique_lock lock(mutex_);
  const std::chrono::milliseconds limit(patience_->load());
  changed_.wait_for(lock, limit, [&] { return finished_ || error_.has_value(); });
  if (finished_) return;
  if (error_) throw TransportError(*error_);
  lock.unlock();
  const TransportError error(TransportError::Kind::timeout, peer_,
                             fmt::format("waited {} ms for rank {} (step {}, op {})", limit.count(),
                                         peer_, tag_.value >> 44, tag_.value >> 20 & 0xffffff));
  (*on_timeout_)(error);
  throw TransportError(error);
}

bool PendingRequest::done() const {
  const std::lock_guard lock(mutex_);
  return finished_ || error_.has_value();
}

void PendingRequest::finish() {
  Callback callback;
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || error_) return;
    finished_ = true;
    callback = std::move(callback_);
    changed_.notify_all();
  }
  if (callback) callback(nullptr);
}

void PendingRequest::fail(const TransportError& error) {
  Callback callback;
  {
    const std::lock_guard lock(mutex_);
    if (finished_ || error_) return;
    error_ = error;
    callback = std::move(callback_);
    changed_.notify_all();
  }
  if (callback) callback(&error);
}

void PendingRequest::then(Callback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!finished_ && !error_) {
      callback_ = std::move(callback);
      return;
    }
  }
  callback(error_ ? &*error_ : nullptr);
}

namespace {

TransportError wrong_size(int peer, std::size_t have, std::size_t want) {
  return {TransportError::Kind::corrupt, peer,
          fmt::format("rank {} sent {} bytes where {} were expected", peer, have, want)};
}

TransportError said_goodbye(int peer) {
  return {TransportError::Kind::peer_lost, peer,
          fmt::format("rank {} has left, and more was expected from it", peer)};
}

}  // namespace

void Settlement::tell() const {
  if (!request) return;
  if (error) {
    request->fail(*error);
  } else {
    request->finish();
  }
}

RequestPointer Inbox::post(int peer, Tag tag, std::span<std::byte> into) {
  // Nobody has put a callback on a request that has not been returned yet.
  auto request = std::make_shared<PendingRequest>(peer, tag, patience_, &on_timeout_);
  const std::lock_guard lock(mutex_);
  if (failure_) {
    request->fail(*failure_);
    return request;
  }
  const Key key{peer, tag};
  if (const auto it = early_.find(key); it != early_.end()) {
    const std::vector<std::byte> data = std::move(it->second.front());
    it->second.pop_front();
    if (it->second.empty()) early_.erase(it);
    if (data.size() != into.size()) {
      request->fail(wrong_size(peer, data.size(), into.size()));
    } else {
      std::copy(data.begin(), data.end(), into.begin());
      request->finish();
    }
    return request;
  }
  if (closed_.contains(peer)) {
    request->fail(said_goodbye(peer));
  } else {
    wanted_[key].push_back({into, request});
  }
  return request;
}

std::optional<Inbox::Wanted> Inbox::take(const Key& key) {
  const auto it = wanted_.find(key);
  if (it == wanted_.end()) return std::nullopt;
  Wanted wanted = it->second.front();
  it->second.pop_front();
  if (it->second.empty()) wanted_.erase(it);
  return wanted;
}

bool Inbox::Arrival::grow(std::size_t bytes) {
  constexpr std::size_t kFirst = std::size_t{256} << 10;
  if (data.size() == bytes) return false;
  own.resize(std::min(bytes, std::max(kFirst, 2 * own.size())));
  data = own;
  return true;
}

Inbox::Arrival Inbox::begin(int peer, Tag tag, std::size_t bytes) {
  Arrival arrival;
  arrival.peer = peer;
  arrival.tag = tag;
  const std::lock_guard lock(mutex_);
  const auto at = wanted_.find({peer, tag});
  if (at != wanted_.end() && at->second.front().into.size() != bytes) {
    throw wrong_size(peer, bytes, at->second.front().into.size());
  }
  if (const auto wanted = take({peer, tag})) {
    arrival.data = wanted->into;
    arrival.request = wanted->request;
  } else {
    arrival.grow(bytes);
  }
  return arrival;
}

Settlement Inbox::deliver(Arrival&& arrival) {
  if (arrival.request) return {arrival.request, std::nullopt};
  return put(arrival.peer, arrival.tag, arrival.own);
}

Settlement Inbox::put(int peer, Tag tag, std::span<const std::byte> data) {
  const std::lock_guard lock(mutex_);
  // The receive may have been posted while the message was arriving.
  const auto wanted = take({peer, tag});
  if (!wanted) {
    early_[{peer, tag}].emplace_back(data.begin(), data.end());
    return {};
  }
  if (wanted->into.size() != data.size()) {
    return {wanted->request, wrong_size(peer, data.size(), wanted->into.size())};
  }
  std::copy(data.begin(), data.end(), wanted->into.begin());
  return {wanted->request, std::nullopt};
}

void Inbox::fail_all(const TransportError& error) {
  std::map<Key, std::deque<Wanted>> wanted;
  TransportError first = error;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = error;
    first = *failure_;
    wanted.swap(wanted_);
  }
  for (auto& [key, queue] : wanted) {
    for (Wanted& one : queue) one.request->fail(first);
  }
}

void Inbox::close(int peer) {
  std::vector<PendingPointer> unserved;
  {
    const std::lock_guard lock(mutex_);
    closed_[peer] = true;
    for (auto it = wanted_.begin(); it != wanted_.end();) {
      if (it->first.first != peer) {
        ++it;
        continue;
      }
      for (Wanted& wanted : it->second) unserved.push_back(wanted.request);
      it = wanted_.erase(it);
    }
  }
  for (const PendingPointer& request : unserved) request->fail(said_goodbye(peer));
}

}  // namespace orrery::executor
