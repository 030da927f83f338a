// What checkpoints cost, how often they are taken, and where replicas in host memory lie.
#include "planners/recovery/kit/checkpointing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "planners/recovery/hot_spare/spares.h"
#include "planners/recovery/kit/node_classes.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/transfer_estimate.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::checkpointing_test {
namespace {

constexpr double kDay = 86'400;

CheckpointInterval interval(const std::string& text) {
  CheckpointInterval out;
  std::string error;
  EXPECT_TRUE(from_scalar(text, out, error)) << error;
  return out;
}

TEST(CheckpointCost, FollowsFromBytesAndBandwidths) {
  const auto world = recovery_world();
  const PolicyInput input = policy_input(*world);
  const ir::Plan plan = uniform_plan(*world, 2, 2, 2);  // Four nodes A, two replicas.
  const models::ReshardBytes bytes = models::all_state_bytes(world->job);
  const double per_parameter = bytes.weight + bytes.optimizer();
  const auto shares = state_shares(input, plan, bytes);
  double most_device = 0;
  double most_node = 0;
  double all = 0;
  for (std::size_t i = 0; i < shares.size(); i += 2) {
    most_device = std::max({most_device, shares[i].value, shares[i + 1].value});
    most_node = std::max(most_node, (shares[i] + shares[i + 1]).value);
    all += (shares[i] + shares[i + 1]).value;
  }
  const auto local = checkpoint_cost(input, plan, ir::Location::nvme);
  EXPECT_DOUBLE_EQ(local.bytes.value, all);
  EXPECT_DOUBLE_EQ(local.persist.value, most_node / 2e9);
  // The slots are links of 100 GB/s; host memory takes 100 GB/s for both.
  EXPECT_DOUBLE_EQ(local.snapshot.value, std::max(most_device / 100e9, most_node / 100e9));
  const auto host = checkpoint_cost(input, plan, ir::Location::host_memory);
  EXPECT_EQ(host.persist.value, 0);
  const auto cloud = checkpoint_cost(input, plan, ir::Location::cloud);
  const double whole = static_cast<double>(models::parameters(world->workload)) * per_parameter;
  EXPECT_NEAR(cloud.bytes.value, whole, 1e-6 * whole);
  EXPECT_NEAR(cloud.persist.value, whole / 1.2e9 + 0.01, 1e-9 * whole);
  EXPECT_GT(local.bytes.value, 1.99 * whole);
}

TEST(CheckpointCost, OfARenamedPlanIsThatOfAFreshLook) {
  const auto world = recovery_world();
  const PolicyInput known = policy_input(*world);
  const models::ReshardBytes bytes = models::all_state_bytes(world->job);
  const ir::Plan plan = uniform_plan(*world, 2, 2, 2);
  checkpoint_cost(known, plan, ir::Location::cloud);
  DeviceRenaming to;
  for (int d = 0; d < world->cluster.size(); ++d) to.push_back(d);
  std::swap(to[0], to[6]);
  std::swap(to[3], to[8]);
  const ir::Plan other = renamed(plan, to);
  const PolicyInput fresh = policy_input(*world);
  for (const ir::Location location : {ir::Location::nvme, ir::Location::cloud}) {
    const CheckpointCost a = checkpoint_cost(known, other, location);
    const CheckpointCost b = checkpoint_cost(fresh, other, location);
    EXPECT_DOUBLE_EQ(a.snapshot.value, b.snapshot.value);
    EXPECT_DOUBLE_EQ(a.persist.value, b.persist.value);
    EXPECT_DOUBLE_EQ(a.bytes.value, b.bytes.value);
  }
  const auto a = state_shares(known, other, bytes);
  const auto b = state_shares(fresh, other, bytes);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_DOUBLE_EQ(a[i].value, b[i].value) << i;
}

TEST(CheckpointInterval, ClosedForms) {
  EXPECT_DOUBLE_EQ(young_interval(Seconds{2}, 0.01).value, 20);
  EXPECT_DOUBLE_EQ(availability_interval(Seconds{2}, 0.01, Seconds{10}).value,
                   2 + std::sqrt(2 * 110.0 * 2 + 4));
  // Daly: delta = 2, M = 100: sqrt(400) (1 + sqrt(0.01) / 3 + 0.01 / 9) - 2.
  EXPECT_DOUBLE_EQ(daly_interval(Seconds{2}, 0.01).value, 20 * (1 + 0.1 / 3 + 0.01 / 9) - 2);
  EXPECT_DOUBLE_EQ(daly_interval(Seconds{250}, 0.01).value, 100);
}

TEST(CheckpointInterval, TunedIsTheBestOfAllNumbersOfIterations) {
  for (const double rate : {1 / (3.0 * 3600), 1 / 600.0, 1 / (7 * kDay)}) {
    for (const double stall : {0.0, 0.5, 20.0, 300.0}) {
      for (const double iteration : {0.7, 5.0, 90.0}) {
        const Seconds restart{120};
        const auto tuned = iterations_between(
            interval("tuned"), {Seconds{stall}, Seconds{stall}, restart}, Seconds{iteration}, rate);
        const auto ettr = [&](std::int64_t k) {
          return expected_ettr(rate, restart, Seconds{iteration * static_cast<double>(k)},
                               Seconds{stall});
        };
        double best = -1e9;
        for (std::int64_t k = 1; k < 40'000; ++k) best = std::max(best, ettr(k));
        EXPECT_NEAR(ettr(tuned), best, 1e-12) << rate << " " << stall << " " << iteration;
      }
    }
  }
}

TEST(CheckpointInterval, OneIsPersistedBeforeTheNext) {
  // Persisting takes 50 s beyond a stall of 2 s, iterations 8 s.
  const auto of = [](const char* text) {
    return iterations_between(interval(text), {Seconds{2}, Seconds{52}, Seconds{60}}, Seconds{8},
                              0.1);
  };
  for (const char* rule : {"young", "daly", "availability", "tuned", "1"}) EXPECT_EQ(of(rule), 7);
  EXPECT_EQ(of("80"), 10);
  EXPECT_EQ(iterations_between(interval("1"), {Seconds{2}, Seconds{2}, Seconds{}}, Seconds{8}, 0.1),
            1);
}

TEST(CheckpointInterval, IsARuleOrPositiveSeconds) {
  std::string error;
  for (const char* good : {"young", "daly", "availability", "tuned", "2.5"}) {
    EXPECT_EQ(to_scalar(interval(good)), good);
    OptionalInterval optional;
    EXPECT_TRUE(from_scalar(good, optional, error));
    EXPECT_EQ(to_scalar(optional), good);
  }
  for (const char* bad : {"", "often", "never", "-1", "0", "5 s", "nan", "inf"}) {
    CheckpointInterval unused;
    EXPECT_FALSE(from_scalar(bad, unused, error)) << bad;
  }
  OptionalInterval never;
  EXPECT_TRUE(from_scalar("never", never, error));
  EXPECT_FALSE(never.interval);
  EXPECT_EQ(to_scalar(never), "never");
}

/// Kokolis et al. 2025: RSC-1's 6.5 failures per 1,000 node-days, 8 GPUs a node, u0 = 5 min.
TEST(ExpectedEttr, PublishedPoints) {
  const auto rate = [](double gpus, double per_thousand) {
    return gpus / 8 * per_thousand / 1000 / kDay;
  };
  const double r = rate(16'384, 6.5);
  EXPECT_NEAR(expected_ettr(r, Seconds{300}, Seconds{3600}, Seconds{0}), 0.68, 0.005);
  EXPECT_NEAR(expected_ettr(r, Seconds{300}, Seconds{300}, Seconds{0}), 0.93, 0.005);
  const double r100k = rate(100'000, 2.34);
  EXPECT_GE(expected_ettr(r100k, Seconds{120}, Seconds{120}, Seconds{0}), 0.9);
}

TEST(InMemory, GeminisPlacementProbabilities) {
  const auto mixed = ReplicaPlacement::mixed;
  EXPECT_NEAR(replica_survival(16, 2, 2, mixed), 1 - 8.0 / 120, 1e-12);  // 0.933
  EXPECT_NEAR(replica_survival(16, 2, 3, mixed), 0.8, 1e-12);
  EXPECT_NEAR(replica_survival(16, 2, 2, ReplicaPlacement::ring), 1 - 16.0 / 120, 1e-12);  // 0.867
}

TEST(InMemory, SurvivalIsTheShareOfAllSetsOfLostNodes) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    for (int replicas = 1; replicas <= 4; ++replicas) {
      for (const auto placement : {ReplicaPlacement::mixed, ReplicaPlacement::ring}) {
        const auto holders = replica_nodes(nodes, replicas, placement);
        std::vector<double> good(nodes + 1, 0);
        std::vector<double> all(nodes + 1, 0);
        for (unsigned lost = 0; lost < 1U << nodes; ++lost) {
          const std::size_t count = __builtin_popcount(lost);
          ++all[count];
          const bool survives = std::all_of(holders.begin(), holders.end(), [&](const auto& of) {
            return std::any_of(of.begin(), of.end(),
                               [&](int node) { return (lost >> node & 1U) == 0; });
          });
          if (survives) ++good[count];
        }
        for (std::size_t k = 0; k < all.size(); ++k) {
          EXPECT_NEAR(replica_survival(nodes, replicas, static_cast<int>(k), placement),
                      good[k] / all[k], 1e-12)
              << nodes << " nodes, " << replicas << " replicas, " << k << " lost";
        }
      }
    }
  }
}

TEST(InMemory, EachShareLiesOnDifferentNodesItselfFirst) {
  for (int nodes = 1; nodes <= 13; ++nodes) {
    for (int replicas = 1; replicas <= 4; ++replicas) {
      const auto holders = replica_nodes(nodes, replicas, ReplicaPlacement::mixed);
      for (int n = 0; n < nodes; ++n) {
        const auto& of = holders[n];
        EXPECT_EQ(of.front(), n);
        EXPECT_EQ(of.size(), as_size(std::min(nodes, replicas)));
        EXPECT_EQ(std::set<int>(of.begin(), of.end()).size(), of.size());
      }
    }
  }
}

/// An evaluator whose iterations leave the network idle for a given time.
class IdleNetwork final : public models::Evaluator {
 public:
  explicit IdleNetwork(Seconds idle) : idle_(idle) {}
  models::Evaluation evaluate(const ir::Plan&) const override {
    models::Evaluation out;
    out.iteration_time = Seconds{1};
    out.breakdown.data_parallel = Seconds{1} - idle_;
    out.breakdown.compute = idle_;
    return out;
  }
  std::string name() const override { return "idle"; }

 private:
  Seconds idle_;
};

TEST(InMemory, TakesTheLeastIntervalWhoseIdleTimeCarriesTheTraffic) {
  const auto world = recovery_world();
  const PolicyInput given = policy_input(*world);
  const ir::Plan plan = uniform_plan(*world, 2, 2, 2);
  const auto shares = state_shares(given, plan, models::all_state_bytes(world->job));
  double node = 0;
  for (std::size_t i = 0; i < shares.size(); i += 2) {
    node = std::max(node, (shares[i] + shares[i + 1]).value);
  }
  const double traffic = node / 5e9;  // NICs of 5 GB/s, one replica on another node.
  for (const double idle : {1.0, traffic * 1.01, traffic / 2.5}) {
    if (idle > 1) continue;
    const IdleNetwork evaluator{Seconds{idle}};
    const PolicyInput input{given.cluster,
                            given.topology,
                            given.workload,
                            given.job,
                            given.profile,
                            evaluator,
                            1 / kDay,
                            {},
                            1};
    const auto levels = in_memory_checkpoints(input, plan, Seconds{1}, {});
    ASSERT_EQ(levels.size(), 2u);
    const auto every = std::max<std::int64_t>(1, std::llround(std::ceil(traffic / idle)));
    for (const auto& level : levels) {
      EXPECT_EQ(level.every, every);
      EXPECT_EQ(level.stall.count, 0);
      EXPECT_EQ(level.location, ir::Location::host_memory);
    }
    // The second replica of nodes 0 and 1 lies on each other.
    EXPECT_EQ(levels[1].stored_on[0], DeviceId{2});
    EXPECT_EQ(levels[1].stored_on[3], DeviceId{1});
  }
}

TEST(Spares, QuantileOfABinomial) {
  EXPECT_EQ(binomial_quantile(10, 0, 0.99), 0);
  // Binomial(2, 0.1): P(0) = 0.81, P(<= 1) = 0.99.
  EXPECT_EQ(binomial_quantile(2, 0.1, 0.8), 0);
  EXPECT_EQ(binomial_quantile(2, 0.1, 0.98), 1);
  EXPECT_EQ(binomial_quantile(2, 0.1, 0.995), 2);
}

TEST(TransferEstimate, TheNarrowestCarrierDecides) {
  const auto world = recovery_world();
  const PolicyInput input = policy_input(*world);
  using L = ir::Location;
  EXPECT_EQ(transfer_estimate(input, {}).value, 0);
  const models::StateTransfer cloud{L::cloud, L::peer, {}, {0}, Bytes{1.2e9}};
  EXPECT_NEAR(transfer_estimate(input, {cloud}).value, 1.01, 1e-9);
  const models::StateTransfer nvme{L::nvme, L::peer, {0}, {0}, Bytes{3.5e9}};
  const models::StateTransfer mate{L::nvme, L::peer, {1}, {1}, Bytes{3.5e9}};
  EXPECT_NEAR(transfer_estimate(input, {nvme, mate}).value, 2, 1e-9);
  const models::StateTransfer far{L::peer, L::peer, {2}, {0}, Bytes{5e9}};
  const models::StateTransfer other{L::peer, L::peer, {4}, {1}, Bytes{5e9}};
  EXPECT_NEAR(transfer_estimate(input, {far, other}).value, 2, 1e-9);  // Into node 0.
}

}  // namespace
}  // namespace orrery::planners::checkpointing_test
