#include "executor/cuda/exchange_order.h"

#include <fmt/format.h>

#include <future>
#include <memory>
#include <span>
#include <utility>

namespace orrery::executor {
namespace {

constexpr Tag numbered(std::uint64_t number) { return {std::uint64_t{1} << 63 | number}; }

}  // namespace

void send_place(Transport& control, int to, std::uint64_t number, const Place& place) {
  const auto kept = std::make_shared<Place>(place);
  control.send(to, numbered(number), std::as_bytes(std::span(kept.get(), 1)))
      ->then([kept](const TransportError*) {});  // A failed control transport is heard elsewhere.
}

Place receive_place(Transport& control, int from, std::uint64_t number) {
  Place place;
  // Shared: whoever sets it may still be at it when this function returns.
  const auto ended = std::make_shared<std::promise<std::optional<TransportError>>>();
  control.receive(from, numbered(number), std::as_writable_bytes(std::span(&place, 1)))
      ->then([ended](const TransportError* error) {
        ended->set_value(error != nullptr ? std::optional(*error) : std::nullopt);
      });
  const std::optional<TransportError> error = ended->get_future().get();
  if (error) throw TransportError(*error);
  if (place.from < 0 || place.from >= control.size() || place.to < 0 ||
      place.to >= control.size() || place.offset + place.length > place.bytes) {
    throw TransportError(TransportError::Kind::corrupt, from,
                         fmt::format("rank {} sent a place that makes no sense", from));
  }
  return place;
}

OrderKeeper::OrderKeeper(Transport& control, Local local)
    : control_(control),
      local_(std::move(local)),
      left_(control.size()),
      gone_(control.size()),
      told_(control.size()) {}

void OrderKeeper::give(const Place& place) {
  const std::size_t from = place.from;
  const std::size_t to = place.to;
  const std::lock_guard lock(mutex_);
  if (place.what == Place::What::piece) {
    if (left_[from] || left_[to]) return;
    tell(place.from, place);
    tell(place.to, place);
    return;
  }
  left_[from] = true;
  for (std::int64_t rank = 0; rank < control_.size(); ++rank) tell(rank, place);
  if (place.what == Place::What::gone) gone_[from] = true;
}

void OrderKeeper::tell(std::int64_t rank, const Place& place) {
  const std::size_t index = rank;
  if (rank == 0) return local_(place);
  if (!gone_[index]) send_place(control_, static_cast<int>(rank), told_[index]++, place);
}

}  // namespace orrery::executor
