// AutoHet's recovery: who has which layer, what each device reads of it, from where, and what the
// policy makes of it. The cluster is the paper's: A100 0-7, H800 8-15, H20 16-23, A100 24-31.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <numeric>
#include <set>

#include "models/base/ids.h"
#include "planners/recovery/autohet/bitmap.h"
#include "planners/recovery/kit/switching.h"
#include "planners/recovery/kit/transfer_estimate.h"
#include "tests/planners/recovery/switching_support.h"

namespace orrery::planners::autohet_test {
namespace {

using Action = models::RecoveryDecision::Action;
using Kind = models::RecoveryPhase::Kind;

const std::vector<StateSource> kDisks = {StateSource::own_nvme, StateSource::peer_nvme,
                                         StateSource::cloud};

class AutohetRecoveryTest : public ::testing::Test {
 protected:
  /// V-C: groups of two A100 (layers 0-20) and two H20 (layers 21-31), TP 2.
  ir::Plan four_groups(int groups = 4) const {
    std::vector<SwitchingWorld::Stages> pipelines;
    for (int g = 0; g < groups; ++g) {
      pipelines.push_back({{range(2 * g, 2 * g + 1), 21}, {range(16 + 2 * g, 17 + 2 * g), 11}});
    }
    return world.plan(pipelines);
  }
  models::JobState state(const models::PlanPointer& plan, std::vector<DeviceId> live) const {
    models::JobState out;
    out.iteration = 107;
    out.plan = plan;
    out.training = true;
    out.live = std::move(live);
    out.iteration_time = world.evaluator.evaluate(*plan).iteration_time;
    return out;
  }
  models::RecoveryDecision decide(const models::JobState& at, const ir::ClusterEvent& event,
                                  const Options& options = {}) const {
    return world.decide("autohet", at, event, options);
  }
  const models::ReshardBytes bytes() const { return models::all_state_bytes(world.job); }

  SwitchingWorld world{"autohet", "llama_7b", 64, 2048};
};

/// The reader's part of the layer in units of 1 / (24 ranks): is each unit in a file that it reads?
bool covers(const LayerRead& read, int rank, int degree) {
  constexpr int kUnits = 24;
  for (int unit = rank * kUnits / degree; unit < (rank + 1) * kUnits / degree; ++unit) {
    bool found = false;
    for (const LayerFile& file : read.files) {
      found |=
          file.rank * kUnits / file.degree <= unit && unit < (file.rank + 1) * kUnits / file.degree;
    }
    if (!found) return false;
  }
  return true;
}

/// Rank and degree of each (device, block) of a plan of one group a stage.
std::map<std::pair<DeviceId, BlockId>, std::pair<int, int>> ranks_of(const ir::Plan& plan) {
  std::map<std::pair<DeviceId, BlockId>, std::pair<int, int>> ranks;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      const ir::Segment& segment = stage.segments.front();
      const ir::Group& group = segment.groups.front();
      for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
        for (int r = 0; r < group.tensor_parallel; ++r) {
          ranks[{group.devices[r], BlockId{b}}] = {r, group.tensor_parallel};
        }
      }
    }
  }
  return ranks;
}

TEST_F(AutohetRecoveryTest, TheBitmapHasABitForEachReplica) {
  const auto plan = shared(four_groups());
  const LayerBitmap bitmap(world.input(), {copy_of(plan, ir::Location::nvme, 100, {{2}})}, 100,
                           kDisks);
  std::set<int> bits;
  const std::vector<bool> row = bitmap.row({1}, 2, 0);
  for (std::size_t d = 0; d < row.size(); ++d) {
    if (row[d]) bits.insert(static_cast<int>(d));
  }
  EXPECT_EQ(bits, (std::set<int>{0, 4, 6}));  // Device 2's copy is gone.
  EXPECT_TRUE(bitmap.row({1}, 2, 1)[3]);
  EXPECT_FALSE(bitmap.row({1}, 2, 1)[2]);
  EXPECT_TRUE(bitmap.row({30}, 2, 0)[16]);
  EXPECT_FALSE(bitmap.row({30}, 2, 0)[0]);
  const std::vector<bool> none = bitmap.row({1}, 4, 3);
  EXPECT_EQ(std::count(none.begin(), none.end(), true), 0);
}

TEST_F(AutohetRecoveryTest, OtherIterationsHaveNoBit) {
  const auto plan = shared(four_groups());
  const LayerBitmap bitmap(world.input(), {copy_of(plan, ir::Location::nvme, 100)}, 101, kDisks);
  for (const LayerRead& read : bitmap.reads(*plan, bytes())) EXPECT_TRUE(read.files.empty());
}

// IV-B2: one file at the same degree, one that is split at a larger degree, several that are
// concatenated at a smaller one, and the right ones.
TEST_F(AutohetRecoveryTest, EachTensorScenarioReadsTheRightFiles) {
  const auto before = shared(four_groups());
  struct Scenario {
    ir::Plan to;
    TensorChange change;
    std::size_t files;
  };
  const std::vector<Scenario> scenarios = {
      {four_groups(2), TensorChange::same, 1},
      {world.plan({{{range(16, 19), 32}}, {{range(20, 23), 32}}}), TensorChange::split, 1},
      {world.plan({{{range(0, 0), 16}, {range(16, 16), 16}}}), TensorChange::concatenate, 2}};
  for (const Scenario& scenario : scenarios) {
    const LayerBitmap bitmap(world.input(), {copy_of(before, ir::Location::nvme, 100)}, 100,
                             kDisks);
    const auto ranks = ranks_of(scenario.to);
    std::size_t seen = 0;
    for (const LayerRead& read : bitmap.reads(scenario.to, bytes())) {
      const auto [rank, degree] = ranks.at({read.reader, read.block});
      EXPECT_EQ(read.change, scenario.change) << name_of(read.change);
      EXPECT_EQ(read.files.size(), scenario.files);
      EXPECT_TRUE(covers(read, rank, degree)) << read.reader.value << " " << read.block.value;
      for (const LayerFile& file : read.files) {
        EXPECT_TRUE(bitmap.row(read.block, file.degree, file.rank)[file.stored_on.index()]);
        EXPECT_LE(file.used.value, file.size.value);
      }
      ++seen;
    }
    EXPECT_EQ(seen, ranks.size());
  }
}

TEST_F(AutohetRecoveryTest, DegreesThatDoNotDivideReadPartsOfSeveralFiles) {
  SwitchingWorld forty_heads("autohet", "gpt3_13b", 64, 2048);
  const auto before = shared(forty_heads.plan({{{range(0, 3), 40}}}));
  const LayerBitmap bitmap(forty_heads.input(), {copy_of(before, ir::Location::nvme, 1)}, 1,
                           kDisks);
  const ir::Plan to = forty_heads.plan({{{range(0, 4), 40}}});
  for (const LayerRead& read : bitmap.reads(to, bytes())) {
    EXPECT_EQ(read.change, TensorChange::both);
    EXPECT_EQ(read.files.size(), read.reader.value == 0 || read.reader.value == 4 ? 1u : 2u);
  }
}

/// Bytes by source, from the bitmap.
std::array<double, kStateSources> volumes(const std::vector<LayerRead>& reads) {
  std::array<double, kStateSources> sum{};
  for (const LayerRead& read : reads) {
    for (const LayerFile& file : read.files) {
      sum[index_of(file.source)] += file.used.value;
    }
  }
  return sum;
}

// The bitmap knows files, plan_restore() slices; they agree on what comes from where.
TEST_F(AutohetRecoveryTest, SlicesOfTheFilesAreTheRestore) {
  const auto before = shared(four_groups());
  const std::vector<ir::Plan> targets = {four_groups(2),
                                         world.plan({{{range(16, 19), 32}}, {{range(20, 23), 32}}}),
                                         world.plan({{{range(0, 0), 16}, {range(16, 16), 16}}}),
                                         world.plan({{{range(24, 25), 21}, {range(16, 17), 11}}})};
  for (const std::vector<DeviceId>& lost : {std::vector<DeviceId>{}, range(0, 7), range(16, 19)}) {
    models::JobState at = state(before, range(0, 31));
    at.replicas = {copy_of(before, ir::Location::nvme, 100, lost),
                   copy_of(before, ir::Location::cloud, 100)};
    for (const ir::Plan& to : targets) {
      const LayerBitmap bitmap(world.input(), at.replicas, 100, kDisks);
      const std::vector<LayerRead> reads = bitmap.reads(to, bytes());
      const auto mine = volumes(reads);
      const Restore restore = plan_restore(world.input(), at, to, {100, kDisks, bytes()});
      EXPECT_TRUE(restore.complete());
      for (std::size_t s = 0; s < kStateSources; ++s) {
        EXPECT_NEAR(mine[s], restore.from[s].value, 1e-9 * mine[s] + 1)
            << name_of(static_cast<StateSource>(s));
      }
      double whole = 0;
      for (const models::StateTransfer& transfer : whole_file_transfers(reads)) {
        whole += transfer.bytes.value;
      }
      EXPECT_GE(whole, std::accumulate(mine.begin(), mine.end(), 0.0) * (1 - 1e-12));
    }
  }
}

double from(const models::RecoveryDecision& decision, ir::Location location) {
  double sum = 0;
  for (const models::StateTransfer& transfer : decision.transfers) {
    if (transfer.from == location) sum += transfer.bytes.value;
  }
  return sum;
}

// V-C, scenario A: "enabling direct local access to all required training states".
TEST_F(AutohetRecoveryTest, LosingTwoGroupsLoadsFromLocalDisksOnly) {
  const auto before = shared(four_groups());
  PolicyInput input = world.input();
  input.plan = *before;
  const auto policy =
      make_policy("autohet", input, {{"memory", "skip"}, {"constants", "as_published"}});
  models::JobState at = state(before, join(range(0, 3), range(16, 19)));
  at.replicas = {copy_of(before, ir::Location::nvme, 100),
                 copy_of(before, ir::Location::cloud, 100)};
  const std::vector<ir::ClusterEvent> events = {
      event(ir::EventKind::leave, join(range(4, 7), range(20, 23)))};
  const models::RecoveryDecision decision = policy->on_events(at, events);
  ASSERT_EQ(broken(decision, at, world), "") << decision.reason;
  EXPECT_EQ(decision.action, Action::resume);
  EXPECT_EQ(decision.resume_iteration, 100);
  EXPECT_GT(from(decision, ir::Location::nvme), 0);
  EXPECT_EQ(from(decision, ir::Location::cloud), 0);
  EXPECT_EQ(duration_of(decision, Kind::decide), to_nanoseconds(Seconds{159.12}));
  // Machines that are taken away close their connections; those that fail leave a hang.
  EXPECT_EQ(duration_of(decision, Kind::detect), to_nanoseconds(Seconds{5}));
  EXPECT_EQ(duration_of(decision, Kind::reinitialize), to_nanoseconds(Seconds{300}));
  const std::vector<ir::ClusterEvent> failed = {
      event(ir::EventKind::fail, join(range(4, 7), range(20, 23)))};
  EXPECT_EQ(duration_of(policy->on_events(at, failed), Kind::detect), to_nanoseconds(Seconds{600}));
}

// Scenario B: what only the lost node had comes from the cloud, the rest from local disks.
TEST_F(AutohetRecoveryTest, LosingANodeLoadsItsLayersFromTheCloud) {
  const auto before = shared(four_groups());
  models::JobState at = state(before, range(16, 23));
  at.replicas = {copy_of(before, ir::Location::nvme, 100, range(0, 7)),
                 copy_of(before, ir::Location::cloud, 100)};
  const models::RecoveryDecision decision =
      decide(at, event(ir::EventKind::fail, range(0, 7)), {{"memory", "skip"}});
  const auto pipelines = static_cast<double>(decision.plan->pipelines.size());
  double lost = 0;
  double kept = 0;
  for (int b = 0; b < world.workload.size(); ++b) {
    const bool on_a100 = b <= 21;  // Embedding and 21 layers.
    (on_a100 ? lost : kept) +=
        14.0 * static_cast<double>(models::parameters(world.workload.block({b})));
  }
  // Norm gains lie whole on every rank of a layer: a little more than once for each pipeline.
  EXPECT_NEAR(from(decision, ir::Location::cloud) / (pipelines * lost), 1, 1e-3);
  EXPECT_NEAR(from(decision, ir::Location::nvme) / (pipelines * kept), 1, 1e-3);
}

// IV-C, second scenario: "utilizes the RDMA links [...] instead of downloading".
TEST_F(AutohetRecoveryTest, WhatAPeerHasDoesNotComeFromTheCloud) {
  const auto before = shared(four_groups());
  models::JobState at = state(before, join(range(16, 23), range(24, 31)));
  at.replicas = {copy_of(before, ir::Location::nvme, 100, range(0, 7)),
                 copy_of(before, ir::Location::cloud, 100)};
  const LayerBitmap bitmap(world.input(), at.replicas, 100, kDisks);
  const ir::Plan to = world.plan({{{range(24, 25), 32}}});
  for (const LayerRead& read : bitmap.reads(to, bytes())) {
    EXPECT_EQ(read.files.front().source,
              read.block.value <= 21 ? StateSource::cloud : StateSource::peer_nvme);
  }
}

// A file of TP 2 holds half a layer; TP 4 splits it, and reads it whole unless by slices.
TEST_F(AutohetRecoveryTest, WholeFilesOfTwiceTheWidthAreTwiceAsMuch) {
  const auto before = shared(world.plan({{{range(0, 1), 32}}, {{range(2, 3), 32}}}));
  const auto after = shared(world.plan({{{range(0, 3), 32}}}));
  models::JobState at = state(after, range(0, 7));
  at.training = false;
  at.replicas = {copy_of(before, ir::Location::nvme, 100)};
  const auto read = [&](const char* reads) {
    const auto decision = decide(at, event(ir::EventKind::fail, {}), {{"reads", reads}});
    EXPECT_EQ(*decision.plan, *after);
    return from(decision, ir::Location::nvme);
  };
  EXPECT_NEAR(read("files") / read("slices"), 2, 1e-3);
}

TEST_F(AutohetRecoveryTest, NothingHappensWhileThePlanLives) {
  const auto before = shared(four_groups(2));
  const auto policy = make_policy("autohet", world.input());
  const models::JobState at = state(before, join(range(0, 5), range(16, 23)));
  const std::vector<ir::ClusterEvent> events = {event(ir::EventKind::fail, range(6, 7)),
                                                event(ir::EventKind::slow, range(0, 0))};
  const models::RecoveryDecision decision = policy->on_events(at, events);
  EXPECT_EQ(decision.action, Action::proceed);
  EXPECT_EQ(broken(decision, at, world), "");
}

TEST_F(AutohetRecoveryTest, AFailedJobKeepsItsPlan) {
  const auto before = shared(four_groups());
  models::JobState at = state(before, range(0, 31));
  at.replicas = {copy_of(before, ir::Location::host_memory, 100)};
  ir::ClusterEvent crash = event(ir::EventKind::fail, {});
  crash.scope.kind = ir::EventScope::Kind::job;
  crash.detection = to_nanoseconds(Seconds{60});
  const models::RecoveryDecision decision = decide(at, crash);
  EXPECT_EQ(*decision.plan, *before);
  EXPECT_EQ(duration_of(decision, Kind::decide).count, 0);
  EXPECT_EQ(duration_of(decision, Kind::detect), to_nanoseconds(Seconds{60}));
  for (const models::StateTransfer& transfer : decision.transfers) {
    EXPECT_EQ(transfer.source, transfer.destination);
  }
}

TEST_F(AutohetRecoveryTest, WithoutACheckpointItStartsAnew) {
  const auto before = shared(four_groups());
  const models::JobState at = state(before, range(16, 23));
  const models::RecoveryDecision decision = decide(at, event(ir::EventKind::fail, range(0, 7)));
  EXPECT_EQ(decision.resume_iteration, 0);
  EXPECT_TRUE(decision.transfers.empty());
}

// The rule: (horizon - stall) / after > horizon / before.
TEST_F(AutohetRecoveryTest, NewDevicesAreUsedIfThatPays) {
  const auto before = shared(four_groups(2));
  models::JobState at = state(before, join(range(0, 7), range(16, 23)));
  at.replicas = {copy_of(before, ir::Location::peer, 107)};
  const auto within = [&](const char* horizon) {
    return decide(at, event(ir::EventKind::join, join(range(4, 7), range(20, 23))),
                  {{"horizon", horizon}});
  };
  EXPECT_EQ(within("301").action, Action::proceed) << "the restart alone takes 300 s";
  const models::RecoveryDecision late = within("36000");
  ASSERT_EQ(late.action, Action::resume);
  EXPECT_EQ(late.run_on, to_nanoseconds(Seconds{159.12}));
  EXPECT_EQ(late.resume_iteration, 107);
  EXPECT_EQ(from(late, ir::Location::cloud), 0);
  EXPECT_TRUE(growth_is_profitable(Seconds{2}, Seconds{1}, Seconds{49}, Seconds{100}));
  EXPECT_FALSE(growth_is_profitable(Seconds{2}, Seconds{1}, Seconds{51}, Seconds{100}));
  EXPECT_FALSE(growth_is_profitable(Seconds{2}, Seconds{1}, Seconds{101}, Seconds{100}));
}

TEST_F(AutohetRecoveryTest, ANoticeIsHeededIfTheSwitchFitsBeforeTheDevicesGo) {
  const auto before = shared(four_groups());
  const std::vector<DeviceId> going = join(range(4, 7), range(20, 23));
  models::JobState at = state(before, range(0, 31));
  at.replicas = {copy_of(before, ir::Location::peer, 107)};
  const auto noticed = [&](double seconds) {
    for (const DeviceId device : going) {
      at.leaving.push_back({device, at.now + to_nanoseconds(Seconds{seconds})});
    }
    ir::ClusterEvent notice = event(ir::EventKind::notice, going);
    notice.notice = to_nanoseconds(Seconds{seconds});
    auto decision = decide(at, notice);
    at.leaving.clear();
    return decision;
  };
  EXPECT_EQ(noticed(300).action, Action::proceed) << "planning takes 159 s, the restart 300 s";
  const models::RecoveryDecision late = noticed(3600);
  ASSERT_EQ(late.action, Action::resume) << late.reason;
  EXPECT_EQ(late.resume_iteration, 107);
  EXPECT_GT(late.run_on, to_nanoseconds(Seconds{2000}))
      << "the devices train on as long as it fits";
  EXPECT_LT(late.run_on, to_nanoseconds(Seconds{3300}));
  for (const DeviceId device : ir::devices_of(*late.plan)) {
    EXPECT_EQ(std::find(going.begin(), going.end(), device), going.end());
  }
}

TEST_F(AutohetRecoveryTest, DevicesThatKeepComingCannotPutASwitchOffForEver) {
  const auto before = shared(four_groups(2));
  models::JobState at = state(before, join(range(0, 7), range(16, 23)));
  at.replicas = {copy_of(before, ir::Location::peer, 107)};
  const auto policy =
      make_policy("autohet", world.input(), {{"horizon", "36000"}, {"constants", "as_published"}});
  const std::vector<ir::ClusterEvent> events = {event(ir::EventKind::join, range(20, 23))};
  const models::RecoveryDecision first = policy->on_events(at, events);
  ASSERT_EQ(first.action, Action::resume) << first.reason;
  at.pending = {first.plan, at.now, at.now + first.run_on};
  at.now = at.now + to_nanoseconds(Seconds{100});
  EXPECT_EQ(policy->on_events(at, events).action, Action::resume) << "planned anew once";
  at.now = at.now + to_nanoseconds(Seconds{100});
  EXPECT_EQ(policy->on_events(at, events).action, Action::proceed);
  at.live = join(range(0, 5), range(16, 21));  // Not all that the pending plan needs.
  EXPECT_EQ(policy->on_events(at, events).action, Action::resume);
}

TEST_F(AutohetRecoveryTest, WhatHadBeenAnnouncedNeedsNoDetection) {
  const auto before = shared(four_groups());
  models::JobState at = state(before, range(16, 31));
  for (const bool announced : {true, false}) {
    at.announced = announced;
    const auto decision = decide(at, event(ir::EventKind::leave, range(0, 7)));
    EXPECT_EQ(duration_of(decision, Kind::detect).count == 0, announced);
  }
}

TEST_F(AutohetRecoveryTest, OneSnapshotServesAllLevels) {
  const auto policy = make_policy("autohet", world.input());
  const auto levels = policy->checkpoints(four_groups(), Seconds{5});
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].location, ir::Location::host_memory);
  EXPECT_EQ(levels[1].location, ir::Location::nvme);
  EXPECT_EQ(levels[2].location, ir::Location::cloud);
  EXPECT_GT(levels[0].stall.count, 0);
  EXPECT_EQ(levels[1].stall.count, 0);
  EXPECT_EQ(levels[2].stall.count, 0);
  EXPECT_EQ(levels[0].persist, levels[0].stall);
  EXPECT_LT(levels[0].persist, levels[1].persist);
  EXPECT_LT(levels[0].persist, levels[2].persist);
  EXPECT_EQ(levels[0].every, levels[1].every);
  EXPECT_EQ(levels[2].every % levels[0].every, 0);
  for (const models::CheckpointLevel& level : levels) EXPECT_FALSE(level.source.empty());
}

// V-C as arithmetic (label paper): with f of the state on the A100 stage, scenario A is
// (S / cloud) / (f S / NVMe): 4.375 for f = 2/3, 1.2 and 3.5 GB/s, cloud shared, NVMe per node. The
// paper prints 4.38; f is inferred from it. Disks of both nodes are read at the same time.
TEST_F(AutohetRecoveryTest, ScenarioAFollowsTheClosedForm) {
  EXPECT_NEAR(3.5 / (1.2 * 2 / 3), 4.38, 0.01);
  const auto before = shared(four_groups());
  const ir::Plan after = four_groups(2);
  models::JobState at = state(before, join(range(0, 3), range(16, 19)));
  at.replicas = {copy_of(before, ir::Location::nvme, 100),
                 copy_of(before, ir::Location::cloud, 100)};
  const PolicyInput input = world.input();
  const Restore local = plan_restore(input, at, after, {100, kDisks, bytes()});
  const Restore cloud = plan_restore(input, at, after, {100, {StateSource::cloud}, bytes()});
  const std::vector<Bytes> shares = state_shares(input, after, bytes());
  double a100 = 0;
  double all = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    all += shares[i].value;
    if (i < 4) a100 += shares[i].value;
  }
  const double local_time = transfer_estimate(input, local.transfers).value;
  const double cloud_time = transfer_estimate(input, cloud.transfers).value;
  EXPECT_NEAR(local_time, a100 / 3.5e9, 1e-6 * local_time);
  EXPECT_NEAR(cloud_time, all / 1.2e9 + world.cluster.storage->latency.value, 1e-6 * cloud_time);
  EXPECT_NEAR(cloud_time / local_time, 3.5 / (1.2 * a100 / all), 1e-3);
}

}  // namespace
}  // namespace orrery::planners::autohet_test
