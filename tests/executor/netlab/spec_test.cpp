/// Is a lab's description checked, read back equal, and are compute shares what the cores allow?
#include "executor/netlab/spec.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "executor/net/message.h"
#include "executor/netlab/tap.h"

namespace orrery::executor::spec_test {
namespace {

NetlabSpec three() {
  NetlabSpec spec;
  spec.name = std::string("lab");
  spec.nodes = {{"a", {125e6}, {1e-4}, 0, 2, 1.0},
                {"b", {0.1 * 125e6}, {1.0 / 3e3}, 1, 1, 0.5},
                {"c-1", {25e6}, {0}, -1, 1, 0.25}};
  spec.pairs = {{0, 2, BytesPerSecond{1e7}, {}}, {1, 2, {}, Seconds{5e-3}}};
  spec.uplinks = {{{50e6}}, {{1e9 / 3}}};
  return spec;
}

TEST(NetlabSpec, TextReadsBackEqual) {
  const NetlabSpec spec = three();
  ASSERT_EQ(find_problems(spec), std::vector<std::string>{});
  EXPECT_TRUE(from_message<NetlabSpec>(to_message(spec), "lab") == spec) << to_message(spec);
  NetlabSpec wrong = spec;
  wrong.pairs.push_back({0, 7, {}, {}});
  EXPECT_THROW(from_message<NetlabSpec>(to_message(wrong), "lab"), std::runtime_error);
}

TEST(NetlabSpec, EveryProblemIsNamed) {
  NetlabSpec spec = three();
  spec.name = std::string("a/b");
  spec.nodes[0].rate = {0};
  spec.nodes[1].name = std::string("a");
  spec.nodes[2].latency = {-1};
  spec.nodes[2].uplink = 2;
  spec.nodes[2].speed = 0;
  spec.pairs.push_back({2, 0, {}, {}});
  spec.pairs.push_back({1, 1, BytesPerSecond{-1}, {}});
  EXPECT_EQ(find_problems(spec).size(), 9u);
  EXPECT_EQ(find_problems(NetlabSpec{"empty", {}, {}, {}}).size(), 1u);
}

TEST(NetlabDisturbance, EveryProblemIsNamed) {
  EXPECT_TRUE(find_problems(three(), {0.5, 1, Seconds{1}, {{0, 1}, {1, 0}}}).empty());
  EXPECT_EQ(find_problems(three(), {-0.1, 1.1, Seconds{-1}, {{0, 3}, {-1, 0}, {1, 1}}}).size(), 6u);
}

TEST(NetlabSpec, LatencyIsThatOfBothPortsOrOfThePair) {
  const NetlabSpec spec = three();
  EXPECT_DOUBLE_EQ(netlab_latency(spec, 0, 1).value, 1e-4 + 1.0 / 3e3);
  EXPECT_DOUBLE_EQ(netlab_latency(spec, 2, 1).value, 5e-3);
}

TEST(NetlabSlowdowns, TheFastestIsNotStretchedWhereCoresSuffice) {
  EXPECT_EQ(netlab_slowdowns(three(), 8), (std::vector<double>{1, 2, 4}));
}

TEST(NetlabSlowdowns, SharesSumToTheCoresLessTheReserveWhereTheyDoNotSuffice) {
  const NetlabSpec spec = three();  // 2 x 1 + 0.5 + 0.25 cores at full speed
  const std::vector<double> slowdowns = netlab_slowdowns(spec, 1);
  double shares = 0;
  for (std::size_t i = 0; i < slowdowns.size(); ++i) {
    EXPECT_GE(slowdowns[i], 1);
    EXPECT_DOUBLE_EQ(slowdowns[i] * spec.nodes[i].speed, slowdowns[0] * spec.nodes[0].speed);
    shares += spec.nodes[i].devices / slowdowns[i];
  }
  EXPECT_DOUBLE_EQ(shares, 1 - netlab_reserve(1));
}

/// As a TAP gives it: header of 10 bytes, then a frame with TCP at byte 34 and 32 bytes of it.
std::vector<char> frame(std::size_t payload, unsigned segment) {
  std::vector<char> data(10 + 14 + 20 + 32 + payload, 0);
  data[0] = 1;  // the checksum is left to the device
  data[1] = segment == 0 ? 0 : 1;
  const std::uint16_t fields[] = {60, static_cast<std::uint16_t>(segment), 34, 16};
  std::memcpy(data.data() + 2, fields, sizeof fields);
  data[10] = 2;
  data[10 + 5] = 3;  // the third node
  data[10 + 34 + 12] = static_cast<char>(8 << 4);
  return data;
}

TEST(TapFrames, SegmentsHaveHeadersOfTheirOwn) {
  constexpr std::int64_t kHeaders = 14 + 20 + 32;
  EXPECT_EQ(tap_wire_bytes(frame(1000, 0)), 1000 + kHeaders);
  EXPECT_EQ(tap_wire_bytes(frame(8948, 8948)), 8948 + kHeaders);
  EXPECT_EQ(tap_wire_bytes(frame(20'000, 8948)), 20'000 + 3 * kHeaders);
}

TEST(TapFrames, OnlyAddressesOfNodesHaveADestination) {
  std::vector<char> data = frame(10, 0);
  EXPECT_EQ(tap_destination(data, 3), 2);
  EXPECT_EQ(tap_destination(data, 2), -1);
  std::fill_n(data.begin() + 10, 6, static_cast<char>(0xff));
  EXPECT_EQ(tap_destination(data, 3), -1);
  EXPECT_EQ(tap_destination(std::vector<char>(12), 3), -1);
}

}  // namespace
}  // namespace orrery::executor::spec_test
