#include "executor/net/clock.h"

#include <time.h>

#include <chrono>
#include <limits>
#include <span>

namespace orrery::executor {
namespace {

constexpr std::uint64_t kClockOp = 0xffffff;

}  // namespace

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

ClockEstimate estimate_clock(Transport& transport, std::uint64_t step, int rounds) {
  ClockEstimate best{0, transport.rank() == 0 ? 0 : std::numeric_limits<std::int64_t>::max()};
  const auto tag = [&](int round, int part) {
    return make_tag(step, kClockOp, static_cast<std::uint64_t>(2 * round + part));
  };
  if (transport.rank() == 0) {
    for (int peer = 1; peer < transport.size(); ++peer) {
      for (int round = 0; round < rounds; ++round) {
        std::int64_t time = 0;
        transport.receive(peer, tag(round, 0), bytes_of(time))->wait();
        time = now_ns();
        transport.send(peer, tag(round, 1), bytes_of(time))->wait();
      }
    }
    return best;
  }
  for (int round = 0; round < rounds; ++round) {
    std::int64_t theirs = 0;
    std::int64_t sent = now_ns();
    const std::int64_t before = sent;
    const RequestPointer answer = transport.receive(0, tag(round, 1), bytes_of(theirs));
    transport.send(0, tag(round, 0), bytes_of(sent))->wait();
    answer->wait();
    const std::int64_t after = now_ns();
    const std::int64_t half = (after - before) / 2;
    if (half < best.uncertainty_ns) best = {before + half - theirs, half};
  }
  return best;
}

}  // namespace orrery::executor
