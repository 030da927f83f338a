/// Do frames pass the emulated network when its rates and latencies say?
#include "executor/netlab/fabric.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace orrery::executor::fabric_test {
namespace {

constexpr std::int64_t kMs = 1'000'000;

/// Ports of 1 MB/s (1 us a byte) and 1 ms each.
NetlabSpec nodes(int count) {
  NetlabSpec spec{"test", {}, {}, {}};
  for (int i = 0; i < count; ++i) {
    spec.nodes.push_back({fmt::format("n{}", i), {1e6}, {1e-3}, -1, 1, 1});
  }
  return spec;
}

struct Arrival {
  int from, to;
  std::int64_t due, bytes;
};

/// All that is on its way, in the order of arrival.
std::vector<Arrival> drain(NetlabFabric& fabric) {
  std::vector<Arrival> arrivals;
  while (const auto next = fabric.next_event()) {
    fabric.advance(*next, [&](NetlabFrame& frame, std::int64_t due) {
      arrivals.push_back({frame.from, frame.to, due, frame.wire_bytes});
    });
  }
  return arrivals;
}

TEST(NetlabFabric, OneFrameTakesItsSizeOverTheLeastRateAndTheLatency) {
  NetlabFabric fabric(nodes(2));
  ASSERT_TRUE(fabric.offer({0, 1, 1000, {}}, 0));
  const auto arrivals = drain(fabric);
  ASSERT_EQ(arrivals.size(), 1u);
  EXPECT_EQ(arrivals[0].due, 1 * kMs + 2 * kMs);
}

TEST(NetlabFabric, ASlowerReceiverTakesItsOwnTimeOnce) {
  for (const bool slow_sender : {false, true}) {
    NetlabSpec spec = nodes(2);
    spec.nodes[slow_sender ? 0 : 1].rate = {0.25e6};
    NetlabFabric fabric(spec);
    ASSERT_TRUE(fabric.offer({0, 1, 1000, {}}, 0));
    EXPECT_EQ(drain(fabric).at(0).due, 4 * kMs + 2 * kMs);
  }
}

TEST(NetlabFabric, ThereAreNoBurstsAfterIdleTimes) {
  NetlabFabric fabric(nodes(2));
  ASSERT_TRUE(fabric.offer({0, 1, 1000, {}}, 0));
  drain(fabric);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(fabric.offer({0, 1, 1000, {}}, 1000 * kMs));
  const auto arrivals = drain(fabric);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(arrivals.at(i).due, (1000 + i + 1 + 2) * kMs);
  }
}

TEST(NetlabFabric, AFrameThatIsHeldBackIsOvertaken) {
  NetlabFabric fabric(nodes(2));
  ASSERT_TRUE(fabric.offer({0, 1, 1000, {}}, 0, 5 * kMs));
  ASSERT_TRUE(fabric.offer({0, 1, 500, {}}, 0));
  const auto arrivals = drain(fabric);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].bytes, 500);
  EXPECT_EQ(arrivals[0].due, 3 * kMs + kMs / 2);  // behind the other on the way out
  EXPECT_EQ(arrivals[1].due, 1 * kMs + 2 * kMs + 5 * kMs);
}

TEST(NetlabFabric, BothDirectionsHaveTheFullRate) {
  NetlabFabric fabric(nodes(2));
  ASSERT_TRUE(fabric.offer({0, 1, 5000, {}}, 0));
  ASSERT_TRUE(fabric.offer({1, 0, 5000, {}}, 0));
  for (const Arrival& arrival : drain(fabric)) EXPECT_EQ(arrival.due, 7 * kMs);
}

TEST(NetlabFabric, SendersToOneReceiverShareItsPort) {
  NetlabFabric fabric(nodes(3));
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(fabric.offer({0, 2, 9000, {}}, 0));
    ASSERT_TRUE(fabric.offer({1, 2, 9000, {}}, 0));
  }
  const auto arrivals = drain(fabric);
  ASSERT_EQ(arrivals.size(), 20u);
  EXPECT_EQ(arrivals.back().due, (20 * 9 + 2) * kMs);
  const auto half = std::count_if(arrivals.begin(), arrivals.begin() + 10,
                                  [](const Arrival& arrival) { return arrival.from == 0; });
  EXPECT_NEAR(static_cast<double>(half), 5, 1);
}

TEST(NetlabFabric, AFrameOnALongWayDoesNotHoldUpOthers) {
  NetlabSpec spec = nodes(3);
  spec.nodes[0].rate = {1e4};  // 100 ms for the frame
  NetlabFabric fabric(spec);
  ASSERT_TRUE(fabric.offer({0, 2, 1000, {}}, 0));
  ASSERT_TRUE(fabric.offer({1, 2, 1000, {}}, 0));
  const auto arrivals = drain(fabric);
  EXPECT_EQ(arrivals.at(0).from, 1);
  EXPECT_EQ(arrivals.at(0).due, 3 * kMs);
  EXPECT_EQ(arrivals.at(1).due, 102 * kMs);
}

TEST(NetlabFabric, AShortFrameDoesNotWaitForTheDataOfAnotherWay) {
  NetlabFabric fabric(nodes(3));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(fabric.offer({0, 1, 10'000, {}}, 0));
  ASSERT_TRUE(fabric.offer({0, 2, 60, {}}, 0));
  const auto arrivals = drain(fabric);
  const auto at = std::find_if(arrivals.begin(), arrivals.end(),
                               [](const Arrival& arrival) { return arrival.to == 2; });
  EXPECT_LE(at->due, (2 * 10 + 2) * kMs);
  EXPECT_EQ(arrivals.back().due, (100 * 10 + 2) * kMs + 60'000);
}

TEST(NetlabFabric, WaysShareAPortByBytes) {
  NetlabFabric fabric(nodes(3));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(fabric.offer({0, 1, 9'000, {}}, 0));
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(fabric.offer({0, 2, 3'000, {}}, 0));
  std::int64_t first_half = 0;
  for (const Arrival& arrival : drain(fabric)) {
    if (arrival.to == 1 && arrival.due <= (180 + 2) * kMs) first_half += arrival.bytes;
  }
  EXPECT_NEAR(static_cast<double>(first_half), 90'000, 10'000);
}

TEST(NetlabFabric, APairMayHaveALimitAndALatencyOfItsOwn) {
  NetlabSpec spec = nodes(3);
  spec.pairs.push_back({0, 2, BytesPerSecond{0.5e6}, Seconds{10e-3}});
  NetlabFabric fabric(spec);
  ASSERT_TRUE(fabric.offer({2, 0, 1000, {}}, 0));
  ASSERT_TRUE(fabric.offer({1, 0, 1000, {}}, 0));
  const auto arrivals = drain(fabric);
  EXPECT_EQ(arrivals.at(0).due, 3 * kMs);
  EXPECT_EQ(arrivals.at(1).due, 12 * kMs);
}

TEST(NetlabFabric, AnUplinkIsSharedByItsLeafAndNotUsedInside) {
  NetlabSpec spec = nodes(4);
  spec.uplinks = {{{1e6}}, {{100e6}}};
  for (int i = 0; i < 4; ++i) spec.nodes[i].uplink = i / 2;
  NetlabFabric fabric(spec);
  ASSERT_TRUE(fabric.offer({0, 2, 10'000, {}}, 0));
  ASSERT_TRUE(fabric.offer({1, 3, 10'000, {}}, 0));
  EXPECT_EQ(drain(fabric).at(1).due, (20 + 2) * kMs);
  ASSERT_TRUE(fabric.offer({0, 1, 10'000, {}}, 100 * kMs));
  ASSERT_TRUE(fabric.offer({1, 0, 10'000, {}}, 100 * kMs));
  EXPECT_EQ(drain(fabric).at(1).due, (100 + 10 + 2) * kMs);
}

TEST(NetlabFabric, AFullQueueDropsAndCounts) {
  NetlabFabric fabric(nodes(2), 10'000);
  int taken = 0;
  for (int i = 0; i < 30; ++i) taken += fabric.offer({0, 1, 1000, {}}, 0) ? 1 : 0;
  EXPECT_EQ(taken, 11);  // one is being sent when the queue is full
  EXPECT_EQ(fabric.drops(0), 19);
  EXPECT_EQ(fabric.drops(1), 0);
  EXPECT_EQ(drain(fabric).size(), 11u);
}

RC_GTEST_PROP(NetlabFabric, EveryServerCarriesNoMoreThanItsRateAndKeepsTheOrderOfAPair, ()) {
  const int count = *rc::gen::inRange(2, 5);
  NetlabSpec spec = nodes(count);
  for (NetlabNode& node : spec.nodes) {
    node.rate = {1e6 / *rc::gen::inRange(1, 5)};
    node.latency = {1e-3 * *rc::gen::inRange(0, 4)};
  }
  NetlabFabric fabric(spec);
  std::int64_t now = 0;
  std::vector<std::int64_t> bytes_to(count, 0);
  std::vector<std::int64_t> first_to(count, -1);
  std::vector<Arrival> arrivals;
  const auto take = [&](NetlabFrame& frame, std::int64_t due) {
    arrivals.push_back({frame.from, frame.to, due, frame.wire_bytes});
  };
  for (int i = 0; i < 40; ++i) {
    now += *rc::gen::inRange<std::int64_t>(0, 3 * kMs);
    const int from = *rc::gen::inRange(0, count);
    const int to = (from + *rc::gen::inRange(1, count)) % count;
    const std::int64_t bytes = *rc::gen::inRange<std::int64_t>(60, 5000);
    fabric.advance(now, take);
    RC_ASSERT(fabric.offer({from, to, bytes, {}}, now));
    const std::int64_t earliest =
        now + static_cast<std::int64_t>(1e9 * netlab_latency(spec, from, to).value);
    std::int64_t& first = first_to[to];
    first = first < 0 ? earliest : std::min(first, earliest);
  }
  for (const Arrival& arrival : drain(fabric)) arrivals.push_back(arrival);
  RC_ASSERT(arrivals.size() == 40u);
  for (const Arrival& arrival : arrivals) {
    const std::size_t to = arrival.to;
    bytes_to[to] += arrival.bytes;
    // All that has come since the first frame could set out took its time at the port.
    const double least = 1e9 * static_cast<double>(bytes_to[to]) / spec.nodes[to].rate.value;
    RC_ASSERT(static_cast<double>(arrival.due - first_to[to]) >= least - 100);
  }
  RC_ASSERT(std::is_sorted(arrivals.begin(), arrivals.end(),
                           [](const Arrival& a, const Arrival& b) { return a.due < b.due; }));
}

}  // namespace
}  // namespace orrery::executor::fabric_test
