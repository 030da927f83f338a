// Is a stretch of a trace what the whole trace says of that time?
#include "traces/window.h"

#include <gtest/gtest.h>

#include "models/base/rng.h"
#include "models/spec/library.h"
#include "tests/traces/support.h"
#include "traces/generate/generate.h"
#include "traces/presence.h"

namespace orrery::traces::window_test {
namespace {

constexpr std::int64_t kHourLong = 3600 * kSecond;

/// Which devices are there after all events up to and at `at`.
std::vector<bool> present_at(const Trace& trace, Instant at) {
  const TraceLayout layout(trace.nodes);
  Presence presence(layout);
  for (const NodeId node : absent_at_start(trace)) presence.set_absent(node);
  std::vector<Contradiction> found;
  for (const ir::ClusterEvent& event : trace.events) {
    if (event.time > at) break;
    presence.apply(event, found);
  }
  for (const Contradiction& each : found) ADD_FAILURE() << each.what;
  std::vector<bool> out;
  for (std::size_t d = 0; d < layout.device_count(); ++d) {
    out.push_back(presence.present(DeviceId{static_cast<std::int32_t>(d)}));
  }
  return out;
}

TEST(Window, HasTheDevicesThatTheTraceHasThen) {
  for (const char* name : {"spot", "llama3"}) {
    config::Diagnostics diagnostics;
    const TraceGenerator generator = load_generator(
        name, models::default_library_root(),
        name == std::string("llama3") ? std::vector<std::string>{"failures.rate=3000"}
                                      : std::vector<std::string>{},
        {}, {}, diagnostics);
    ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
    const Trace trace = generate(generator, equal_nodes(12, 4, "A100-80GB"), {48 * kHourLong}, 5);
    ASSERT_GT(trace.events.size(), 20u) << name;
    Rng rng(11);
    for (int i = 0; i < 40; ++i) {
      const Instant start{rng.integer(0, 40 * kHourLong)};
      const Trace part = window(trace, start, {8 * kHourLong});
      EXPECT_EQ(part.horizon.count, 8 * kHourLong);
      for (const std::int64_t hours : {0, 1, 5, 8}) {
        const Nanoseconds later{hours * kHourLong};
        EXPECT_EQ(present_at(part, Instant{} + later), present_at(trace, start + later))
            << name << " from " << start.nanoseconds << " on, after " << hours << " h";
      }
    }
  }
}

TEST(Window, KeepsWhatIsSlowAndWhatWasAnnounced) {
  const Trace trace = read_text(
      "# schema: orrery/trace/1\n# horizon: 1000\n# nodes: n{0..1} x2\n"
      "time,kind,scope,cause,notice,detection,factor,price\n"
      "10,slow,devices:n0/1,,,,0.5,\n20,slow,devices:n1/0,,,,0.7,\n30,restore,devices:n1/0,,,,,\n"
      "40,notice,node:n1,,100 s,,,\n140,leave,node:n1,,,,,\n");
  const Trace part = window(trace, Instant{100 * kSecond}, {200 * kSecond});
  int slow = 0;
  Nanoseconds notice;
  for (const ir::ClusterEvent& event : part.events) {
    if (event.kind == ir::EventKind::slow) {
      ++slow;
      EXPECT_EQ(event.scope.devices, std::vector<DeviceId>{{1}});
      EXPECT_EQ(event.factor, 0.5);
    }
    if (event.kind == ir::EventKind::notice) notice = event.notice;
    if (event.kind == ir::EventKind::leave) {
      EXPECT_EQ(event.time, Instant{40 * kSecond});
    }
  }
  EXPECT_EQ(slow, 1);
  EXPECT_EQ(notice.count, 40 * kSecond);
}

}  // namespace
}  // namespace orrery::traces::window_test
