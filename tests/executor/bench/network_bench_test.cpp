#include "executor/bench/network_bench.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "executor/net/message.h"
#include "executor/net/thread_transport.h"
#include "models/ir/measurement_text.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::network_bench_test {
namespace {

using ir::Measurement;

/// All cases in turn, on ranks that are threads; samples by case.
std::vector<std::vector<Measurement>> take(const std::vector<BenchCase>& cases, int ranks,
                                           const std::vector<Measurement>& before = {},
                                           int interrupt_after = -1) {
  const auto transports = make_thread_transports(ranks);
  RankOfDevice rank_of;
  // Devices need not have the numbers of their ranks.
  for (int r = 0; r < ranks; ++r) rank_of[DeviceId{10 * (ranks - r)}] = r;
  std::vector<std::vector<Measurement>> out(cases.size());
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      for (std::size_t n = 0; n < cases.size(); ++n) {
        bool mine = false;
        for (const DeviceId device : cases[n].devices) mine = mine || rank_of.at(device) == r;
        if (!mine) continue;
        const bool leads = rank_of.at(cases[n].devices.front()) == r;
        BenchSink sink;
        sink.sample = [&](const Measurement& sample) {
          EXPECT_TRUE(leads);
          out[n].push_back(sample);
        };
        sink.check = [&] {
          if (static_cast<int>(out[n].size()) == interrupt_after) throw BenchInterrupted();
        };
        try {
          time_transfer(cases[n], n, *transports[r], rank_of, two_repetitions(), before, sink);
        } catch (const BenchInterrupted&) {
          EXPECT_TRUE(leads);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return out;
}

BenchRequest network_request(int ranks) {
  BenchRequest request;
  request.model = tiny_model();
  const auto device = [&](int rank) { return DeviceId{10 * (ranks - rank)}; };
  request.pairs = {{device(0), device(1), "net"}, {device(1), device(0), "net"}};
  for (const int size : {2, 4, 8}) {
    if (size > ranks) break;
    BenchGroup group;
    for (int r = 0; r < size; ++r) group.devices.push_back(device(r));
    group.link_class = "net";
    request.groups.push_back(group);
  }
  request.message_bytes = {8, 1000, 100'000};
  request.collective_bytes = {4, 30, 4096};
  return request;
}

TEST(NetworkBench, EachCaseGivesSamplesOfItsKeyOnItsFirstDevice) {
  for (const int ranks : {2, 4}) {
    const std::vector<BenchCase> cases = list_cases(network_request(ranks));
    const auto taken = take(cases, ranks);
    for (std::size_t n = 0; n < cases.size(); ++n) {
      ASSERT_EQ(taken[n].size(), 2u) << to_message(cases[n]);
      for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(ir::measurement_key(taken[n][i]), ir::measurement_key(cases[n].key));
        EXPECT_EQ(taken[n][i].repetition, static_cast<int>(i));
        EXPECT_GT(taken[n][i].wall.value, 0);
        EXPECT_EQ(taken[n][i].cpu.value, 0);
        EXPECT_FALSE(taken[n][i].disturbed);
      }
    }
  }
}

TEST(NetworkBench, GoesOnAfterSamplesThatAreThere) {
  BenchRequest request = network_request(2);
  request.groups.clear();
  request.message_bytes = {64};
  const std::vector<BenchCase> cases = list_cases(request);
  Measurement there = cases.front().key;
  there.wall = Seconds{1};
  const auto taken = take(cases, 2, {there});
  ASSERT_EQ(taken.front().size(), 1u);
  EXPECT_EQ(taken.front().front().repetition, 1);
  there.repetition = 1;
  Measurement first = there;
  first.repetition = 0;
  EXPECT_TRUE(take(cases, 2, {first, there}).front().empty());
}

TEST(NetworkBench, AnInterruptionLetsTheOthersGo) {
  const std::vector<BenchCase> cases = list_cases(network_request(4));
  const auto taken = take(cases, 4, {}, 1);
  for (const auto& samples : taken) EXPECT_EQ(samples.size(), 1u);
}

}  // namespace
}  // namespace orrery::executor::network_bench_test
