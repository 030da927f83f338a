/// Does a folded iteration take exactly what the whole one takes? RC_PARAMS="max_success=5000" asks
/// more often.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/check/validate.h"
#include "models/lower/lower.h"
#include "sim/flow/fork.h"
#include "sim/iteration/folding.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::folding_law_test {
namespace {

struct World {
  models::Cluster cluster;
  models::Workload workload;
  models::Job job;
  ir::Profile profile;
  ir::Plan plan;
  IterationOptions options;
  bool collapsed = true;
};

/// What both ways must agree on.
struct Told {
  double time = 0;
  std::vector<double> pipelines;
  std::vector<double> peaks;
  std::vector<std::vector<double>> ranks;  ///< Breakdown by rank, in nanoseconds.
  std::map<std::string, double> links;
  int simulated = 0;
  int settled = 0;
  std::int64_t flows = 0;
};

Told run(const World& world, FoldMode fold) {
  const ForkResult result = run_forked([&] {
    IterationOptions options = world.options;
    options.fold = fold;
    options.record_spans = options.record_memory = false;
    const models::Topology topology(world.cluster);
    IterationSimulator simulator(world.cluster, topology);
    FoldedIteration iteration(world.plan, world.cluster, topology, world.workload, world.job,
                              {.collapsed = world.collapsed}, options);
    const models::Pricer pricer(world.cluster, world.workload, world.job, world.profile);
    const models::ProgramPrices prices(iteration.program(), pricer);
    const IterationResult told = simulator.run(iteration, prices, pricer, options);
    nlohmann::json out;
    out["time"] = told.iteration_time.value;
    for (const Seconds time : told.pipeline_times) out["pipelines"].push_back(time.value);
    for (const Bytes peak : told.peak_memory) out["peaks"].push_back(peak.value);
    for (const ir::RankBreakdown& rank : told.ranks) {
      out["ranks"].push_back({rank.compute.count, rank.tensor_parallel.count, rank.zero.count,
                              rank.pipeline.count, rank.data_parallel.count, rank.optimizer.count,
                              rank.bubble.count});
    }
    out["links"] = nlohmann::json::object();
    for (const ir::LinkUse& use : told.log.links) out["links"][use.link] = use.bytes.value;
    out["simulated"] = told.simulated_pipelines;
    out["settled"] = told.settled ? 1 : 0;
    out["flows"] = told.work.flows;
    return out.dump();
  });
  if (const auto* failure = std::get_if<ChildFailure>(&result)) RC_FAIL(failure->message);
  const nlohmann::json in = nlohmann::json::parse(std::get<std::string>(result));
  Told told;
  told.time = in["time"];
  told.pipelines = in["pipelines"].get<std::vector<double>>();
  told.peaks = in["peaks"].get<std::vector<double>>();
  told.ranks = in["ranks"].get<std::vector<std::vector<double>>>();
  told.links = in["links"].get<std::map<std::string, double>>();
  told.simulated = in["simulated"];
  told.settled = in["settled"];
  told.flows = in["flows"];
  return told;
}

bool one_in(int n) { return *rc::gen::inRange(0, n) == 0; }

/// Slow GPUs and links, so that an iteration takes seconds and rounding is small beside it.
models::Cluster random_cluster(int least_gpus, bool regular) {
  models::Cluster cluster;
  for (const double speed : {1.0, 0.6}) {
    models::GpuType gpu;
    gpu.name = fmt::format("gpu{}", speed);
    gpu.vendor = "v";
    gpu.peak = {{ir::Dtype::bf16, FlopsPerSecond{speed * 2e12}}};
    gpu.memory = 800_GiB;
    gpu.memory_bandwidth = BytesPerSecond{1e12};
    cluster.gpu_types.push_back(gpu);
  }
  const double nic_speed = *rc::gen::element(0.2e9, 1e9, 4e9);
  cluster.links["nvlink"] = {"nvlink", BytesPerSecond{20e9}, Seconds{1e-6}, 1, false, ""};
  cluster.links["slot"] = {"slot", BytesPerSecond{3e9}, Seconds{1e-6}, 1, one_in(4), ""};
  cluster.links["nic"] = {"nic", BytesPerSecond{nic_speed}, Seconds{4e-6}, 1, false, ""};
  const int gpus = *rc::gen::element(1, 2, 4, 8);
  const int nics = *rc::gen::element(1, 1, 2, gpus);
  const bool nvlink = !one_in(4);
  const int spare = regular ? 0 : *rc::gen::inRange(0, 2);
  const int nodes = (least_gpus + gpus - 1) / gpus + spare;
  const int leaf = regular ? nodes : *rc::gen::inRange(1, std::max(2, nodes + 1));
  std::vector<int> all;
  for (int i = 0; i < gpus; ++i) all.push_back(i);
  const bool mixed = !regular && one_in(3);
  for (int n = 0; n < nodes; ++n) {
    models::Node node;
    const int type = mixed && one_in(6) ? 1 : 0;
    node.gpu_types.assign(gpus, type);
    if (nvlink) node.domains = {{all, "nvlink"}};
    node.pcie = {{all, "slot", one_in(30) ? "nic" : ""}};
    node.nics.assign(std::min(nics, gpus), {"nic", {}});
    node.leaf = n / leaf;
    node.host_memory = 64_GiB;
    node.host_memory_bandwidth = BytesPerSecond{mixed && one_in(6) ? 2e9 : 5e9};
    cluster.nodes.push_back(node);
  }
  if (one_in(2)) {
    cluster.fabric.leaf_latency = Seconds{3e-6};
    cluster.fabric.spine_latency = Seconds{5e-6};
  }
  if (one_in(2)) {
    const double below = nic_speed * nics * leaf;
    cluster.fabric.leaf_uplink = BytesPerSecond{below / *rc::gen::element(1, 2, 4)};
  }
  if (one_in(4)) cluster.fabric.rails = *rc::gen::inRange(1, std::min(nics, gpus) + 1);
  if (one_in(3)) {
    cluster.fabric.leaves_per_pod = *rc::gen::inRange(1, 4);
    cluster.fabric.spine_oversubscription = *rc::gen::element(0, 1, 3);
    cluster.fabric.core_latency = Seconds{*rc::gen::element(0.0, 7e-6)};
  }
  models::seal(cluster);
  return cluster;
}

constexpr int kExperts = 4;  ///< Of models that have any.

struct Template {
  std::vector<int> first_block;   ///< By stage.
  std::vector<int> tensor;        ///< By stage.
  std::vector<int> state_weight;  ///< By stage.
  std::vector<int> experts;       ///< By stage: of the first of two groups of single devices.
  int groups = 1;
  int micro_batches = 1;
};

ir::Plan random_plan(int blocks, bool experts, bool regular, int& devices) {
  ir::Plan plan;
  plan.schedule = *rc::gen::element(ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b,
                                    ir::ScheduleKind::one_f_one_b, ir::ScheduleKind::zero_bubble);
  plan.communication.activation_transfer =
      *rc::gen::element(ir::ActivationTransfer::leader_broadcast, ir::ActivationTransfer::sliced);
  plan.communication.gradient_overlap = one_in(3);
  plan.communication.parameter_overlap = plan.communication.gradient_overlap && one_in(2);
  if (one_in(4)) plan.optimizer = ir::OptimizerStart::staggered;
  const int stages = *rc::gen::inRange(1, 5);
  const int pipelines = one_in(8) ? *rc::gen::inRange(13, 33) : *rc::gen::inRange(2, 13);
  const int tensor = *rc::gen::element(1, 2, 4);
  const bool alike = regular || !one_in(3);  // Of one template; else of two.
  const bool asymmetric = one_in(3);
  const int groups = *rc::gen::element(1, 1, 2);
  ir::Zero zero;
  if (one_in(2)) {
    zero.stage = *rc::gen::inRange(1, 4);
    if (one_in(3)) zero.shard_group = *rc::gen::element(2, 4);
  }
  const auto sequence =
      one_in(3) && tensor > 1 ? ir::SequenceParallelism::megatron : ir::SequenceParallelism::none;
  const bool uneven = zero.stage > 0 && zero.shard_group == 0 && !experts && one_in(2);
  const int full = one_in(8) ? *rc::gen::inRange(16, 65) : *rc::gen::inRange(1, 7);
  std::vector<Template> templates(2);
  for (Template& one : templates) {
    one.groups = groups;
    one.micro_batches = full;
    std::vector<int> cuts;
    for (int s = 0; s < stages; ++s) {
      cuts.push_back(blocks * s / stages);
      one.tensor.push_back(asymmetric ? *rc::gen::element(1, 2, 4) : tensor);
    }
    if (asymmetric && stages > 1) {
      for (int s = 1; s < stages; ++s) {
        cuts[s] = *rc::gen::inRange(cuts[s - 1] + 1, blocks - stages + s + 1);
      }
    }
    one.first_block = cuts;
    for (int s = 0; s < stages; ++s) {
      one.state_weight.push_back(uneven ? *rc::gen::inRange(1, 4) : 1);
      one.experts.push_back(experts && groups == 2 ? *rc::gen::inRange(0, 4) : 0);
    }
  }
  templates[1].micro_batches = std::max(1, full - (one_in(2) ? 1 : 0));
  const bool by_stage = one_in(4);  // All pipelines' first stages come first.
  plan.pipelines.resize(pipelines);
  std::vector<int> of(plan.pipelines.size(), 0);
  for (std::size_t p = 0; p < of.size(); ++p) of[p] = !alike && one_in(3) ? 1 : 0;
  const auto fill = [&](std::size_t p, int s) {
    const Template& from = templates[of[p]];
    ir::Pipeline& pipeline = plan.pipelines[p];
    pipeline.micro_batches = from.micro_batches;
    pipeline.micro_batch_size = from.groups;
    ir::Segment segment;
    const std::size_t stage = s;
    segment.first_block = {from.first_block[stage]};
    segment.last_block = {(s + 1 < stages ? from.first_block[stage + 1] : blocks) - 1};
    segment.zero = zero;
    if (experts && from.groups > 1) segment.expert_parallel = from.groups;
    for (int g = 0; g < from.groups; ++g) {
      ir::Group group;
      group.tensor_parallel = from.tensor[stage];
      group.state_weight = from.state_weight[stage] * (uneven && p == 0 ? 3 : 1);
      if (group.tensor_parallel > 1) group.sequence = sequence;
      for (int t = 0; t < group.tensor_parallel; ++t) group.devices.push_back({devices++});
      const int held = group.tensor_parallel == 1 ? from.experts[stage] : 0;
      if (held > 0) group.experts = g == 0 ? held : kExperts - held;
      segment.groups.push_back(group);
    }
    pipeline.stages.push_back({{segment}});
  };
  if (by_stage) {
    for (int s = 0; s < stages; ++s) {
      for (std::size_t p = 0; p < of.size(); ++p) fill(p, s);
    }
  } else {
    for (std::size_t p = 0; p < of.size(); ++p) {
      for (int s = 0; s < stages; ++s) fill(p, s);
    }
  }
  if (stages > 1 && zero.stage == 0 && !experts && one_in(8)) {
    plan.redundancy = ir::Redundancy::next_stage;
  } else if (alike && zero.stage == 0 && stages > 1 && pipelines > 2 && one_in(4)) {
    // A dead stage in one pipeline or two, whose micro-batches the peers take in turn.
    const int dead = pipelines > 4 && one_in(2) ? 2 : 1;
    const int peers = *rc::gen::inRange(1, pipelines - dead + 1);
    for (int d = 0; d < dead; ++d) {
      const int stage = *rc::gen::inRange(0, stages);
      for (int m = 0; m < full; ++m) {
        plan.pipelines[static_cast<std::size_t>(d)].reroutes.push_back(
            {stage, m, dead + (d * full + m) % peers});
      }
    }
  }
  return plan;
}

/// Each stage also holds its mirror image's blocks, and micro-batches come from both ends.
void make_both_ways(ir::Plan& plan) {
  plan.schedule = ir::ScheduleKind::dual_pipe;
  plan.virtual_stages = 2;
  for (ir::Pipeline& pipeline : plan.pipelines) {
    const auto stages = static_cast<int>(pipeline.stages.size());
    pipeline.micro_batches = 2 * stages + 2 * (pipeline.micro_batches % 3);
    for (int s = 0; s < stages; ++s) {
      std::vector<ir::Segment>& segments = pipeline.stages[as_size(s)].segments;
      const ir::Segment& mirrored = pipeline.stages[as_size(stages - 1 - s)].segments.front();
      ir::Segment other = segments.front();
      other.virtual_stage = 1;
      other.first_block = mirrored.first_block;
      other.last_block = mirrored.last_block;
      segments.push_back(other);
    }
  }
}

bool can_run_both_ways(const ir::Plan& plan) {
  return plan.redundancy == ir::Redundancy::none &&
         std::all_of(plan.pipelines.begin(), plan.pipelines.end(), [](const ir::Pipeline& chain) {
           return chain.stages.size() % 2 == 0 && chain.reroutes.empty();
         });
}

World random_world() {
  World world;
  const bool regular = one_in(2);  // Else anything may differ anywhere.
  const bool experts = one_in(6);
  ir::ModelShape shape = one_in(2)
                             ? worlds::gpt(*rc::gen::inRange(4, 9), 1024, 16, 8192, 1024)
                             : worlds::llama(*rc::gen::inRange(4, 9), 1024, 16, 4, 2048, 8192);
  if (experts) shape.experts = kExperts;
  if (experts) shape.top_k = 2;
  world.workload = models::build_workload(shape, 1024, ir::Dtype::bf16);
  int devices = 0;
  world.plan = random_plan(world.workload.size(), experts, regular, devices);
  if (can_run_both_ways(world.plan) && one_in(3)) make_both_ways(world.plan);
  if (world.plan.redundancy == ir::Redundancy::none && one_in(6)) {
    world.plan.optimizer_offload = *rc::gen::element(0.3, 1.0);
  }
  world.cluster = random_cluster(devices, regular);
  world.job = make_job();
  world.job.sequence_length = 1024;
  world.job.global_batch = ir::global_batch(world.plan);
  world.job.allowed.zero_stages = {0, 1, 2, 3};
  world.job.allowed.sequence_parallel = true;
  world.job.allowed.schedules = {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b,
                                 ir::ScheduleKind::zero_bubble, ir::ScheduleKind::dual_pipe};
  world.job.allowed.max_optimizer_offload = 1;
  const bool accumulates = world.plan.schedule == ir::ScheduleKind::dual_pipe;
  if (!accumulates && one_in(5)) world.job.gradient_synchronizations = 2;
  if (one_in(4)) {
    world.job.hidden_collectives = {ir::Purpose::tensor_parallel, ir::Purpose::zero,
                                    ir::Purpose::expert_parallel};
  }
  world.collapsed = !one_in(4);
  if (world.plan.communication.gradient_overlap && one_in(2)) {
    for (const models::GpuType& gpu : world.cluster.gpu_types) {
      world.profile.overlap_losses.push_back({gpu.name, *rc::gen::element(0.1, 0.4), {}});
    }
  }
  if (one_in(3)) {
    world.options.stragglers.push_back(
        {{*rc::gen::inRange(0, devices)}, *rc::gen::element(1.01, 1.3, 3.0)});
  }
  if (!regular && one_in(2)) {
    const models::Topology topology(world.cluster);
    const LinkId link{*rc::gen::inRange(0, static_cast<std::int32_t>(topology.links().size()))};
    world.options.slow_links.push_back({topology.name_of(link), 2.5});
  }
  world.options.record_links = one_in(2);
  return world;
}

std::string described(const World& world) {
  std::string text = fmt::format(
      "collapsed {}, schedule {}, transfer {}, overlap {}, redundancy {}, optimizer {}, "
      "rounds {}, tied {}, losses to overlap {}, hidden {}, gathers first {}\n",
      world.collapsed, static_cast<int>(world.plan.schedule),
      static_cast<int>(world.plan.communication.activation_transfer),
      world.plan.communication.gradient_overlap, static_cast<int>(world.plan.redundancy),
      static_cast<int>(world.plan.optimizer), world.job.gradient_synchronizations,
      world.workload.shape.tied_embeddings, world.profile.overlap_losses.size(),
      world.job.hidden_collectives.size(), world.plan.communication.parameter_overlap);
  for (const models::Node& node : world.cluster.nodes) {
    text +=
        fmt::format("node: {} of type {}, {} nics, {} domains, leaf {}\n", node.gpu_types.size(),
                    node.gpu_types.front(), node.nics.size(), node.domains.size(), node.leaf);
  }
  text +=
      fmt::format("uplink {}, latencies {} {}, shared slots {}\n",
                  world.cluster.fabric.leaf_uplink.value, world.cluster.fabric.leaf_latency.value,
                  world.cluster.fabric.spine_latency.value, world.cluster.links.at("slot").shared);
  text +=
      fmt::format("rails {}, leaves per pod {}, {} to 1, core {}\n", world.cluster.fabric.rails,
                  world.cluster.fabric.leaves_per_pod, world.cluster.fabric.spine_oversubscription,
                  world.cluster.fabric.core_latency.value);
  for (const Straggler& slow : world.options.stragglers) {
    text += fmt::format("device {} slower by {}\n", slow.device.value, slow.slowdown);
  }
  for (const SlowLink& slow : world.options.slow_links) text += "slow link " + slow.link + "\n";
  for (const ir::Pipeline& pipeline : world.plan.pipelines) {
    text += fmt::format("{} x {}, {} reroutes:", pipeline.micro_batches, pipeline.micro_batch_size,
                        pipeline.reroutes.size());
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        text += fmt::format(" blocks {}-{} zero {}/{} experts {}", segment.first_block.value,
                            segment.last_block.value, segment.zero.stage, segment.zero.shard_group,
                            segment.expert_parallel);
        for (const ir::Group& group : segment.groups) {
          text += fmt::format(" [{} sp {} x{} w{} e{}]", group.devices.front().value,
                              static_cast<int>(group.sequence), group.devices.size(),
                              group.state_weight, group.experts);
        }
      }
    }
    text += "\n";
  }
  return text;
}

constexpr double kExact = 1e-9;

bool same(double a, double b, double scale) { return std::abs(a - b) <= kExact * scale; }

RC_GTEST_PROP(Folding, TakesWhatTheWholeProgramTakes, ()) {
  const World world = random_world();
  RC_PRE(models::validate(world.plan, world.cluster, world.workload, world.job).empty());
  RC_PRE(models::find_unsupported(world.plan).empty());
  RC_LOG() << described(world);
  const Told whole = run(world, FoldMode::off);
  const Told folded = run(world, one_in(2) ? FoldMode::slices : FoldMode::automatic);
  const auto pipelines = static_cast<int>(world.plan.pipelines.size());
  RC_ASSERT(whole.simulated == pipelines);
  RC_CLASSIFY(folded.simulated == 1, "one pipeline");
  RC_CLASSIFY(folded.simulated > 1 && folded.simulated < pipelines, "some pipelines");
  RC_CLASSIFY(folded.simulated == pipelines, "all pipelines");
  RC_LOG() << fmt::format("{} of {} pipelines, {} s and {} s", folded.simulated, pipelines,
                          folded.time, whole.time);
  RC_ASSERT(folded.settled == whole.settled);
  RC_ASSERT(same(folded.time, whole.time, whole.time));
  RC_ASSERT(folded.peaks == whole.peaks);
  for (std::size_t p = 0; p < whole.pipelines.size(); ++p) {
    RC_ASSERT(same(folded.pipelines[p], whole.pipelines[p], whole.time));
  }
  RC_ASSERT(folded.ranks.size() == whole.ranks.size());
  for (std::size_t r = 0; r < whole.ranks.size(); ++r) {
    for (std::size_t i = 0; i < whole.ranks[r].size(); ++i) {
      // A nanosecond of rounding for each span at most, and the mean over iterations.
      RC_ASSERT(std::abs(folded.ranks[r][i] - whole.ranks[r][i]) <= 100);
    }
  }
  RC_ASSERT(folded.links.size() == whole.links.size());
  for (const auto& [link, bytes] : whole.links) {
    RC_ASSERT(same(folded.links.at(link), bytes, bytes));
  }
}

/// Two stages of four devices each, whose slices share a NIC.
TEST(Folding, SlicesOfATransferAreOneFlow) {
  World world;
  world.workload =
      models::build_workload(worlds::gpt(4, 1024, 16, 8192, 1024), 1024, ir::Dtype::bf16);
  world.cluster = make_cluster({.nodes = 2,
                                .gpus = 4,
                                .nvlink = BytesPerSecond{20e9},
                                .pcie = BytesPerSecond{3e9},
                                .nic = BytesPerSecond{1e9},
                                .latency = Seconds{1e-6},
                                .nic_per_gpu = false});
  world.job = make_job();
  world.job.sequence_length = 1024;
  world.plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  ir::Pipeline pipeline;
  pipeline.micro_batches = 8;
  pipeline.micro_batch_size = 1;
  const int blocks = static_cast<int>(world.workload.size());
  for (int stage = 0; stage < 2; ++stage) {
    ir::Segment segment;
    segment.first_block = {stage * blocks / 2};
    segment.last_block = {(stage + 1) * blocks / 2 - 1};
    ir::Group group;
    group.tensor_parallel = 4;
    for (int device = 0; device < 4; ++device) group.devices.push_back({4 * stage + device});
    segment.groups = {group};
    pipeline.stages.push_back({{segment}});
  }
  world.plan.pipelines = {pipeline};
  world.job.global_batch = ir::global_batch(world.plan);
  const Told whole = run(world, FoldMode::off);
  const Told folded = run(world, FoldMode::slices);
  EXPECT_EQ(run(world, FoldMode::automatic).flows, whole.flows);
  EXPECT_EQ(4 * folded.flows, whole.flows);
  EXPECT_NEAR(folded.time, whole.time, kExact * whole.time);
  EXPECT_EQ(folded.links, whole.links);
}

/// Sixteen pipelines of two stages on leaves of four nodes, all first stages on the first nodes:
/// rings among the stages' replicas leave their leaf at every fourth pipeline.
World rings_over_leaves(double oversubscription) {
  World world;
  const int pipelines = 16;
  world.workload =
      models::build_workload(worlds::gpt(4, 1024, 16, 8192, 1024), 1024, ir::Dtype::bf16);
  world.cluster = make_cluster({.nodes = 2 * pipelines,
                                .gpus = 2,
                                .nvlink = BytesPerSecond{20e9},
                                .pcie = BytesPerSecond{3e9},
                                .nic = BytesPerSecond{0.2e9},
                                .latency = Seconds{1e-6}});
  for (std::size_t n = 0; n < world.cluster.nodes.size(); ++n) {
    world.cluster.nodes[n].leaf = static_cast<int>(n / 4);
  }
  world.cluster.fabric.rails = 2;
  world.cluster.fabric.leaf_oversubscription = oversubscription;
  models::seal(world.cluster);
  world.job = make_job();
  world.job.sequence_length = 1024;
  world.job.allowed.zero_stages = {1};
  world.job.allowed.sequence_parallel = true;
  world.plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  world.plan.communication.gradient_overlap = world.plan.communication.parameter_overlap = true;
  const int blocks = world.workload.size();
  for (int p = 0; p < pipelines; ++p) {
    ir::Pipeline& pipeline = world.plan.pipelines.emplace_back();
    pipeline.micro_batches = 4;
    pipeline.micro_batch_size = 1;
    for (int stage = 0; stage < 2; ++stage) {
      const int first = 2 * (stage * pipelines + p);
      ir::Segment segment;
      segment.first_block = {stage * blocks / 2};
      segment.last_block = {(stage + 1) * blocks / 2 - 1};
      segment.zero.stage = 1;
      segment.groups = {{.devices = {{first}, {first + 1}},
                         .tensor_parallel = 2,
                         .sequence = ir::SequenceParallelism::megatron}};
      pipeline.stages.push_back({{segment}});
    }
  }
  world.job.global_batch = ir::global_batch(world.plan);
  return world;
}

TEST(Folding, RingsOverUplinksThatAreNotOversubscribedTakeOnePipeline) {
  const World even = rings_over_leaves(1);
  ASSERT_TRUE(models::validate(even.plan, even.cluster, even.workload, even.job).empty());
  const Told whole = run(even, FoldMode::off);
  const Told folded = run(even, FoldMode::automatic);
  EXPECT_EQ(folded.simulated, 1);
  EXPECT_NEAR(folded.time, whole.time, kExact * whole.time);
  const World narrow = rings_over_leaves(4);
  const Told later = run(narrow, FoldMode::automatic);
  EXPECT_GT(later.simulated, 1);
  EXPECT_GT(later.time, 1.001 * whole.time);
  EXPECT_NEAR(later.time, run(narrow, FoldMode::off).time, kExact * later.time);
}

}  // namespace
}  // namespace orrery::sim::folding_law_test
