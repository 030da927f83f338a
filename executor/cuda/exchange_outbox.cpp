#include "executor/cuda/exchange_outbox.h"

#include <algorithm>
#include <utility>

namespace orrery::executor {
namespace {

/// Pieces of a rank that have been asked for and have not passed: enough that the next one is there
/// when one has passed, and so few that nobody waits long for a rank's earlier ones. [choice]
constexpr int kWindow = 4;

}  // namespace

void Outbox::add(int to, Tag tag, std::span<const std::byte> data, PendingPointer request) {
  messages_[next_] = {to, tag, data, std::move(request)};
  unasked_.push_back(next_++);
  ask();
}

/// Messages take turns, so that a long one does not keep short ones waiting.
void Outbox::ask() {
  while (waiting_ < kWindow && !unasked_.empty()) {
    const std::uint64_t number = unasked_.front();
    unasked_.pop_front();
    Message& one = messages_.at(number);
    const std::size_t length = std::min(piece_bytes_, one.data.size() - one.asked);
    wish_({Place::What::piece, rank_, one.to, number, one.tag.value, one.data.size(), one.asked,
           length});
    one.asked += length;
    ++one.waiting;
    ++waiting_;
    if (one.asked < one.data.size()) unasked_.push_back(number);
  }
}

std::optional<std::span<const std::byte>> Outbox::bytes(const Place& place) const {
  const auto at = messages_.find(place.message);
  if (at == messages_.end()) return std::nullopt;
  return at->second.data.subspan(place.offset, place.length);
}

PendingPointer Outbox::pass(const Place& place) {
  const auto at = messages_.find(place.message);
  if (at == messages_.end()) return nullptr;
  Message& one = at->second;
  one.passed += place.length;
  --one.waiting;
  --waiting_;
  PendingPointer done;
  if (one.passed == one.data.size()) {
    done = std::move(one.request);
    messages_.erase(at);
  }
  ask();
  return done;
}

std::vector<PendingPointer> Outbox::drop(int to) {
  std::vector<PendingPointer> out;
  for (auto it = messages_.begin(); it != messages_.end();) {
    if (it->second.to != to) {
      ++it;
      continue;
    }
    waiting_ -= it->second.waiting;
    std::erase(unasked_, it->first);
    out.push_back(std::move(it->second.request));
    it = messages_.erase(it);
  }
  ask();
  return out;
}

std::vector<PendingPointer> Outbox::drop_all() {
  std::vector<PendingPointer> out;
  for (auto& [number, one] : messages_) out.push_back(std::move(one.request));
  messages_.clear();
  unasked_.clear();
  return out;
}

}  // namespace orrery::executor
