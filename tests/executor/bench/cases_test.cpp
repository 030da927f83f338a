#include "executor/bench/cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "executor/bench/bench_rank.h"
#include "executor/net/message.h"
#include "models/ir/measurement_text.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::cases_test {
namespace {

using ir::MeasurementKind;

BenchRequest request_of() {
  BenchRequest request;
  request.model = tiny_model();
  request.devices = {{DeviceId{0}, "cpu", 1}, {DeviceId{1}, "slow cpu", 3}};
  request.pairs = {{DeviceId{0}, DeviceId{1}, "net"}, {DeviceId{1}, DeviceId{0}, "net"}};
  request.groups = {{{DeviceId{0}, DeviceId{1}}, "net"}};
  set_default_sizes(request, true);
  return request;
}

std::map<MeasurementKind, int> count_kinds(const std::vector<BenchCase>& cases) {
  std::map<MeasurementKind, int> counts;
  for (const BenchCase& one : cases) ++counts[one.key.kind];
  return counts;
}

TEST(BenchCases, NoTwoHaveOneKeyAndEachDeviceTypeHasAllOfCompute) {
  const BenchRequest request = request_of();
  const std::vector<BenchCase> cases = list_cases(request);
  std::set<std::string> keys;
  std::map<std::string, int> blocks;
  for (const BenchCase& one : cases) {
    EXPECT_TRUE(keys.insert(ir::measurement_key(one.key)).second) << to_message(one);
    if (one.key.kind == MeasurementKind::block) ++blocks[one.key.device_type];
    if (one.key.device_type == "slow cpu" && one.key.kind == MeasurementKind::block) {
      EXPECT_EQ(one.slowdown, 3);
      EXPECT_EQ(one.devices, std::vector<DeviceId>{DeviceId{1}});
    }
  }
  // Layers: 6 passes at 3 depths; embedding 3 and head 4 at one; by 2 degrees and 2 micro-batches.
  const int expected = 2 * 2 * (6 * 3 + 3 + 4);
  EXPECT_EQ(blocks["cpu"], expected);
  EXPECT_EQ(blocks["slow cpu"], expected);
  EXPECT_EQ(count_kinds(cases)[MeasurementKind::op_overhead], 2);
}

TEST(BenchCases, PairsAreMeasuredInBothDirectionsAndOnceBothWays) {
  const BenchRequest request = request_of();
  int one_way = 0;
  int both = 0;
  for (const BenchCase& one : list_cases(request)) {
    if (one.key.kind != MeasurementKind::point_to_point) continue;
    (one.key.both_ways ? both : one_way) += 1;
    EXPECT_EQ(one.devices, (std::vector<DeviceId>{one.key.source, one.key.destination}));
  }
  const int sizes = static_cast<int>(request.message_bytes.size());
  EXPECT_EQ(one_way, 2 * sizes);
  EXPECT_EQ(both, sizes);
}

TEST(BenchCases, MessagesGoFromEightBytesTo64MiBByFours) {
  BenchRequest request;
  set_default_sizes(request, false);
  ASSERT_GE(request.message_bytes.size(), 3u);
  EXPECT_EQ(request.message_bytes.front(), 8);
  EXPECT_EQ(request.message_bytes.back(), 64 << 20);
  for (std::size_t i = 1; i + 1 < request.message_bytes.size(); ++i) {
    EXPECT_EQ(request.message_bytes[i], 4 * request.message_bytes[i - 1]);
  }
  EXPECT_EQ(request.layers, (std::vector<int>{1, 2, 4, 8}));
  EXPECT_EQ(request.tensor_parallel, (std::vector<int>{1, 2, 4, 8}));
}

TEST(BenchCases, DegreesThatDoNotDivideAreLeftOut) {
  BenchRequest request = request_of();
  request.tensor_parallel = {1, 2, 3, 4, 8};
  std::set<int> degrees;
  for (const BenchCase& one : list_cases(request)) {
    if (one.key.kind == MeasurementKind::block) degrees.insert(one.key.tensor_parallel);
  }
  EXPECT_EQ(degrees, (std::set<int>{1, 2, 4})) << "the model has 4 heads";
}

TEST(BenchCases, OnlyTheKindsThatAreAskedFor) {
  BenchRequest request = request_of();
  request.kinds = {MeasurementKind::gemm};
  const auto counts = count_kinds(list_cases(request));
  EXPECT_EQ(counts.size(), 1u);
  EXPECT_GT(counts.at(MeasurementKind::gemm), 0);
}

TEST(BenchCases, WorkIsTheModelsOwnCount) {
  const BenchRequest request = request_of();
  for (const BenchCase& one : list_cases(request)) {
    const ir::Measurement& key = one.key;
    if (key.kind != MeasurementKind::block || key.block != ir::BlockKind::transformer) continue;
    const double forward = 1000.0 * key.layers * key.micro_batch_size / key.tensor_parallel;
    const double again = key.recompute == ir::Recompute::full ? 1 : 0;
    const double times = key.pass == ir::Pass::backward         ? 2 + again
                         : key.pass == ir::Pass::backward_input ? 1 + again
                                                                : 1;
    EXPECT_DOUBLE_EQ(key.flops.value, times * forward) << to_message(one);
  }
}

TEST(BenchCases, TextsReadBackEqual) {
  for (const BenchCase& one : list_cases(request_of())) {
    ir::Measurement sample = one.key;
    sample.wall = Seconds{1.0 / 3};
    const std::string text = to_message(BenchOrder{one, {sample, sample}});
    const auto order = from_message<BenchOrder>(text, "order");
    EXPECT_EQ(order.what, one);
    EXPECT_EQ(order.before, (std::vector<ir::Measurement>{sample, sample}));
  }
  EXPECT_THROW(from_message<BenchCase>("{key: [[block]], devices: [0], slowdown: 1}", "case"),
               std::runtime_error);
  SamplingRule rule;
  rule.spread = 1.0 / 7;
  rule.most_disturbed = 11;
  const SamplingRule read = from_message<SamplingRule>(to_message(rule), "rule");
  EXPECT_EQ(read.spread, rule.spread);
  EXPECT_EQ(read.most_disturbed, rule.most_disturbed);
  EXPECT_EQ(read.slack, rule.slack);
  EXPECT_EQ(read.warm_up, rule.warm_up);
}

}  // namespace
}  // namespace orrery::executor::cases_test
