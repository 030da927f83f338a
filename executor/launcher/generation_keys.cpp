#include "executor/launcher/generation_keys.h"

#include <fmt/format.h>

#include "executor/net/clock.h"
#include "executor/net/message.h"
#include "executor/net/transport.h"

namespace orrery::executor {

std::optional<std::string> RankContext::wait_for(const std::string& key) {
  while (!commands.stopped()) {
    if (auto value = store.get(key, kStoreWait)) return value;
  }
  return std::nullopt;
}

std::string GenerationKeys::key(const std::string& rest) const {
  return fmt::format("g/{}/{}", generation_, rest);
}

void GenerationKeys::check_canceled() const {
  if (canceled()) {
    throw TransportError(TransportError::Kind::peer_lost, -1, "ended by the launcher");
  }
}

std::string GenerationKeys::get(const std::string& rest) const {
  const auto deadline = std::chrono::steady_clock::now() + context_.settings.connect;
  do {
    if (auto value = context_.store.get(key(rest), kStoreWait)) return std::move(*value);
    check_canceled();
  } while (std::chrono::steady_clock::now() < deadline);
  throw TransportError(TransportError::Kind::timeout, -1,
                       fmt::format("{} did not come", key(rest)));
}

std::string GenerationKeys::get_of(const std::string& what, int m) const {
  const std::string wanted = key(fmt::format("{}/{}", what, m));
  const std::string sign = key(fmt::format("busy/{}", m));
  std::optional<std::string> last;
  auto deadline = std::chrono::steady_clock::now() + context_.settings.deadline;
  do {
    if (auto value = context_.store.get(wanted, kStoreWait)) return std::move(*value);
    check_canceled();
    auto now = context_.store.get(sign, std::chrono::milliseconds(0));
    if (now == last) continue;
    last = std::move(now);
    deadline = std::chrono::steady_clock::now() + context_.settings.deadline;
  } while (std::chrono::steady_clock::now() < deadline);
  throw TransportError(TransportError::Kind::timeout, -1, fmt::format("{} did not come", wanted));
}

void GenerationKeys::busy() const {
  check_canceled();
  context_.store.add(key(fmt::format("busy/{}", me_)), 1);
}

void GenerationKeys::set(const std::string& rest, const std::string& value) const {
  context_.store.set(key(rest), value);
}

std::map<std::string, std::string> GenerationKeys::list(const std::string& prefix) const {
  return context_.store.list(key(prefix));
}

void GenerationKeys::post(const std::string& rest, const std::string& value) const {
  context_.reporter.post(key("out/" + rest), value);
}

bool GenerationKeys::claim(const std::string& what) const {
  return context_.store.add(key(what), 1) == 1;
}

void GenerationKeys::event(const std::string& kind, const std::string& detail) {
  event_at(now_ns(), kind, detail);
}

void GenerationKeys::event_at(std::int64_t ns, const std::string& kind, const std::string& detail) {
  post(fmt::format("event/{:06d}/{:06d}", me_, events_++),
       to_message(EventReport{ns, kind, detail}));
}

void GenerationKeys::last_word(const std::string& kind, const std::string& detail) const {
  context_.reporter.drain();
  context_.store.set(key(fmt::format("out/event/{:06d}/{}", me_, kind)),
                     to_message(EventReport{now_ns(), kind, detail}));
}

}  // namespace orrery::executor
