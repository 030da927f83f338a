// Does every device have what the new plan needs after a switch? Random pairs of plans and lost
// devices, carried out on sets that model memories.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/lower/block_replicas.h"
#include "models/reshard/reshard_plan.h"
#include "models/reshard/reshard_program.h"
#include "tests/models/lower/number_model.h"
#include "tests/models/lower/random_plan.h"
#include "tests/models/reshard/slow_bandwidth.h"

namespace orrery::models::reshard_law_test {
namespace {

/// Optimizer state or weight, block, parameter, element along the split.
using Item = std::tuple<bool, int, int, std::int64_t>;
using Memory = std::set<Item>;

/// Nodes of four: NVLink between the first two, PCIe among all. Every third node has a slow NIC,
/// every third one a NIC for each GPU, the others one for all.
Cluster mixed_cluster(int devices) {
  Cluster cluster;
  cluster.gpu_types.resize(1);
  cluster.gpu_types[0].name = "gpu";
  cluster.gpu_types[0].vendor = "vendor";
  cluster.links["nvlink"] = {"nvlink", BytesPerSecond{200e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["pcie"] = {"pcie", BytesPerSecond{20e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["ib"] = {"ib", BytesPerSecond{10e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["eth"] = {"eth", BytesPerSecond{3e9}, Seconds{1e-6}, 1, false, ""};
  for (int first = 0; first < devices; first += 4) {
    Node node;
    node.name = "node" + std::to_string(first / 4);
    node.gpu_types.assign(4, 0);
    node.domains = {{{0, 1}, "nvlink"}};
    node.pcie = {{{0, 1, 2, 3}, "pcie", ""}};
    node.nics = {{first / 4 % 3 == 1 ? "eth" : "ib", {}}};
    if (first / 4 % 3 == 2) node.nics.assign(4, {"ib", {}});
    cluster.nodes.push_back(node);
  }
  seal(cluster);
  return cluster;
}

struct Case {
  ir::Plan from;
  ir::Plan to;
  Workload workload;
  Cluster cluster;
  std::vector<DeviceId> lost;
};

/// Two random plans of one model, the second one on devices that live.
Case random_case(std::uint64_t seed, const Features& features) {
  Rng rng(seed);
  RandomPlan from = random_plan(seed, features);
  RandomPlan to = random_plan(seed + 1000, features);
  for (std::uint64_t next = seed + 1001; to.workload.size() != from.workload.size(); ++next) {
    to = random_plan(next, features);
  }
  std::set<int> lost;
  const std::int64_t most = rng.bernoulli(0.3) ? 0 : from.devices / 2;
  for (std::int64_t i = 0; i < most; ++i) {
    lost.insert(static_cast<int>(rng.integer(0, from.devices - 1)));
  }
  const int total = std::max(from.devices, to.devices + static_cast<int>(lost.size()));
  std::vector<int> live;
  for (int d = 0; d < total; ++d) {
    if (!lost.contains(d)) live.push_back(d);
  }
  for (std::size_t i = live.size(); i > 1; --i) {
    std::swap(live[i - 1], live[rng.integer(0, static_cast<std::int64_t>(i) - 1)]);
  }
  for (ir::Pipeline& pipeline : to.plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      for (ir::Segment& segment : stage.segments) {
        for (ir::Group& group : segment.groups) {
          for (DeviceId& device : group.devices) device = {live[device.index()]};
        }
      }
    }
  }
  if (features.redundancy) {  // Also from and to plans without copies.
    if (seed % 3 == 1) from.plan.redundancy = ir::Redundancy::none;
    if (seed % 3 == 2) to.plan.redundancy = ir::Redundancy::none;
  }
  Case out{
      std::move(from.plan), std::move(to.plan), std::move(from.workload), mixed_cluster(total), {}};
  for (const int device : lost) out.lost.push_back({device});
  return out;
}

std::int64_t length_of(const Workload& workload, const Parameter& parameter) {
  const std::int64_t width = std::max<std::int64_t>(1, parameter.split_length);
  return parameter.expert ? workload.shape.experts * width : width;
}

/// Elements that member `i` of `width` holds of `length`, in order: the plan's meaning, written a
/// second time.
std::vector<std::int64_t> share(std::int64_t length, std::int64_t width, std::int64_t i) {
  std::vector<std::int64_t> all;
  if (width > length && width % length == 0) return {i / (width / length)};
  const std::int64_t small = length / width;
  const std::int64_t larger = length % width;
  const std::int64_t first = i * small + std::min(i, larger);
  for (std::int64_t e = 0; e < small + (i < larger ? 1 : 0); ++e) all.push_back(first + e);
  return all;
}

/// Parameters on each device, without ZeRO.
std::map<int, Memory> whole_memories(const ir::Plan& plan, const Workload& workload,
                                     bool optimizer) {
  std::map<int, Memory> out;
  const auto add = [&](const ir::Segment& segment, std::size_t g, std::size_t i, int block, int p) {
    const ir::Group& group = segment.groups[g];
    const Parameter& parameter = workload.blocks[block].parameters[p];
    const std::int64_t position = static_cast<std::int64_t>(i) % group.tensor_parallel;
    const bool tied = workload.shape.tied_embeddings && workload.size() > 1 && p == 1;
    const int named = tied && block + 1 == workload.size() ? 0 : block;
    Memory& memory = out[group.devices[i].value];
    const std::vector<std::int64_t> units =
        parameter.split_length == 0
            ? std::vector<std::int64_t>{0}
            : share(parameter.split_length, group.tensor_parallel, position);
    std::int64_t first = 0;
    std::int64_t last = 0;
    if (parameter.expert) {
      const auto part = static_cast<std::int64_t>(g) % segment.expert_parallel;
      first = workload.shape.experts * part / segment.expert_parallel;
      last = workload.shape.experts * (part + 1) / segment.expert_parallel - 1;
      if (group.experts > 0) {
        first = 0;
        for (std::size_t other = g - as_size(part); other < g; ++other) {
          first += segment.groups[other].experts;
        }
        last = first + group.experts - 1;
      }
    }
    for (std::int64_t e = first; e <= last; ++e) {
      for (const std::int64_t unit : units) {
        memory.insert(
            {optimizer, named, p, e * std::max<std::int64_t>(1, parameter.split_length) + unit});
      }
    }
  };
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        for (int b = segment.first_block.value; b <= segment.last_block.value; ++b) {
          for (std::size_t g = 0; g < segment.groups.size(); ++g) {
            for (std::size_t i = 0; i < segment.groups[g].devices.size(); ++i) {
              for (int p = 0; p < 3; ++p) add(segment, g, i, b, p);
            }
          }
        }
      }
    }
    if (plan.redundancy == ir::Redundancy::none) continue;
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      const ir::Segment& own = pipeline.stages[s].segments[0];
      const ir::Segment& next = pipeline.stages[(s + 1) % pipeline.stages.size()].segments[0];
      for (int b = next.first_block.value; b <= next.last_block.value; ++b) {
        for (std::size_t g = 0; g < own.groups.size(); ++g) {
          for (std::size_t i = 0; i < own.groups[g].devices.size(); ++i) {
            for (int p = 0; p < 3; ++p) add(own, g, i, b, p);
          }
        }
      }
    }
  }
  return out;
}

/// Shards that ZeRO leaves on each device, from the layout that gradients are scattered to.
std::map<int, Memory> sharded_memories(const ir::Plan& plan, const Workload& workload,
                                       const Cluster& cluster, bool optimizer) {
  const Placement placement = place(plan, cluster, true);
  const BlockReplicas copies(workload, placement);
  std::map<int, Memory> out;
  for (int b = 0; b < workload.size(); ++b) {
    for (int p = 0; p < 3; ++p) {
      if (b > 0 && copies.is_tied({b}, p)) continue;
      for (const Piece& piece : copies.holdings({b}, p, true).pieces) {
        for (std::int64_t e = piece.slice.begin; e < piece.slice.end; ++e) {
          EXPECT_TRUE(out[piece.owner].insert({optimizer, b, p, e}).second);
        }
      }
    }
  }
  return out;
}

/// What each device holds under a plan: weights and optimizer states.
std::map<int, Memory> memories(const ir::Plan& plan, const Workload& workload,
                               const Cluster& cluster) {
  const int stage = plan.pipelines[0].stages[0].segments[0].zero.stage;
  std::map<int, Memory> out;
  for (const bool optimizer : {false, true}) {
    const bool sharded = stage >= (optimizer ? 1 : 3);
    auto part = sharded ? sharded_memories(plan, workload, cluster, optimizer)
                        : whole_memories(plan, workload, optimizer);
    for (auto& [device, memory] : part) out[device].merge(memory);
  }
  return out;
}

std::vector<Item> items(const StateRow& row) {
  std::vector<Item> out;
  for (const bool optimizer : {false, true}) {
    if (row.part == (optimizer ? StatePart::weights : StatePart::optimizer)) continue;
    for (std::int64_t e = row.slice.begin; e < row.slice.end; ++e) {
      out.emplace_back(optimizer, row.block.value, row.parameter, e);
    }
  }
  return out;
}

constexpr ReshardBytes kBytes{2, 4, 8};

double bytes_of(const Item& item, const Workload& workload) {
  const auto& [optimizer, block, p, element] = item;
  const Parameter& parameter = workload.blocks[block].parameters[p];
  return static_cast<double>(parameter.elements) /
         static_cast<double>(length_of(workload, parameter)) *
         (optimizer ? kBytes.optimizer() : kBytes.weight);
}

/// No device that has a row before the switch reaches the receiver faster than the sender.
void expect_fastest_senders(const ReshardPlan& plan, const std::map<int, Memory>& before,
                            const Cluster& cluster, const Topology& topology) {
  const SlowBandwidth slow(cluster, topology);
  for (const SliceSend& send : plan.sends) {
    const std::vector<Item> wanted = items(plan.rows[send.row]);
    const double chosen = slow(send.source, send.destination);
    for (const auto& [device, memory] : before) {
      const bool owner = std::all_of(wanted.begin(), wanted.end(),
                                     [&](const Item& item) { return memory.contains(item); });
      if (!owner) continue;
      ASSERT_NE(device, send.destination) << "has the row itself";
      ASSERT_GE(chosen, slow(device, send.destination) * (1 - LinkRanks::kTolerance))
          << "device " << send.source << " sends to " << send.destination << ", but " << device
          << " is faster";
    }
  }
}

/// Carries the switch out and compares; returns the bytes that had to come from others.
void expect_carried_out(const Case& c, ReshardVariant variant, std::uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "seed " << seed << " variant " << static_cast<int>(variant));
  const Topology topology(c.cluster);
  const ReshardPlan plan =
      plan_reshard(c.from, c.to, c.cluster, topology, c.workload, {kBytes, variant, c.lost});
  std::map<int, Memory> before = memories(c.from, c.workload, c.cluster);
  for (const DeviceId device : c.lost) before.erase(device.value);
  const std::map<int, Memory> wanted = memories(c.to, c.workload, c.cluster);
  if (variant != ReshardVariant::no_heuristics) {
    expect_fastest_senders(plan, before, c.cluster, topology);
  }
  std::map<int, Memory> after;
  double moved = 0;
  const auto deliver = [&](std::uint32_t row, int source, int destination) {
    for (const Item& item : items(plan.rows[row])) {
      ASSERT_TRUE(before[source].contains(item)) << "device " << source << " does not have it";
      ASSERT_TRUE(after[destination].insert(item).second) << "device " << destination << " twice";
      if (source != destination) moved += bytes_of(item, c.workload);
    }
  };
  for (const SliceSend& send : plan.sends) {
    ASSERT_NE(send.source, send.destination);
    deliver(send.row, send.source, send.destination);
  }
  for (const SliceCopy& copy : plan.copies) deliver(copy.row, copy.device, copy.device);
  for (const LostState& lost : plan.lost) {
    for (const Item& item : items(plan.rows[lost.row])) {
      for (const auto& [device, memory] : before) {
        ASSERT_FALSE(memory.contains(item)) << "device " << device << " has what is called lost";
      }
      for (const DeviceId device : lost.needed_by) {
        ASSERT_TRUE(after[device.value].insert(item).second);
      }
    }
    ASSERT_FALSE(lost.held_by.empty());
  }
  for (const auto& [device, memory] : wanted) {
    ASSERT_EQ(after[device], memory) << "device " << device;
  }
  for (const auto& [device, memory] : after) {
    ASSERT_TRUE(memory.empty() || wanted.contains(device)) << "device " << device;
  }
  EXPECT_NEAR(sum(plan.moved).value, moved, 1e-6);
  for (const ReshardMessage& message : plan.messages) {
    EXPECT_EQ(message.path, topology.path(message.source, message.destination).kind);
  }
}

void expect_switches(const Features& features, std::uint64_t seeds) {
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const Case c = random_case(seed, features);
    for (const auto variant : {ReshardVariant::fused, ReshardVariant::fused_by_tensor,
                               ReshardVariant::unfused, ReshardVariant::no_heuristics}) {
      expect_carried_out(c, variant, seed);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(SwitchLaw, DevicesEndWithWhatTheNewPlanNeedsOrItIsReportedLost) { expect_switches({}, 600); }

TEST(SwitchLaw, SequenceParallelPlansToo) { expect_switches({.sequence = true}, 200); }

TEST(SwitchLaw, ExpertParallelPlansToo) { expect_switches({.experts = 4}, 200); }

TEST(SwitchLaw, TiedMatricesMoveOnceForBothEnds) { expect_switches({.tied = true}, 200); }

TEST(SwitchLaw, CopiesOfTheNextStageToo) {
  expect_switches({.redundancy = true}, 300);
  if (HasFailure()) return;
  expect_switches({.tied = true, .redundancy = true}, 200);
}

/// Pipelines of `stages` single devices, a block each.
ir::Plan chains(int pipelines, int stages) {
  ir::Plan plan;
  plan.redundancy = ir::Redundancy::next_stage;
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline pipeline;
    for (int s = 0; s < stages; ++s) {
      ir::Segment segment;
      segment.first_block = segment.last_block = {s};
      segment.groups.resize(1);
      segment.groups[0].devices = {{p * stages + s}};
      pipeline.stages.push_back({{segment}});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

/// A device to take the place of each lost one.
ir::Plan with_spares(ir::Plan plan, const std::vector<DeviceId>& lost, int first_spare) {
  for (ir::Pipeline& pipeline : plan.pipelines) {
    for (ir::Stage& stage : pipeline.stages) {
      DeviceId& device = stage.segments[0].groups[0].devices[0];
      const auto at = std::find(lost.begin(), lost.end(), device);
      if (at != lost.end()) device = {first_spare + static_cast<int>(at - lost.begin())};
    }
  }
  return plan;
}

TEST(SwitchLaw, OnePipelineSurvivesAllLossesButThoseOfNeighbors) {
  constexpr int kStages = 4;
  const Workload workload = number_workload(kStages, kMachineWidth, kMachineInner, 2);
  const Cluster cluster = mixed_cluster(2 * kStages);
  const ir::Plan plan = chains(1, kStages);
  for (int a = 0; a < kStages; ++a) {
    for (int b = a; b < kStages; ++b) {
      std::vector<DeviceId> lost = {{a}};
      if (b > a) lost.push_back({b});
      const bool neighbors = b == a + 1 || (a == 0 && b == kStages - 1);
      const ReshardPlan planned =
          plan_reshard(plan, with_spares(plan, lost, kStages), cluster, Topology(cluster), workload,
                       {kBytes, ReshardVariant::fused, lost});
      EXPECT_EQ(planned.lost.empty(), !neighbors) << a << " and " << b;
    }
  }
  // Without copies the first loss is fatal.
  ir::Plan bare = plan;
  bare.redundancy = ir::Redundancy::none;
  EXPECT_FALSE(plan_reshard(bare, with_spares(bare, {{1}}, kStages), cluster, Topology(cluster),
                            workload, {kBytes, ReshardVariant::fused, {{1}}})
                   .lost.empty());
}

TEST(SwitchLaw, AReplacedDeviceGetsItsOwnStageAndTheCopyOfTheNext) {
  constexpr int kStages = 4;
  const Workload workload = number_workload(kStages, kMachineWidth, kMachineInner, 2);
  const Cluster cluster = mixed_cluster(2 * kStages);
  const ir::Plan plan = chains(1, kStages);
  const std::vector<DeviceId> lost = {{2}};
  const ReshardPlan planned =
      plan_reshard(plan, with_spares(plan, lost, kStages), cluster, Topology(cluster), workload,
                   {kBytes, ReshardVariant::fused, lost});
  // Stage 2 from its copy on device 1, the copy of stage 3 from device 3.
  const double block =
      static_cast<double>(parameters(workload, {0}, {0})) * (kBytes.weight + kBytes.optimizer());
  ASSERT_EQ(planned.messages.size(), 2u);
  for (const ReshardMessage& message : planned.messages) {
    EXPECT_EQ(message.destination.value, kStages);
    EXPECT_TRUE(message.source.value == 1 || message.source.value == 3);
    EXPECT_NEAR(message.bytes.value, block, 1e-9 * block);
  }
}

TEST(SwitchLaw, ToTheSamePlanNothingMoves) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const RandomPlan random = random_plan(seed, {});
    const Cluster cluster = mixed_cluster(random.devices);
    const ReshardPlan plan = plan_reshard(random.plan, random.plan, cluster, Topology(cluster),
                                          random.workload, {kBytes, ReshardVariant::fused, {}});
    EXPECT_TRUE(plan.sends.empty()) << "seed " << seed;
    EXPECT_TRUE(plan.lost.empty()) << "seed " << seed;
    EXPECT_FALSE(plan.copies.empty()) << "seed " << seed;
  }
}

/// Rows of a block with the same owners and receivers as one; by such a row those in it.
std::vector<std::vector<std::uint32_t>> join_layers(const std::vector<StateRow>& states,
                                                    std::vector<SliceRow>& rows) {
  std::vector<std::vector<std::uint32_t>> members;
  std::vector<SliceRow> joined;
  for (std::uint32_t r = 0; r < rows.size(); ++r) {
    std::size_t g = 0;
    while (g < members.size() &&
           (states[members[g].front()].block != states[r].block ||
            joined[g].owners != rows[r].owners || joined[g].required != rows[r].required)) {
      ++g;
    }
    if (g == members.size()) {
      members.emplace_back();
      joined.push_back({0, rows[r].owners, rows[r].required});
    }
    members[g].push_back(r);
    joined[g].size += rows[r].size;
  }
  rows = std::move(joined);
  return members;
}

/// Sends as plan_sends() makes them from the rows, with owners looked up in the memories.
void expect_one_scan(ReshardVariant variant, std::uint64_t seed) {
  const Case c = random_case(seed, {});
  const Topology topology(c.cluster);
  const ReshardPlan plan =
      plan_reshard(c.from, c.to, c.cluster, topology, c.workload, {kBytes, variant, c.lost});
  std::map<int, Memory> before = memories(c.from, c.workload, c.cluster);
  for (const DeviceId device : c.lost) before.erase(device.value);
  const std::map<int, Memory> wanted = memories(c.to, c.workload, c.cluster);
  std::vector<SliceRow> rows;
  for (const StateRow& row : plan.rows) {
    SliceRow& at = rows.emplace_back();
    at.size = row.bytes.value;
    const Item item = items(row).front();
    for (const auto& [device, memory] : before) {
      if (memory.contains(item)) at.owners.push_back(device);
    }
    for (const auto& [device, memory] : wanted) {
      if (memory.contains(item)) at.required.push_back(device);
    }
  }
  // Faster first, then by kind; bytes count by kind.
  const SlowBandwidth slow(c.cluster, topology);
  constexpr int kKinds = static_cast<int>(kPathClasses);
  BatchedOptions heuristics;
  heuristics.link_rank = [&](int a, int b) {
    const auto speed = static_cast<int>(std::lround(1e4 * std::log(slow(a, b))));
    return (1000000 - speed) * kKinds + static_cast<int>(topology.path({a}, {b}).kind);
  };
  heuristics.load_class = [](int rank) { return rank % kKinds; };
  std::vector<std::vector<std::uint32_t>> members;
  if (variant == ReshardVariant::fused) {
    members = join_layers(plan.rows, rows);
  } else {
    for (std::uint32_t r = 0; r < rows.size(); ++r) members.push_back({r});
  }
  const BatchedPlan scan = plan_sends(rows, heuristics);
  std::vector<SliceSend> sends;
  for (auto from = scan.sends.begin(), to = from; from != scan.sends.end(); from = to) {
    while (to != scan.sends.end() && to->row == from->row) ++to;
    for (const std::uint32_t row : members[from->row]) {
      for (auto send = from; send != to; ++send) {
        sends.push_back({row, send->source, send->destination});
      }
    }
  }
  ASSERT_EQ(plan.sends, sends) << "seed " << seed;
}

TEST(SwitchLaw, SendersAreThoseOfOneScanOverAllRows) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    for (const auto variant : {ReshardVariant::fused, ReshardVariant::fused_by_tensor}) {
      expect_one_scan(variant, seed);
    }
  }
}

/// Elements of the regions of a set, by tensor kind.
std::set<std::tuple<ir::TensorKind, int, int, std::int64_t>> elements_of(
    const std::vector<ir::Region>& regions) {
  std::set<std::tuple<ir::TensorKind, int, int, std::int64_t>> out;
  for (const ir::Region& region : regions) {
    for (int b = region.first_block.value; b <= region.last_block.value; ++b) {
      for (std::int64_t e = region.begin; e < region.end; ++e) {
        EXPECT_TRUE(out.insert({region.tensor, b, region.parameter, e}).second);
      }
    }
  }
  return out;
}

TEST(SwitchLaw, TheProgramSendsEachMessageWithItsRegions) {
  using ir::TensorKind;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    const Case c = random_case(seed, {});
    for (const auto variant : {ReshardVariant::fused, ReshardVariant::unfused}) {
      const ReshardPlan plan = plan_reshard(c.from, c.to, c.cluster, Topology(c.cluster),
                                            c.workload, {kBytes, variant, c.lost});
      Job job;
      job.global_batch = 1;
      const ir::Program program = reshard_program(plan, c.workload, job);
      ASSERT_EQ(ir::find_defect(program), "") << "seed " << seed;
      ASSERT_EQ(program.ops.size(), 2 * plan.messages.size());
      std::multiset<std::tuple<int, int, double>> sent;
      std::multiset<std::tuple<int, int, double>> planned;
      for (const ir::Op& op : program.ops) {
        EXPECT_EQ(op.purpose, ir::Purpose::state);
        if (op.kind != ir::OpKind::send) continue;
        const auto& transfers = program.transfer_sets[op.transfers];
        ASSERT_EQ(transfers.size(), 1u);
        sent.insert({transfers[0].source.value, transfers[0].destination.value, op.bytes.value});
      }
      std::size_t elements = 0;
      for (const ReshardMessage& message : plan.messages) {
        planned.insert({message.source.value, message.destination.value, message.bytes.value});
        for (std::uint32_t i = 0; i < message.sends; ++i) {
          const StateRow& row = plan.rows[plan.sends[plan.by_message[message.first_send + i]].row];
          const int kinds = row.part == StatePart::weights     ? 1
                            : row.part == StatePart::optimizer ? 3
                                                               : 4;
          elements += as_size(row.slice.size() * kinds);
        }
      }
      EXPECT_EQ(sent, planned) << "seed " << seed;
      std::size_t carried = 0;
      for (const ir::Op& op : program.ops) {
        if (op.kind != ir::OpKind::send) continue;
        carried += elements_of(program.region_sets[op.regions]).size();
      }
      EXPECT_EQ(carried, elements) << "seed " << seed;
    }
  }
}

}  // namespace
}  // namespace orrery::models::reshard_law_test
