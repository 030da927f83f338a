// Does batched send-receive choose the senders that the paper's heuristics choose?
#include "models/sharding/batched_send_receive.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "models/base/rng.h"

namespace orrery::models::batched_send_receive_test {
namespace {

/// Devices 8 n .. 8 n + 7 are a node.
int node_rank(int a, int b) { return a / 8 == b / 8 ? 0 : 1; }
constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Sends = std::vector<SliceSend>;
using Copies = std::vector<SliceCopy>;

TEST(BatchedSendReceive, TakesTheOwnCopyAndSendsNothing) {
  const BatchedPlan plan = plan_sends({{1, {0, 1}, {1}}});
  EXPECT_EQ(plan.sends, Sends{});
  EXPECT_EQ(plan.copies, (Copies{{0, 1}}));
  EXPECT_TRUE(plan.lost.empty());
}

TEST(BatchedSendReceive, PrefersTheFasterLinkToTheLessLoadedSender) {
  // Device 9 has sent much inside the node already, and is chosen all the same.
  const std::vector<SliceRow> rows = {{100, {9}, {10}}, {1, {1, 9}, {8}}};
  EXPECT_EQ(plan_sends(rows, {node_rank, true}).sends, (Sends{{0, 9, 10}, {1, 9, 8}}));
  EXPECT_EQ(plan_sends(rows, {{}, true}).sends, (Sends{{0, 9, 10}, {1, 1, 8}}));
}

TEST(BatchedSendReceive, OfEquallyFastOwnersTheOneThatHasSentLeastSends) {
  // Figure 8 of the paper: GPU1 has sent the third slice, GPU2 sends the fourth.
  const std::vector<SliceRow> rows = {{1, {1}, {3}}, {1, {1, 2}, {3}}};
  EXPECT_EQ(plan_sends(rows, {node_rank, true}).sends, (Sends{{0, 1, 3}, {1, 2, 3}}));
}

TEST(BatchedSendReceive, OfEqualLoadsTheOwnerThatStandsFirstSends) {
  EXPECT_EQ(plan_sends({{1, {2, 1}, {3}}}).sends, (Sends{{0, 2, 3}}));
  EXPECT_EQ(plan_sends({{1, {1, 2}, {3}}}).sends, (Sends{{0, 1, 3}}));
}

TEST(BatchedSendReceive, WithoutHeuristicsTheLowestIdSends) {
  const std::vector<SliceRow> rows = {{5, {9, 1, 4}, {8}}, {5, {9, 1, 4}, {10}}};
  EXPECT_EQ(plan_sends(rows, {{}, false}).sends, (Sends{{0, 1, 8}, {1, 1, 10}}));
}

TEST(BatchedSendReceive, LoadOnSlowLinksDoesNotCountOnFastOnes) {
  // Device 0 has sent over the network; inside its node it is still free and comes first.
  const std::vector<SliceRow> rows = {{100, {0}, {8}}, {1, {0, 1}, {2}}};
  EXPECT_EQ(plan_sends(rows, {node_rank, true}).sends, (Sends{{0, 0, 8}, {1, 0, 2}}));
}

TEST(BatchedSendReceive, NamesWhatNobodyOwnsOnce) {
  const BatchedPlan plan = plan_sends({{1, {}, {1, 2}}, {1, {}, {}}, {1, {3}, {}}});
  EXPECT_EQ(plan.lost, (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(plan.sends, Sends{});
}

/// Up to `most` of the devices, in any order.
std::vector<int> some_of(int devices, int most, Rng& rng) {
  std::vector<int> ids(devices);
  std::iota(ids.begin(), ids.end(), 0);
  const std::int64_t count = rng.integer(0, most);
  for (std::int64_t i = 0; i < count; ++i) {
    std::swap(ids[i], ids[rng.integer(i, devices - 1)]);
  }
  ids.resize(count);
  return ids;
}

std::vector<SliceRow> random_rows(int devices, int most) {
  Rng rng(*rc::gen::arbitrary<std::uint64_t>());
  std::vector<SliceRow> rows;
  const std::int64_t count = rng.integer(1, 12);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto size = static_cast<double>(rng.integer(1, 9));
    if (i > 1 && rng.bernoulli(0.5)) {  // Tables that come again.
      const SliceRow known = rows[rng.integer(0, i - 1)];
      rows.push_back({size, known.owners, known.required});
      continue;
    }
    std::vector<int> owners = some_of(devices, most, rng);
    rows.push_back({size, std::move(owners), some_of(devices, most, rng)});
  }
  return rows;
}

/// The paper's text, word by word.
BatchedPlan by_the_text(const std::vector<SliceRow>& rows, const BatchedOptions& options) {
  BatchedPlan plan;
  std::map<std::pair<int, int>, double> load;  // By link class and sender.
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    const SliceRow& row = rows[r];
    if (row.owners.empty() && !row.required.empty()) plan.lost.push_back(r);
    if (row.owners.empty()) continue;
    for (const int receiver : row.required) {
      if (std::count(row.owners.begin(), row.owners.end(), receiver) > 0) {
        plan.copies.push_back({r, receiver});
        continue;
      }
      const auto rank = [&](int owner) {
        return options.link_rank ? options.link_rank(owner, receiver) : 0;
      };
      int fastest = std::numeric_limits<int>::max();
      for (const int owner : row.owners) fastest = std::min(fastest, rank(owner));
      int chosen = -1;
      double least = kInfinity;
      for (const int owner : row.owners) {
        if (rank(owner) != fastest) continue;
        const double key = options.balance ? load[{fastest, owner}] : owner;
        if (key < least) {
          chosen = owner;
          least = key;
        }
      }
      load[{fastest, chosen}] += row.size;
      plan.sends.push_back({r, chosen, receiver});
    }
  }
  return plan;
}

void expect_as_in_the_text(int devices, int most) {
  const std::vector<SliceRow> rows = random_rows(devices, most);
  for (const bool ranked : {true, false}) {
    for (const bool balance : {true, false}) {
      BatchedOptions options;
      if (ranked) options.link_rank = node_rank;
      options.balance = balance;
      const BatchedPlan plan = plan_sends(rows, options);
      const BatchedPlan reference = by_the_text(rows, options);
      RC_ASSERT(plan.sends.size() == reference.sends.size());
      RC_ASSERT(plan.sends == reference.sends);
      RC_ASSERT(plan.copies == reference.copies);
      RC_ASSERT(plan.lost == reference.lost);
    }
  }
}

RC_GTEST_PROP(BatchedSendReceiveLaw, ChoosesAsTheTextSays, ()) { expect_as_in_the_text(24, 8); }

// Enough owners for choices to go through the heap.
RC_GTEST_PROP(BatchedSendReceiveLaw, ChoosesAsTheTextSaysAmongManyOwners, ()) {
  expect_as_in_the_text(90, 60);
}

RC_GTEST_PROP(BatchedSendReceiveLaw, DeliversEveryRowOnceToEveryoneWhoNeedsIt, ()) {
  const std::vector<SliceRow> rows = random_rows(20, 10);
  const BatchedPlan plan = plan_sends(rows, {node_rank, true});
  std::map<std::pair<std::uint32_t, int>, int> arrived;
  double sent = 0;
  for (const SliceSend& send : plan.sends) {
    const SliceRow& row = rows[send.row];
    RC_ASSERT(std::count(row.owners.begin(), row.owners.end(), send.source) == 1);
    RC_ASSERT(std::count(row.owners.begin(), row.owners.end(), send.destination) == 0);
    ++arrived[{send.row, send.destination}];
    sent += row.size;
  }
  for (const SliceCopy& copy : plan.copies) {
    const SliceRow& row = rows[copy.row];
    RC_ASSERT(std::count(row.owners.begin(), row.owners.end(), copy.device) == 1);
    ++arrived[{copy.row, copy.device}];
  }
  double needed = 0;
  std::size_t deliveries = 0;
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    if (rows[r].owners.empty()) continue;
    for (const int receiver : rows[r].required) {
      const int count = arrived[{r, receiver}];
      RC_ASSERT(count == 1);
      ++deliveries;
      const auto& owners = rows[r].owners;
      if (std::count(owners.begin(), owners.end(), receiver) == 0) needed += rows[r].size;
    }
  }
  RC_ASSERT(deliveries == plan.sends.size() + plan.copies.size());
  RC_ASSERT(sent == needed);
}

RC_GTEST_PROP(BatchedSendReceiveLaw, ForgettingLoadsIsACallForEachTensor, ()) {
  const std::vector<SliceRow> rows = random_rows(20, 10);
  const BatchedOptions options = {node_rank, true};
  SendScan scan(options);
  for (const SliceRow& row : rows) {
    scan.reset_loads();
    const std::vector<int> senders = scan.choose(scan.add(row.owners, row.required), row.size);
    const BatchedPlan alone = plan_sends({row}, options);
    std::size_t next = 0;
    for (std::size_t i = 0; i < senders.size(); ++i) {
      if (senders[i] == kNobody || senders[i] == row.required[i]) continue;
      RC_ASSERT(senders[i] == alone.sends[next].source);
      ++next;
    }
    RC_ASSERT(next == alone.sends.size());
  }
}

}  // namespace
}  // namespace orrery::models::batched_send_receive_test
