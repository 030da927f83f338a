// Does plan_restore bring each device all that a plan needs, once, from a source that has it, the
// best in the order? Random plans, copies and losses, carried out on sets that model memories.
#include "planners/recovery/kit/restore.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/lower/block_replicas.h"
#include "models/reshard/reshard_plan.h"
#include "tests/models/lower/random_plan.h"
#include "tests/models/reshard/slow_bandwidth.h"
#include "tests/planners/recovery/family.h"

namespace orrery::planners::restore_test {
namespace {

using models::Features;
using models::JobState;
using models::StateReplica;

constexpr models::ReshardBytes kBytes{2, 4, 8};

/// Nodes of three devices with NVLink between the first two. Every other node has a slow NIC.
models::Cluster cluster_of(int devices) {
  models::Cluster cluster;
  cluster.gpu_types.resize(1);
  cluster.gpu_types[0].name = "gpu";
  cluster.gpu_types[0].vendor = "vendor";
  cluster.links["nvlink"] = {"nvlink", BytesPerSecond{200e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["pcie"] = {"pcie", BytesPerSecond{20e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["ib"] = {"ib", BytesPerSecond{10e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["eth"] = {"eth", BytesPerSecond{3e9}, Seconds{1e-6}, 1, false, ""};
  for (int first = 0; first < devices; first += 3) {
    models::Node node;
    node.name = "node" + std::to_string(first / 3);
    node.gpu_types.assign(3, 0);
    node.domains = {{{0, 1}, "nvlink"}};
    node.pcie = {{{0, 1, 2}, "pcie", ""}};
    node.nics = {{first / 3 % 2 == 1 ? "eth" : "ib", {}}};
    cluster.nodes.push_back(node);
  }
  models::seal(cluster);
  return cluster;
}

class NoEvaluation final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override { return {}; }
  std::string name() const override { return "none"; }
};

/// Optimizer state or weight, block, parameter, element along the split.
using Item = std::tuple<bool, int, int, std::int64_t>;
using Memory = std::set<Item>;

/// What each device holds under a plan.
std::map<int, Memory> memories(const ir::Plan& plan, const models::Workload& workload,
                               const models::Cluster& cluster) {
  const models::Placement placement = models::place(plan, cluster, true);
  const models::BlockReplicas copies(workload, placement);
  std::map<int, Memory> out;
  for (int b = 0; b < workload.size(); ++b) {
    for (int p = 0; p < 3; ++p) {
      if (b > 0 && copies.is_tied({b}, p)) continue;
      for (const bool optimizer : {false, true}) {
        const bool sharded = copies.zero({b}).stage >= (optimizer ? 1 : 3);
        const auto layout = copies.holdings({b}, p, sharded);
        for (const models::Piece& piece : layout.pieces) {
          for (std::int64_t e = piece.slice.begin; e < piece.slice.end; ++e) {
            out[piece.owner].insert({optimizer, b, p, e});
          }
        }
      }
    }
  }
  return out;
}

double bytes_of(const Item& item, const models::Workload& workload) {
  const auto& [optimizer, block, p, element] = item;
  const models::Parameter& parameter = workload.blocks[block].parameters[p];
  const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
  const std::int64_t length = parameter.expert ? workload.shape.experts * width : width;
  return static_cast<double>(parameter.elements) / static_cast<double>(length) *
         (optimizer ? kBytes.optimizer() : kBytes.weight);
}

struct RestoreCase {
  models::Cluster cluster;
  models::Workload workload;
  ir::Plan to;
  JobState state;
  std::vector<StateSource> order;
};

ir::Plan with_devices(ir::Plan plan, const std::vector<int>& names) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = {names[device.index()]};
        }
      }
    }
  }
  return plan;
}

void shuffle(std::vector<int>& values, Rng& rng) {
  for (std::size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[rng.integer(0, static_cast<std::int64_t>(i) - 1)]);
  }
}

models::RandomPlan plan_like(std::uint64_t seed, const models::Workload& workload,
                             const Features& features) {
  models::RandomPlan plan = models::random_plan(seed, features);
  while (plan.workload.size() != workload.size()) plan = models::random_plan(++seed, features);
  return plan;
}

/// The same plan on the same devices, but other shards: another ZeRO stage, or (where groups have
/// a sequence degree) tensor and sequence parallelism exchanged, or no stage without work.
models::RandomPlan nearly(models::RandomPlan plan, Rng& rng) {
  const int stage = static_cast<int>(rng.integer(0, 3));
  const bool exchange = rng.bernoulli(0.5);
  const bool all_work = rng.bernoulli(0.5);
  for (ir::Pipeline& pipeline : plan.plan.pipelines) {
    if (all_work) pipeline.reroutes.clear();
    for (ir::Stage& at : pipeline.stages) {
      for (ir::Segment& segment : at.segments) {
        segment.zero.stage = stage;
        for (ir::Group& group : segment.groups) {
          const bool two = group.sequence == ir::SequenceParallelism::ulysses ||
                           group.sequence == ir::SequenceParallelism::ring;
          if (two && exchange) std::swap(group.tensor_parallel, group.sequence_degree);
        }
      }
    }
  }
  return plan;
}

/// Up to four copies of two iterations: the target's layout under other names, nearly that one, or
/// others.
RestoreCase random_case(std::uint64_t seed, const Features& features) {
  Rng rng(seed);
  const models::RandomPlan target = models::random_plan(seed, features);
  std::vector<models::RandomPlan> layouts;
  const std::size_t count = rng.integer(1, 4);
  int most = target.devices;
  for (std::size_t c = 0; c < count; ++c) {
    const auto kind = rng.integer(0, 3);
    layouts.push_back(kind == 0   ? nearly(target, rng)
                      : kind == 1 ? plan_like(seed + 1000 + 97 * c, target.workload, features)
                                  : target);
    most = std::max(most, layouts.back().devices);
  }
  RestoreCase out;
  out.cluster = cluster_of(most + static_cast<int>(rng.integer(0, 6)));
  out.workload = target.workload;
  std::vector<int> names(out.cluster.size());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int>(i);
  shuffle(names, rng);
  out.to = with_devices(target.plan, names);
  if (rng.bernoulli(0.3)) {  // Stages that held nothing work again.
    for (ir::Pipeline& pipeline : out.to.pipelines) pipeline.reroutes.clear();
  }
  std::set<int> live;
  for (const DeviceId device : ir::devices_of(out.to)) live.insert(device.value);
  for (const models::Device& device : out.cluster.devices) {
    if (rng.bernoulli(0.7)) live.insert(device.id.value);
  }
  for (const int device : live) out.state.live.push_back({device});
  for (const models::RandomPlan& layout : layouts) {
    StateReplica copy;
    copy.iteration = rng.bernoulli(0.8) ? 7 : 5;
    copy.location = static_cast<ir::Location>(rng.integer(1, 4));
    if (rng.bernoulli(0.5)) shuffle(names, rng);
    copy.layout = std::make_shared<const ir::Plan>(with_devices(layout.plan, names));
    const auto devices = ir::devices_of(*copy.layout);
    if (rng.bernoulli(0.4)) {
      for (std::size_t i = 0; i < devices.size(); ++i) {
        copy.stored_on.push_back({static_cast<int>(rng.integer(0, out.cluster.size() - 1))});
      }
    }
    for (std::uint32_t i = 0; i < devices.size(); ++i) {
      if (rng.bernoulli(0.15)) copy.lost_shards.push_back(i);
    }
    if (rng.bernoulli(0.3)) copy.lost_shards.clear();
    out.state.replicas.push_back(std::move(copy));
  }
  std::vector<int> order = {0, 1, 2, 3, 4, 5, 6};
  if (rng.bernoulli(0.5)) shuffle(order, rng);
  const std::size_t listed = rng.integer(3, 7);
  for (std::size_t i = 0; i < listed; ++i) {
    out.order.push_back(static_cast<StateSource>(order[i]));
  }
  return out;
}

/// By source: who gives an item to a device, told from the contract alone.
class Slow {
 public:
  explicit Slow(const RestoreCase& c) : c_(c) {
    for (const StateReplica& copy : c.state.replicas) {
      if (copy.iteration != 7) continue;
      const auto held = memories(*copy.layout, c.workload, c.cluster);
      const auto devices = ir::devices_of(*copy.layout);
      for (std::uint32_t i = 0; i < devices.size(); ++i) {
        if (std::find(copy.lost_shards.begin(), copy.lost_shards.end(), i) !=
            copy.lost_shards.end())
          continue;
        const auto found = held.find(devices[i].value);
        if (found == held.end()) continue;
        const DeviceId holder = copy.stored_on.empty() ? devices[i] : copy.stored_on[i];
        const int place = copy.location == ir::Location::peer    ? holder.value
                          : copy.location == ir::Location::cloud ? 0
                                                                 : node_of(holder.value);
        for (const Item& item : found->second) places_[{copy.location, item}].insert(place);
      }
    }
  }

  int node_of(int device) const { return c_.cluster.device({device}).node.value; }
  bool lives(int device) const {
    return std::binary_search(c_.state.live.begin(), c_.state.live.end(), DeviceId{device});
  }
  bool node_lives(int node) const {
    const auto devices = c_.cluster.devices_of({node});
    return std::any_of(devices.begin(), devices.end(), [&](DeviceId d) { return lives(d.value); });
  }

  /// Devices (GPU) or nodes (host, NVMe) or 0 (cloud) that can give it.
  std::set<int> givers(StateSource source, const Item& item, int receiver) const {
    using S = StateSource;
    const bool gpu = source == S::own_gpu || source == S::peer_gpu;
    const bool host = source == S::own_host || source == S::peer_host;
    const ir::Location location = gpu                  ? ir::Location::peer
                                  : host               ? ir::Location::host_memory
                                  : source == S::cloud ? ir::Location::cloud
                                                       : ir::Location::nvme;
    std::set<int> out;
    const auto found = places_.find({location, item});
    if (found == places_.end()) return out;
    for (const int place : found->second) {
      if (source == S::cloud) {
        out.insert(place);
      } else if (gpu) {
        const bool own = place == receiver;
        if (lives(place) && own == (source == S::own_gpu)) out.insert(place);
      } else {
        const bool own = place == node_of(receiver);
        const bool wants_own = source == S::own_host || source == S::own_nvme;
        if (node_lives(place) && own == wants_own) out.insert(place);
      }
    }
    return out;
  }

 private:
  const RestoreCase& c_;
  std::map<std::pair<ir::Location, Item>, std::set<int>> places_;
};

/// The sums of the answer follow from the best source of each item; what peers give is checked by
/// whether the transfers can be the sums of items that the senders have.
void expect_restored(const RestoreCase& c, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  const models::Topology topology(c.cluster);
  models::Job job;
  const ir::Profile profile;
  const NoEvaluation evaluator;
  const PolicyInput input{c.cluster, topology, c.workload, job, profile, evaluator, 0, {}, 1};
  const Restore restore = plan_restore(input, c.state, c.to, {7, c.order, kBytes});
  const Slow slow(c);
  const models::SlowBandwidth links(c.cluster, topology);
  // Between GPUs; nodes count as equally fast here.
  const auto bandwidth = [&](ir::Location location, int giver, int receiver) {
    return location == ir::Location::peer ? links(giver, receiver) : 1.0;
  };
  std::array<double, kStateSources> from{};
  std::map<std::pair<ir::Location, int>, double> received;  // By storage kind and destination.
  // Most that this giver can give where no other is faster.
  std::map<std::tuple<ir::Location, int, int>, double> possible;
  double missing = 0;
  for (const auto& [device, memory] : memories(c.to, c.workload, c.cluster)) {
    for (const Item& item : memory) {
      const double bytes = bytes_of(item, c.workload);
      bool served = false;
      for (const StateSource source : c.order) {
        const std::set<int> givers = slow.givers(source, item, device);
        if (givers.empty()) continue;
        served = true;
        from[index_of(source)] += bytes;
        if (source == StateSource::own_gpu) break;
        const ir::Location location =
            source == StateSource::peer_gpu ? ir::Location::peer
            : source == StateSource::own_host || source == StateSource::peer_host
                ? ir::Location::host_memory
            : source == StateSource::cloud ? ir::Location::cloud
                                           : ir::Location::nvme;
        received[{location, device}] += bytes;
        double fastest = 0;
        for (const int giver : givers)
          fastest = std::max(fastest, bandwidth(location, giver, device));
        for (const int giver : givers) {
          if (bandwidth(location, giver, device) < fastest * (1 - 1e-6)) continue;
          possible[{location, giver, device}] += bytes;
        }
        break;
      }
      if (!served) missing += bytes;
    }
  }
  for (std::size_t s = 0; s < kStateSources; ++s) {
    EXPECT_NEAR(restore.from[s].value, from[s], 1e-6) << name_of(static_cast<StateSource>(s));
  }
  EXPECT_NEAR(restore.missing.value, missing, 1e-6);
  EXPECT_EQ(restore.missing.value > 0, missing > 0);
  EXPECT_EQ(restore.witness.empty(), missing == 0);
  std::map<std::pair<ir::Location, int>, double> got;
  std::set<std::tuple<ir::Location, int, int>> seen;
  for (const models::StateTransfer& t : restore.transfers) {
    EXPECT_GT(t.bytes.value, 0);
    EXPECT_EQ(t.to, ir::Location::peer);
    EXPECT_TRUE(seen.insert({t.from, t.source.value, t.destination.value}).second);
    got[{t.from, t.destination.value}] += t.bytes.value;
    if (t.from == ir::Location::cloud) {
      EXPECT_FALSE(t.source.valid());
      continue;
    }
    ASSERT_TRUE(t.source.valid());
    EXPECT_TRUE(slow.lives(t.source.value));
    const int giver = t.from == ir::Location::peer ? t.source.value : slow.node_of(t.source.value);
    const auto most = possible.find({t.from, giver, t.destination.value});
    ASSERT_NE(most, possible.end()) << "device " << t.source.value << " has nothing to give";
    EXPECT_LE(t.bytes.value, most->second + 1e-6);
  }
  ASSERT_EQ(got.size(), received.size());
  for (const auto& [key, bytes] : received) EXPECT_NEAR(got[key], bytes, 1e-6);
  EXPECT_TRUE(std::is_sorted(restore.transfers.begin(), restore.transfers.end(),
                             [](const auto& a, const auto& b) {
                               return std::tuple(a.from, a.source, a.destination) <
                                      std::tuple(b.from, b.source, b.destination);
                             }));
  const auto newest = newest_restore(input, c.state, c.to, c.order, kBytes);
  EXPECT_EQ(newest && newest->iteration == 7,
            missing == 0 && std::any_of(c.state.replicas.begin(), c.state.replicas.end(),
                                        [](const auto& x) { return x.iteration == 7; }));
}

void expect_restores(const Features& features, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    RestoreCase c = random_case(seed, features);
    std::stable_sort(c.state.replicas.begin(), c.state.replicas.end(),
                     [](const auto& a, const auto& b) { return a.iteration > b.iteration; });
    expect_restored(c, seed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Restore, EveryElementComesOnceFromTheBestSourceThatHasIt) { expect_restores({}, 500); }

TEST(Restore, OfSequenceParallelPlansToo) { expect_restores({.sequence = true}, 120); }

TEST(Restore, OfExpertParallelPlansToo) { expect_restores({.experts = 4}, 120); }

TEST(Restore, TiedMatricesCountOnce) { expect_restores({.tied = true}, 200); }

TEST(Restore, StagesThatComputeNothingHoldAndNeedNothing) {
  expect_restores({.reroutes = true}, 200);
}

TEST(Restore, FromGpusAloneItIsThePlanSwitch) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const models::RandomPlan from = models::random_plan(seed, {});
    const models::RandomPlan to = plan_like(seed + 1000, from.workload, {});
    const models::Cluster cluster = cluster_of(std::max(from.devices, to.devices));
    const models::Topology topology(cluster);
    models::Job job;
    const ir::Profile profile;
    const NoEvaluation evaluator;
    const PolicyInput input{cluster, topology, from.workload, job, profile, evaluator, 0, {}, 1};
    JobState state;
    state.live = all_devices(cluster);
    StateReplica copy;
    copy.layout = std::make_shared<const ir::Plan>(from.plan);
    state.replicas = {copy};
    const Restore restore = plan_restore(
        input, state, to.plan, {0, {StateSource::own_gpu, StateSource::peer_gpu}, kBytes});
    const models::ReshardPlan change = models::plan_reshard(from.plan, to.plan, cluster, topology,
                                                            from.workload, {kBytes, {}, {}});
    // The fast path may leave devices that keep everything out of the scan, never others.
    std::map<std::pair<int, int>, double> expected;
    for (const models::ReshardMessage& m : change.messages) {
      expected[{m.source.value, m.destination.value}] = m.bytes.value;
    }
    std::map<std::pair<int, int>, double> got;
    for (const models::StateTransfer& t : restore.transfers) {
      got[{t.source.value, t.destination.value}] = t.bytes.value;
    }
    ASSERT_EQ(got.size(), expected.size()) << "seed " << seed;
    for (const auto& [pair, bytes] : expected) EXPECT_NEAR(got[pair], bytes, 1e-6);
  }
}

TEST(Restore, SharesAddUpToWhatPlacedTensorsSay) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const models::RandomPlan random = models::random_plan(seed, {.tied = seed % 2 == 0});
    const models::Cluster cluster = cluster_of(random.devices);
    const models::Topology topology(cluster);
    models::Job job;
    const ir::Profile profile;
    const NoEvaluation evaluator;
    const PolicyInput input{cluster, topology, random.workload, job, profile, evaluator, 0, {}, 1};
    const auto shares = state_shares(input, random.plan, kBytes);
    const auto devices = ir::devices_of(random.plan);
    auto held = memories(random.plan, random.workload, cluster);
    ASSERT_EQ(shares.size(), devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      double sum = 0;
      for (const Item& item : held[devices[i].value]) sum += bytes_of(item, random.workload);
      EXPECT_NEAR(shares[i].value, sum, 1e-6) << "seed " << seed;
    }
  }
}

/// Three nodes; two hold all state, in the GPUs' memories and on other stores of their nodes. The
/// first is behind a slow NIC and has the faster NVMe, which no NIC lets through.
TEST(Restore, TheNodeWithTheFasterWayGivesFromAnyStore) {
  const models::RandomPlan random = models::random_plan(1, {});
  models::Cluster cluster = cluster_of(9);
  cluster.nodes[0].nics[0].link = "eth";
  cluster.nodes[1].nics[0].link = "ib";
  for (models::Node& node : cluster.nodes) node.host_memory_bandwidth = {100e9};
  cluster.nodes[0].nvme_read = {100e9};
  cluster.nodes[1].nvme_read = {6e9};
  models::seal(cluster);
  ir::Segment segment;
  segment.first_block = {0};
  segment.last_block = {random.workload.size() - 1};
  segment.groups.resize(1);
  const auto on = [&](std::vector<int> devices) {
    ir::Plan plan;
    for (const int device : devices) {
      segment.groups[0].devices = {{device}};
      plan.pipelines.emplace_back().stages.push_back({{segment}});
    }
    return plan;
  };
  const models::Topology topology(cluster);
  models::Job job;
  const ir::Profile profile;
  const NoEvaluation evaluator;
  const auto giver = [&](ir::Location location, StateSource source) {
    // What is remembered of a cluster holds as long as that stays as it is.
    const PolicyInput input{cluster, topology, random.workload, job, profile, evaluator, 0, {}, 1};
    JobState state;
    state.live = all_devices(cluster);
    StateReplica copy;
    copy.layout = std::make_shared<const ir::Plan>(on({0, 3}));
    copy.location = location;
    state.replicas = {copy};
    // Unlike the layout under any renaming: two devices were two replicas.
    const Restore restore = plan_restore(input, state, on({6}), {0, {source}, kBytes});
    EXPECT_TRUE(restore.complete()) << restore.witness;
    EXPECT_EQ(restore.transfers.size(), 1u);
    return restore.transfers.empty() ? -1 : restore.transfers.front().source.value;
  };
  EXPECT_EQ(giver(ir::Location::peer, StateSource::peer_gpu), 3);
  EXPECT_EQ(giver(ir::Location::host_memory, StateSource::peer_host), 3);
  // 3 GB/s through the NIC for three GPUs, 6 GB/s from the NVMe for as many.
  EXPECT_EQ(giver(ir::Location::nvme, StateSource::peer_nvme), 3);
  cluster.nodes[1].nvme_read = {2e9};
  EXPECT_EQ(giver(ir::Location::nvme, StateSource::peer_nvme), 0);
}

/// 2,048 nodes of 8 in 256 pipelines of 8 stages with TP 8: one node is replaced by a spare.
TEST(Restore, ASpareOfSixteenThousandDevicesReadsFromPeersAndACloudFromAll) {
  const auto world = std::make_unique<World>(
      with_storage(make_cluster({{"H100", 989, 80, 8, 400, 2049}}, 50)), llama2_13b(), 2048);
  const PolicyInput input = policy_input(*world);
  const ir::Plan before = uniform_plan(*world, 256, 8, 8);
  std::vector<int> names(world->cluster.size());
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = static_cast<int>(i);
  for (int i = 0; i < 8; ++i) names[800 + i] = 16384 + i;
  const ir::Plan after = with_devices(before, names);
  JobState state;
  for (const DeviceId device : all_devices(world->cluster)) {
    if (device.value < 800 || device.value >= 808) state.live.push_back(device);
  }
  StateReplica gpu;
  gpu.iteration = 7;
  gpu.layout = std::make_shared<const ir::Plan>(before);
  for (std::uint32_t i = 800; i < 808; ++i) gpu.lost_shards.push_back(i);
  StateReplica cloud;
  cloud.iteration = 7;
  cloud.location = ir::Location::cloud;
  cloud.layout = gpu.layout;
  state.replicas = {gpu, cloud};
  const models::ReshardBytes bytes = models::all_state_bytes(world->job);
  const auto restored = [&](std::vector<StateSource> order) {
    Restore restore = plan_restore(input, state, after, {7, std::move(order), bytes});
    EXPECT_TRUE(restore.complete());
    return restore;
  };
  const Restore from_peers = restored({StateSource::own_gpu, StateSource::peer_gpu});
  for (const models::StateTransfer& t : from_peers.transfers) EXPECT_GE(t.destination.value, 16384);
  const Restore from_cloud = restored({StateSource::cloud});
  EXPECT_EQ(from_cloud.transfers.size(), 16384u);
}

}  // namespace
}  // namespace orrery::planners::restore_test
