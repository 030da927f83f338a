// Measured links and collectives of a profile, in the simulator and in the closed forms.
#include <gtest/gtest.h>

#include <algorithm>

#include "models/cost/collective.h"
#include "models/cost/collective_ways.h"
#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::calibration_law_test {
namespace {

using ir::CollectiveKind;

ir::Provenance test_source() {
  ir::Provenance from;
  from.source = "test";
  return from;
}

ir::LinkSegment segment(const std::string& link_class, double from, double latency,
                        double bandwidth) {
  return {link_class, Bytes{from}, Seconds{latency}, BytesPerSecond{bandwidth}, test_source()};
}

ir::CollectiveFactor measured(const std::string& collective, int ranks, double factor) {
  return {collective, "nic", ranks, factor, test_source()};
}

/// Three segments: flat, then faster with a higher latency, then slower (out of cache).
ir::Profile three_segments(const std::string& link_class = "nic") {
  ir::Profile profile;
  profile.links = {segment(link_class, 0, 20e-6, 2e9), segment(link_class, 4096, 30e-6, 11e9),
                   segment(link_class, 1e7, 50e-6, 9e9)};
  return profile;
}

Seconds segment_time(const ir::Profile& profile, Bytes bytes) {
  const ir::LinkSegment* own = &profile.links.front();
  for (const ir::LinkSegment& segment : profile.links) {
    if (segment.from_bytes <= bytes) own = &segment;
  }
  return own->latency + bytes / own->bandwidth;
}

models::Cluster nodes(int count, int gpus, bool nic_per_gpu = true) {
  ClusterShape shape;
  shape.nodes = count;
  shape.gpus = gpus;
  shape.nic_per_gpu = nic_per_gpu;
  return make_cluster(shape);
}

ir::Transfer message(int source, int destination, double bytes) {
  ir::Transfer transfer;
  transfer.source = {source};
  transfer.destination = {destination};
  transfer.bytes = Bytes{bytes};
  return transfer;
}

TEST(CalibratedLink, ALoneMessageTakesItsSegment) {
  const models::Cluster cluster = nodes(2, 1);
  const ir::Profile profile = three_segments();
  const models::Topology topology(cluster, profile);
  const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  for (const double bytes : {1.0, 100.0, 4095.0, 4096.0, 65536.0, 9999999.0, 1e7, 1e9}) {
    const double expected = segment_time(profile, Bytes{bytes}).value;
    EXPECT_DOUBLE_EQ(models::point_to_point_time({0}, {1}, Bytes{bytes}, path).value, expected);
    const Outcome run =
        simulate(cluster, make_workload(1), message_program({message(0, 1, bytes)}), {}, profile);
    EXPECT_LT(relative_difference(run.iteration_time, expected), 1e-9)
        << bytes << " B: " << run.iteration_time << " and " << expected << " s";
  }
}

TEST(CalibratedLink, TwoMessagesOnOneLinkTakeTheSumOfTheirBytes) {
  const models::Cluster cluster = nodes(2, 2, false);
  ir::Profile profile;
  profile.links = {segment("nic", 0, 40e-6, 8e9)};
  const Outcome run =
      simulate(cluster, make_workload(1), message_program({message(0, 2, 3e8), message(1, 3, 5e8)}),
               {}, profile);
  EXPECT_LT(relative_difference(run.iteration_time, 40e-6 + 8e8 / 8e9), 1e-9) << run.iteration_time;
}

TEST(CalibratedLink, OtherClassesKeepTheirTimes) {
  const models::Cluster cluster = nodes(1, 2);
  const ir::Program program = message_program({message(0, 1, 1e8)});
  const Outcome plain = simulate(cluster, make_workload(1), program);
  const Outcome calibrated = simulate(cluster, make_workload(1), program, {}, three_segments());
  EXPECT_EQ(plain.iteration_time, calibrated.iteration_time);
  EXPECT_EQ(plain.spans, calibrated.spans);
}

TEST(CalibratedLink, ASlowedLinkIsSlowerThanItsSegment) {
  const models::Cluster cluster = nodes(2, 1);
  IterationOptions options;
  options.slow_links = {{"node0/nic0/up", 10}};
  const Outcome run = simulate(cluster, make_workload(1), message_program({message(0, 1, 1e9)}),
                               options, three_segments());
  const models::Topology topology(cluster, three_segments());
  const double wire = topology.path({0}, {1}).bandwidth.value;
  EXPECT_LT(relative_difference(run.iteration_time, 50e-6 + 1e9 / (wire / 10)), 1e-9)
      << run.iteration_time << " s over a tenth of " << wire << " B/s";
}

class CalibratedRing : public testing::TestWithParam<int> {};

TEST_P(CalibratedRing, FlowsEqualTheClosedForm) {
  const int n = GetParam();
  const models::Cluster cluster = nodes(n, 1);
  for (const double factor : {1.0, 1.7}) {
    ir::Profile profile = three_segments();
    if (factor != 1) {
      for (const char* name :
           {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"}) {
        profile.collectives.push_back(measured(name, n, factor));
      }
    }
    const models::Topology topology(cluster, profile);
    const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
    for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                      CollectiveKind::reduce_scatter, CollectiveKind::broadcast}) {
      for (const double bytes : {2e4, 1e6, 1e9}) {
        const ir::Program program = collective_program(kind, n, Bytes{bytes});
        const Seconds expected = models::collective_time(
            kind, models::CollectiveAlgorithm::ring, program.groups[0].devices, Bytes{bytes}, path);
        const Outcome run = simulate(cluster, make_workload(1), program, {}, profile);
        // A flow carries whole bytes: at most one of each edge is rounded.
        EXPECT_NEAR(run.iteration_time, expected.value, 1e-9 * expected.value + 1 / 9e9)
            << ir::name_of(kind) << " " << bytes << " B, factor " << factor;
        if (kind == CollectiveKind::broadcast) continue;
        IterationOptions options;
        options.ring = RingMode::stepwise;
        const Outcome steps = simulate(cluster, make_workload(1), program, options, profile);
        EXPECT_NEAR(steps.iteration_time, expected.value, 1e-9 * expected.value + 2.0 * n / 9e9)
            << "step by step, " << ir::name_of(kind) << " " << bytes << " B, factor " << factor;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Members, CalibratedRing, testing::Values(2, 3, 8));

TEST(CollectiveFactor, OneChangesNothing) {
  const models::Cluster cluster = nodes(4, 1);
  const ir::Program program = collective_program(CollectiveKind::all_reduce, 4, 1_GiB);
  ir::Profile one;
  one.collectives = {measured("all_reduce", 4, 1)};
  const Outcome plain = simulate(cluster, make_workload(1), program);
  const Outcome with = simulate(cluster, make_workload(1), program, {}, one);
  EXPECT_EQ(plain.iteration_time, with.iteration_time);
  EXPECT_EQ(plain.spans, with.spans);
  EXPECT_EQ(plain.links, with.links);
}

TEST(CollectiveFactor, MultipliesTheTimeOnLinksThatWereNotMeasured) {
  const models::Cluster cluster = nodes(4, 1);
  const ir::Program program = collective_program(CollectiveKind::all_reduce, 4, 1_GiB);
  ir::Profile profile;
  profile.collectives = {measured("all_reduce", 2, 1.2), measured("all_reduce", 6, 1.6),
                         measured("all_gather", 4, 9)};
  const Outcome plain = simulate(cluster, make_workload(1), program);
  const Outcome with = simulate(cluster, make_workload(1), program, {}, profile);
  EXPECT_LT(relative_difference(with.iteration_time, 1.4 * plain.iteration_time), 1e-9)
      << "between 1.2 for two ranks and 1.6 for six";
}

TEST(MeasuredStorage, ReplacesTheDeclaredOne) {
  ir::Program program = collective_program(CollectiveKind::broadcast, 1, Bytes{4e9});
  program.ops[0].kind = ir::OpKind::save_state;
  program.ops[0].location = ir::Location::nvme;
  program.ops[0].match = ir::kNone;
  models::Cluster cluster = nodes(1, 1);
  cluster.nodes[0].nvme_write = BytesPerSecond{1e9};
  ir::Profile profile;
  profile.storage = {{"nvme", true, Seconds{0.25}, BytesPerSecond{2e9}, test_source()}};
  EXPECT_DOUBLE_EQ(simulate(cluster, make_workload(1), program).iteration_time, 4);
  EXPECT_DOUBLE_EQ(simulate(cluster, make_workload(1), program, {}, profile).iteration_time, 2.25);
}

TEST(Profile, OfOtherLinksChangesNoByte) {
  const models::Cluster cluster = nodes(2, 4);
  PlanShape shape;
  shape.stages = 2;
  shape.tensor_parallel = 4;
  const ir::Program program =
      models::lower(make_plan(shape, 8), cluster, make_workload(8), make_job(), {});
  const Outcome plain = simulate(cluster, make_workload(8), program);
  const Outcome with =
      simulate(cluster, make_workload(8), program, {}, three_segments("another class"));
  EXPECT_EQ(plain.spans, with.spans);
  EXPECT_EQ(plain.iteration_time, with.iteration_time);
  EXPECT_FALSE(models::Topology(cluster, three_segments("another class")).calibrated());
}

/// A ring by LL and sums in the switch, over a domain's links.
ir::Profile two_ways() {
  ir::CollectiveWay ring;
  ring.link_class = "nvlink";
  ring.collective = "all_reduce";
  ring.protocol = ir::CollectiveWay::Protocol::ll;
  ring.start = Seconds{6e-6};
  ring.step = Seconds{1e-6};
  ring.channels = 4;
  ring.channel_bandwidth = BytesPerSecond{10e9};
  ring.provenance = test_source();
  ir::CollectiveWay nvls = ring;
  nvls.algorithm = ir::CollectiveWay::Algorithm::nvls;
  nvls.protocol = ir::CollectiveWay::Protocol::simple;
  nvls.start = Seconds{50e-6};
  nvls.channel_bandwidth = BytesPerSecond{30e9};
  ir::Profile profile;
  profile.collective_ways = {ring, nvls};
  return profile;
}

std::vector<DeviceId> first_devices(int count) {
  std::vector<DeviceId> all;
  for (int i = 0; i < count; ++i) all.push_back({i});
  return all;
}

TEST(CollectiveWays, TheFastestForTheSizeIsTakenAndFlowsAgree) {
  const models::Cluster cluster = nodes(1, 4);
  const ir::Profile profile = two_ways();
  const models::Topology topology(cluster, profile);
  const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  const std::vector<DeviceId> group = first_devices(4);
  for (const double bytes : {8.0, 1e3, 1e5, 1e6, 1e7, 1e9}) {
    // 6 steps and 3/2 of the bytes at 4 x 10 GB/s; 2 steps and 5/4 of the bytes at 4 x 30 GB/s.
    const double ring = 6e-6 + 6 * 1e-6 + 1.5 * bytes / 40e9;
    const double nvls = 50e-6 + 2 * 1e-6 + 1.25 * bytes / 120e9;
    const double time =
        models::collective_time(CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring,
                                group, Bytes{bytes}, path)
            .value;
    EXPECT_NEAR(time / std::min(ring, nvls), 1, 1e-12) << bytes;
    for (const models::FlowEdge& edge :
         models::collective_flows(CollectiveKind::all_reduce, group, Bytes{bytes}, path)) {
      const models::Path wire = path(edge.source, edge.destination);
      const Seconds flow = wire.latency + edge.bytes / wire.bandwidth + edge.extra_latency;
      EXPECT_NEAR(flow.value / time, 1, 1e-12) << bytes;
    }
    Seconds steps;
    const auto one = models::ring_step_flows(CollectiveKind::all_reduce, group, Bytes{bytes}, path);
    const models::Path wire = path(one[0].source, one[0].destination);
    steps = 6 * (wire.latency + one[0].bytes / wire.bandwidth + one[0].extra_latency);
    EXPECT_GE(steps.value / time, 1 - 1e-12);
  }
}

TEST(CollectiveWays, FlagsTakeTheirPartOfTheLink) {
  // 200 GB/s of NVLink: LL leaves half of it, whatever the channels would carry.
  ir::Profile profile = two_ways();
  profile.collective_ways.resize(1);
  profile.collective_ways[0].channels = 1000;
  const models::Cluster cluster = nodes(1, 4);
  const models::Topology topology(cluster, profile);
  const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
  const double wire = topology.path({0}, {1}).bandwidth.value;
  EXPECT_NEAR(models::collective_time(CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring,
                                      first_devices(4), Bytes{1e12}, path)
                  .value,
              12e-6 + 1.5 * 1e12 / (wire / 2), 1e-9);
}

TEST(CollectiveWays, OtherGroupsAndCollectivesKeepTheirRings) {
  const models::Cluster cluster = nodes(2, 4);
  const models::Topology plain(cluster);
  const models::Topology with(cluster, two_ways());
  const auto time = [](const models::Topology& topology, CollectiveKind kind, int members) {
    return models::collective_time(kind, models::CollectiveAlgorithm::ring, first_devices(members),
                                   Bytes{1e8},
                                   [&](DeviceId a, DeviceId b) { return topology.path(a, b); });
  };
  EXPECT_EQ(time(with, CollectiveKind::all_reduce, 8), time(plain, CollectiveKind::all_reduce, 8));
  EXPECT_EQ(time(with, CollectiveKind::all_gather, 4), time(plain, CollectiveKind::all_gather, 4));
  EXPECT_NE(time(with, CollectiveKind::all_reduce, 4), time(plain, CollectiveKind::all_reduce, 4));
}

/// Two nodes of eight behind eight NICs, or behind two.
ir::CollectiveWay in_chunks(ir::CollectiveWay::Algorithm algorithm) {
  ir::CollectiveWay way;
  way.link_class = "nic";
  way.collective = "all_reduce";
  way.algorithm = algorithm;
  way.start = Seconds{40e-6};
  way.step = Seconds{20e-6};
  way.chunk = Bytes{512 * 1024};
  way.channels = 16;
  way.channel_bandwidth = BytesPerSecond{1e12};
  way.provenance = test_source();
  return way;
}

TEST(CollectivePipelines, ChunksGrowWithTheMessage) {
  // 16 channels of eight members: 128 chunks side by side, 64 MiB of 512 KiB.
  const auto in_switch = in_chunks(ir::CollectiveWay::Algorithm::nvls_tree);
  const std::vector<std::pair<Bytes, double>> expected = {
      {4_MiB - 1_B, 32}, {4_MiB, 32},  {64_MiB - 1_B, 64}, {64_MiB, 128}, {512_MiB - 1_B, 128},
      {512_MiB, 256},    {1_GiB, 256}, {2_GiB - 1_B, 256}, {2_GiB, 512},  {16_GiB, 512}};
  for (const auto& [message, kib] : expected) {
    EXPECT_EQ(models::chunk_size(in_switch, message, 8, 2).value, 1024 * kib) << message.value;
  }
  // A chain of eight and one hop: depth 8. 64 MiB are 8 chunks a channel of 512 KiB, 32 of 128.
  const auto chain = in_chunks(ir::CollectiveWay::Algorithm::tree);
  for (const auto& [message, kib] : std::vector<std::pair<Bytes, double>>{{1_MiB, 32},
                                                                          {16_MiB, 64},
                                                                          {64_MiB, 128},
                                                                          {128_MiB, 128},
                                                                          {256_MiB, 256},
                                                                          {512_MiB, 512}}) {
    EXPECT_EQ(models::chunk_size(chain, message, 8, 2).value, 1024 * kib) << message.value;
  }
}

TEST(CollectivePipelines, FlowsEqualTheClosedForm) {
  for (const auto algorithm :
       {ir::CollectiveWay::Algorithm::tree, ir::CollectiveWay::Algorithm::nvls_tree}) {
    for (const int count : {2, 4}) {
      const models::Cluster cluster = nodes(count, 8);
      ir::Profile profile;
      profile.collective_ways = {in_chunks(algorithm)};
      const models::Topology topology(cluster, profile);
      const auto path = [&](DeviceId a, DeviceId b) { return topology.path(a, b); };
      const std::vector<DeviceId> group = first_devices(8 * count);
      for (const Bytes bytes : {64_MiB, 2_GiB}) {
        const bool chain = algorithm == ir::CollectiveWay::Algorithm::tree;
        const double levels = count == 2 ? 1 : 2;
        const Bytes chunk =
            models::chunk_size(profile.collective_ways[0], bytes, 8, as_size(count));
        const double loops = bytes.value / (16 * (chain ? 1 : 8) * chunk.value);
        const double stages = chain ? 2 * (7 + levels) : 3 + 2 * levels;
        const double nics = 8 * topology.path({0}, {8}).bandwidth.value;
        const double port = topology.path({0}, {1}).bandwidth.value;
        const double network =
            40e-6 + 40e-6 * levels + (count == 2 ? 1 : 2) * bytes.value / loops / nics;
        const double inside = (chain ? 2 : 9.0 / 8) * bytes.value / loops / port;
        const double expected = (loops - 1 + stages) * std::max(network, inside);
        const double time =
            models::collective_time(CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring,
                                    group, bytes, path)
                .value;
        EXPECT_NEAR(time / expected, 1, 1e-12) << bytes.value;
        const Outcome run =
            simulate(cluster, make_workload(1),
                     collective_program(CollectiveKind::all_reduce, 8 * count, bytes), {}, profile);
        EXPECT_NEAR(run.iteration_time / expected, 1, 1e-6) << bytes.value;
      }
    }
  }
}

TEST(CollectivePipelines, SmallerMessagesAndOneNodeKeepTheirRings) {
  const models::Cluster cluster = nodes(2, 8);
  ir::Profile profile;
  profile.collective_ways = {in_chunks(ir::CollectiveWay::Algorithm::nvls_tree)};
  profile.collective_ways[0].from_bytes = 64_MiB;
  const models::Topology plain(cluster);
  const models::Topology with(cluster, profile);
  const auto time = [](const models::Topology& topology, int members, Bytes bytes) {
    return models::collective_time(CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring,
                                   first_devices(members), bytes,
                                   [&](DeviceId a, DeviceId b) { return topology.path(a, b); });
  };
  EXPECT_EQ(time(with, 16, 64_MiB - 1_B), time(plain, 16, 64_MiB - 1_B));
  EXPECT_NE(time(with, 16, 64_MiB), time(plain, 16, 64_MiB));
  EXPECT_EQ(time(with, 8, 64_MiB), time(plain, 8, 64_MiB));
  EXPECT_EQ(time(with, 12, 64_MiB), time(plain, 12, 64_MiB));  // eight and four
}

}  // namespace
}  // namespace orrery::sim::calibration_law_test
