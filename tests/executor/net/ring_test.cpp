// Do the collectives give what their names say, on every transport, bit for bit the same
// everywhere?
#include "executor/net/ring.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <string>

#include "models/base/rng.h"
#include "tests/executor/net/meshes.h"

namespace orrery::executor::ring_test {
namespace {

std::span<std::byte> bytes_of(std::vector<double>& values) {
  return std::as_writable_bytes(std::span(values));
}

/// Whole numbers, so that sums are exact in any order.
std::vector<double> whole_numbers(int rank, std::size_t count) {
  Rng rng = Rng(7).fork(static_cast<std::uint64_t>(rank));
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(std::floor(rng.uniform() * 1000));
  return out;
}

std::vector<double> sum_of(const std::vector<int>& ranks, std::size_t count) {
  std::vector<double> sum(count, 0);
  for (const int rank : ranks) {
    const std::vector<double> one = whole_numbers(rank, count);
    for (std::size_t i = 0; i < count; ++i) sum[i] += one[i];
  }
  return sum;
}

class Rings : public testing::TestWithParam<std::string> {};

TEST_P(Rings, AllReduceSumsOverTheGroupInAnyOrderOfRanks) {
  const std::vector<int> order = {2, 0, 4, 1};
  for (const std::size_t count : {0u, 1u, 3u, 4u, 1000u, 100'003u}) {
    const auto errors = run_mesh(GetParam(), 5, [&](Transport& transport) {
      RingGroup group{order, -1};
      for (std::size_t i = 0; i < order.size(); ++i) {
        if (order[i] == transport.rank()) group.position = static_cast<int>(i);
      }
      if (group.position < 0) return;
      std::vector<double> data = whole_numbers(transport.rank(), count);
      all_reduce(transport, group, ElementType::f64, bytes_of(data), {3, 5, 0});
      if (data != sum_of(order, count)) throw std::runtime_error("wrong sum");
    });
    EXPECT_EQ(first_error(errors), "") << count;
  }
}

TEST_P(Rings, AllReduceGivesAllMembersTheSameBits) {
  std::mutex mutex;
  std::vector<std::vector<double>> results;
  const auto errors = run_mesh(GetParam(), 4, [&](Transport& transport) {
    std::vector<double> data;
    Rng rng = Rng(9).fork(static_cast<std::uint64_t>(transport.rank()));
    for (int i = 0; i < 1001; ++i) data.push_back(rng.uniform() - 0.5);
    all_reduce(transport, {{0, 1, 2, 3}, transport.rank()}, ElementType::f64, bytes_of(data), {});
    const std::lock_guard lock(mutex);
    results.push_back(data);
  });
  EXPECT_EQ(first_error(errors), "");
  for (const auto& result : results) EXPECT_EQ(result, results.front());
}

TEST_P(Rings, ReduceScatterAndAllGatherTakeUnevenAndEmptyParts) {
  const std::vector<Extent> parts = {{0, 5}, {5, 5}, {5, 905}, {905, 1000}};
  const std::vector<int> all = {0, 1, 2, 3};
  const auto errors = run_mesh(GetParam(), 4, [&](Transport& transport) {
    const RingGroup group{all, transport.rank()};
    std::vector<double> data = whole_numbers(transport.rank(), 1000);
    reduce_scatter(transport, group, ElementType::f64, bytes_of(data), parts, {0, 1, 0});
    const std::vector<double> sum = sum_of(all, 1000);
    const Extent mine = parts[transport.rank()];
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      if (data[i] != sum[i]) throw std::runtime_error("wrong part");
    }
    for (std::size_t i = 0; i < 1000; ++i) {
      if (i < mine.begin || i >= mine.end) data[i] = -1;
    }
    all_gather(transport, group, ElementType::f64, bytes_of(data), parts, {0, 2, 0});
    if (data != sum) throw std::runtime_error("wrong whole");
  });
  EXPECT_EQ(first_error(errors), "");
}

TEST_P(Rings, BroadcastBringsTheFirstMembersBytesToAll) {
  for (const std::size_t count : {1u, 1000u, 300'000u}) {
    const auto errors = run_mesh(GetParam(), 3, [&](Transport& transport) {
      const std::vector<int> order = {1, 2, 0};
      const int position = transport.rank() == 1 ? 0 : transport.rank() == 2 ? 1 : 2;
      std::vector<double> data = whole_numbers(transport.rank(), count);
      broadcast(transport, {order, position}, bytes_of(data), {1, 1, 0});
      if (data != whole_numbers(1, count)) throw std::runtime_error("wrong bytes");
    });
    EXPECT_EQ(first_error(errors), "") << count;
  }
}

TEST_P(Rings, MessagesMayComeBeforeTheirReceives) {
  const auto errors = run_mesh(GetParam(), 2, [&](Transport& transport) {
    std::vector<double> one = {1};
    std::vector<double> two = {2};
    if (transport.rank() == 0) {
      transport.send(1, make_tag(0, 1, 0), bytes_of(one))->wait();
      transport.send(1, make_tag(0, 2, 0), bytes_of(two))->wait();
      return;
    }
    std::vector<double> got = {0};
    transport.receive(0, make_tag(0, 2, 0), bytes_of(got))->wait();
    if (got != two) throw std::runtime_error("tag 2");
    transport.receive(0, make_tag(0, 1, 0), bytes_of(got))->wait();
    if (got != one) throw std::runtime_error("tag 1");
  });
  EXPECT_EQ(first_error(errors), "");
}

INSTANTIATE_TEST_SUITE_P(Transports, Rings, testing::Values("threads", "tcp"),
                         [](const auto& info) { return info.param; });

TEST(Bf16, SumsAreRoundedToTheNearest) {
  const auto errors = run_mesh("threads", 2, [&](Transport& transport) {
    // 1 and 2^-8: half of the last place of 1, ties go to even.
    std::vector<std::uint16_t> data = {0x3f80, 0x3f81};
    if (transport.rank() == 1) data = {0x3b80, 0x3b80};
    all_reduce(transport, {{0, 1}, transport.rank()}, ElementType::bf16,
               std::as_writable_bytes(std::span(data)), {});
    if (data != std::vector<std::uint16_t>{0x3f80, 0x3f82}) throw std::runtime_error("rounding");
  });
  EXPECT_EQ(first_error(errors), "");
}

}  // namespace
}  // namespace orrery::executor::ring_test
