#include "sim/iteration/inner.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "models/spec/topology.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::inner_test {
namespace {

constexpr double kLatency = 2e-6, kBandwidth = 200e9;  // NVLink of make_cluster

/// Ranks 0 to 3 on devices 0 to 3. Set 0: three all-reduces and two all-gathers over all of them.
/// Set 1: all-reduces in two groups side by side, {0, 1} and {2, 3}, then one over all.
ir::Program program() {
  ir::Program program = collective_program(ir::CollectiveKind::all_reduce, 4, 1_MiB);
  program.groups.push_back({{{0}, {1}}});
  program.groups.push_back({{{2}, {3}}});
  const auto all_reduce = ir::CollectiveKind::all_reduce;
  const auto all_gather = ir::CollectiveKind::all_gather;
  const auto purpose = ir::Purpose::tensor_parallel;
  program.inner_sets = {{{all_reduce, purpose, {0}, 3, Bytes{4e6}, {}},
                         {all_gather, purpose, {0}, 2, Bytes{8e6}, {}}},
                        {{all_reduce, purpose, {1, 2}, 5, Bytes{2e6}, {}},
                         {all_reduce, purpose, {0}, 1, Bytes{4e6}, {}}}};
  return program;
}

class Inner : public testing::Test {
 protected:
  Inner() : cluster_(make_cluster({})), topology_(cluster_), program_(program()) {}
  models::Cluster cluster_;
  models::Topology topology_;
  models::PathFunction path_ = [this](DeviceId a, DeviceId b) { return topology_.path(a, b); };
  std::map<LinkId, double> slowdown_;
  models::Network network_{topology_, path_, slowdown_};
  ir::Program program_;
  models::ProgramPrices prices_{std::vector<Seconds>()};
};

TEST_F(Inner, OpDrivesOnlyTheEdgesThatLeaveItsOwnDevices) {
  InnerTable table(program_, prices_, network_);
  const std::vector<RankId> one = {{2}}, two = {{0}, {1}};
  const auto& alone = table.phases(0, one);
  ASSERT_EQ(alone.size(), 2u);
  for (const InnerPhase& phase : alone) {
    ASSERT_EQ(phase.flows.size(), 1u);
    EXPECT_EQ(phase.flows[0].source, DeviceId{2});
    EXPECT_EQ(phase.flows[0].destination, DeviceId{3});
  }
  EXPECT_EQ(table.phases(0, two).front().flows.size(), 2u);
  EXPECT_EQ(table.phases(1, two).front().flows.size(), 2u);
}

TEST_F(Inner, RepetitionsOverTheSameEdgesAddUpBytesAndLatencies) {
  InnerTable table(program_, prices_, network_);
  const std::vector<RankId> all = {{0}, {1}, {2}, {3}};
  const auto& merged = table.merged(0, all);
  ASSERT_EQ(merged.size(), 1u);
  ASSERT_EQ(merged[0].flows.size(), 4u);
  for (const InnerFlow& flow : merged[0].flows) {
    // 6 of 4 steps of an all-reduce, 3 of 4 of an all-gather.
    EXPECT_DOUBLE_EQ(flow.bytes.value, 3 * 1.5 * 4e6 + 2 * 0.75 * 8e6);
    EXPECT_NEAR(flow.tail.value + flow.latency.value, (3 * 6 + 2 * 3) * kLatency, 1e-15);
  }
}

TEST_F(Inner, CollectivesOverDifferentEdgesFollowOneAnother) {
  InnerTable table(program_, prices_, network_);
  const std::vector<RankId> all = {{0}, {1}, {2}, {3}};
  const auto& merged = table.merged(1, all);
  ASSERT_EQ(merged.size(), 2u);
  EXPECT_EQ(merged[0].flows.size(), 4u);
  EXPECT_DOUBLE_EQ(merged[0].flows[0].bytes.value, 5 * 2e6);
  EXPECT_DOUBLE_EQ(merged[1].flows[0].bytes.value, 1.5 * 4e6);
}

TEST_F(Inner, ClosedFormTakesGroupsSideBySideAndCollectivesInTurn) {
  InnerTable table(program_, prices_, network_);
  const double pairs = 5 * (2 * (1e6 / kBandwidth + kLatency));
  const double whole = 6 * (1e6 / kBandwidth + kLatency);
  EXPECT_NEAR(table.closed_form(1).exposed.all.value, pairs + whole, 1e-12);
  EXPECT_EQ(table.closed_form(1).hidden.all.value, 0);
  const std::vector<RankId> all = {{0}, {1}, {2}, {3}};
  EXPECT_TRUE(table.hidden(1, all).empty());
}

TEST_F(Inner, WhatIsHiddenAndWhatIsExposedAddUp) {
  program_.inner_sets[1][0].purpose = ir::Purpose::zero;
  const std::vector<RankId> all = {{0}, {1}, {2}, {3}};
  InnerTable whole(program_, prices_, network_);
  const models::ProgramPrices hiding(std::vector<Seconds>(), {{}, {{1, 1}, {0.25, 1}}});
  InnerTable table(program_, hiding, network_);
  const Seconds pairs = whole.closed_form(1).exposed.gathers;
  EXPECT_DOUBLE_EQ(table.closed_form(1).hidden.all.value, 0.75 * pairs.value);
  EXPECT_EQ(table.closed_form(1).hidden.gathers, table.closed_form(1).hidden.all);
  EXPECT_DOUBLE_EQ(table.closed_form(1).exposed.gathers.value, 0.25 * pairs.value);
  EXPECT_DOUBLE_EQ((table.closed_form(1).exposed.all + table.closed_form(1).hidden.all).value,
                   whole.closed_form(1).exposed.all.value);
  const auto& merged = table.merged(1, all);
  ASSERT_EQ(table.hidden(1, all).size(), merged[0].flows.size());
  EXPECT_DOUBLE_EQ(merged[0].flows[0].bytes.value, 0.25 * 5 * 2e6);
  EXPECT_DOUBLE_EQ(table.hidden(1, all)[0].bytes.value, 0.75 * 5 * 2e6);
  EXPECT_EQ(table.merged(0, all)[0].flows.size(), whole.merged(0, all)[0].flows.size());
}

TEST_F(Inner, PayloadCountsAGroupForAMemberAndAllForAWholeRank) {
  program_.ranks[1].devices = {{1}, {0}, {2}, {3}};
  program_.ranks[2].devices = {{2}, {3}};
  InnerTable table(program_, prices_, network_);
  EXPECT_DOUBLE_EQ(table.payload(1, {0}).value, 5 * 2e6 + 4e6);
  EXPECT_DOUBLE_EQ(table.payload(1, {1}).value, 2 * 5 * 2e6 + 4e6);
  EXPECT_DOUBLE_EQ(table.payload(1, {2}).value, 5 * 2e6 + 4e6) << "of the others' group nothing";
}

}  // namespace
}  // namespace orrery::sim::inner_test
