#include "executor/launcher/generation_board.h"

#include <fmt/format.h>

#include <chrono>

#include "executor/net/clock.h"
#include "executor/net/transport.h"

namespace orrery::executor {
namespace {

/// How long one question to the store waits before the member looks around again.
constexpr std::chrono::milliseconds kMemberWait{500};

}  // namespace

std::string GenerationBoard::key(const std::string& rest) const {
  return fmt::format("g/{}/{}", generation_, rest);
}

std::string GenerationBoard::get(const std::string& rest) const {
  const auto deadline = std::chrono::steady_clock::now() + context_.settings.connect;
  do {
    if (auto value = context_.store.get(key(rest), kMemberWait)) return std::move(*value);
    if (canceled()) {
      throw TransportError(TransportError::Kind::peer_lost, -1, "ended by the launcher");
    }
  } while (std::chrono::steady_clock::now() < deadline);
  throw TransportError(TransportError::Kind::timeout, -1,
                       fmt::format("{} did not come", key(rest)));
}

void GenerationBoard::set(const std::string& rest, const std::string& value) const {
  context_.store.set(key(rest), value);
}

bool GenerationBoard::claim(const std::string& what) const {
  return context_.store.add(key(what), 1) == 1;
}

void GenerationBoard::event(const std::string& kind, const std::string& detail) {
  event_at(now_ns(), kind, detail);
}

void GenerationBoard::event_at(std::int64_t ns, const std::string& kind,
                               const std::string& detail) {
  context_.reporter.post(key(fmt::format("out/event/{:06d}/{:06d}", me_, events_++)),
                         fmt::format("{} {} {}", ns, kind, detail));
}

void GenerationBoard::last_word(const std::string& kind, const std::string& detail) const {
  context_.reporter.drain();
  context_.store.set(key(fmt::format("out/event/{:06d}/{}", me_, kind)),
                     fmt::format("{} {} {}", now_ns(), kind, detail));
}

}  // namespace orrery::executor
