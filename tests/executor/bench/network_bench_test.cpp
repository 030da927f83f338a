#include "executor/bench/network_bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
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

constexpr std::chrono::milliseconds kLate{100};

/// Has a word on its way at once and returns late, as where the thread is not scheduled.
class LateAfterWords final : public Transport {
 public:
  explicit LateAfterWords(Transport& own) : own_(own) {}
  int rank() const override { return own_.rank(); }
  int size() const override { return own_.size(); }
  RequestPointer send(int peer, Tag tag, std::span<const std::byte> data) override {
    RequestPointer request = own_.send(peer, tag, data);
    if (data.size() == sizeof(std::uint64_t)) std::this_thread::sleep_for(kLate);
    return request;
  }
  RequestPointer receive(int peer, Tag tag, std::span<std::byte> into) override {
    return own_.receive(peer, tag, into);
  }
  void set_deadline(std::chrono::milliseconds timeout) override { own_.set_deadline(timeout); }
  void abort(const std::string& reason) override { own_.abort(reason); }
  std::vector<LinkTraffic> traffic() const override { return own_.traffic(); }
  std::string name() const override { return own_.name(); }

 private:
  Transport& own_;
};

TEST(NetworkBench, WhatOneSendsLastsFromWhenItSendsHoweverLateTheOtherNoticesThatItIsReady) {
  BenchRequest request = network_request(2);
  request.pairs.resize(1);
  request.message_bytes = {1000};
  request.collective_bytes = {4096};
  std::vector<BenchCase> cases = list_cases(request);
  std::erase_if(cases, [](const BenchCase& one) {
    const bool message = one.key.kind == ir::MeasurementKind::point_to_point;
    return message ? one.key.both_ways : one.key.collective != ir::CollectiveKind::broadcast;
  });
  ASSERT_EQ(cases.size(), 2u);
  const auto transports = make_thread_transports(2);
  LateAfterWords late(*transports[1]);
  const RankOfDevice ranks = {{DeviceId{20}, 0}, {DeviceId{10}, 1}};
  std::vector<double> walls;
  BenchSink sink;
  sink.sample = [&](const Measurement& sample) { walls.push_back(sample.wall.value); };
  sink.check = [] {};
  const auto take_all = [&](Transport& own) {
    for (std::size_t n = 0; n < cases.size(); ++n) {
      time_transfer(cases[n], n, own, ranks, two_repetitions(), {}, sink);
    }
  };
  std::thread follower([&] { take_all(late); });
  take_all(*transports[0]);
  follower.join();
  ASSERT_EQ(walls.size(), 4u);
  // What arrives is noticed that late; the time from there on is next to nothing.
  for (const double wall : walls) EXPECT_GT(wall, 0.05);
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
