// GPUs, links and clusters of models/library: everything loads, has a source and is what the papers
// describe.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "models/config/document.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"

namespace orrery::models::library_data_test {
namespace {

class LibraryData : public ::testing::Test {
 protected:
  void SetUp() override { library_ = load_library("models/library", problems_); }
  void TearDown() override {
    for (const config::Problem& problem : problems_.problems()) ADD_FAILURE() << to_string(problem);
  }
  Cluster cluster(const std::string& name) { return load_cluster(name, library_, {}, problems_); }
  /// Sum of bf16 peaks in TFLOPS.
  double peak(const std::string& name) {
    const Cluster c = cluster(name);
    double sum = 0;
    for (const Device& device : c.devices)
      sum += c.gpu(device.id).peak.at(ir::Dtype::bf16).value * 1e-12;
    return sum;
  }
  std::map<std::string, int> count_types(const Cluster& c) {
    std::map<std::string, int> count;
    for (const Device& device : c.devices) ++count[c.gpu(device.id).name];
    return count;
  }

  config::Diagnostics problems_;
  Library library_;
};

TEST_F(LibraryData, GpusHavePositiveNumbersAndASource) {
  EXPECT_GE(library_.gpus.size(), 20u);
  for (const auto& [name, gpu] : library_.gpus) {
    EXPECT_EQ(gpu.name, name);
    EXPECT_FALSE(gpu.source.empty()) << name;
    EXPECT_FALSE(gpu.vendor.empty()) << name;
    EXPECT_FALSE(gpu.peak.empty()) << name;
    EXPECT_GE(gpu.memory, 8_GiB) << name;
    EXPECT_GE(gpu.memory_bandwidth, 300_GBps) << name;
    EXPECT_TRUE(gpu.efficiency > 0 && gpu.efficiency <= 1) << name;
    EXPECT_GT(gpu.launch.value, 0) << name;
  }
}

TEST_F(LibraryData, LinksHavePositiveNumbersAndASource) {
  EXPECT_GE(library_.links.size(), 25u);
  for (const auto& [name, link] : library_.links) {
    EXPECT_EQ(link.name, name);
    EXPECT_FALSE(link.source.empty()) << name;
    EXPECT_GT(link.bandwidth.value, 0) << name;
    EXPECT_GT(link.latency.value, 0) << name;
    EXPECT_TRUE(link.efficiency > 0 && link.efficiency <= 1) << name;
  }
}

TEST_F(LibraryData, EveryClusterLoadsWithASourceAndItsDevicesReachEachOther) {
  EXPECT_GE(library_.clusters.size(), 40u);
  for (const auto& [name, path] : library_.clusters) {
    const Cluster c = cluster(name);
    EXPECT_EQ(c.name, name);
    EXPECT_GT(c.size(), 0) << name;
    const config::Value file = config::load_value(path, problems_);
    ASSERT_NE(file.find("source"), nullptr) << name;
    EXPECT_FALSE(file.find("source")->text.empty()) << name;
    const Topology topology(c);
    const int stride = std::max(1, c.size() / 24);
    for (int a = 0; a < c.size(); a += stride) {
      for (int b = 0; b < c.size(); b += stride + 1) {
        const Path there = topology.path({a}, {b});
        EXPECT_GT(there.bandwidth.value, 0) << name << " " << a << " " << b;
        EXPECT_EQ(there.bandwidth, topology.path({b}, {a}).bandwidth) << name;
      }
    }
  }
}

TEST_F(LibraryData, ClustersHaveTheGpusOfTheirPapers) {
  using Count = std::map<std::string, int>;
  EXPECT_EQ(count_types(cluster("hexiscale_240")),
            (Count{{"RTX3090-24GB", 64}, {"RTX4090-24GB", 160}, {"A800-80GB-NVLink", 16}}));
  EXPECT_EQ(count_types(cluster("hexiscale_case_study")),
            (Count{{"A800-80GB-NVLink", 3}, {"RTX4090-24GB", 3}, {"RTX3090-24GB", 2}}));
  EXPECT_EQ(count_types(cluster("autohet")),
            (Count{{"A100-80GB", 16}, {"H800-80GB", 8}, {"H20-96GB", 8}}));
  EXPECT_EQ(count_types(cluster("hetu")), (Count{{"H800-80GB", 16}, {"H20-96GB", 32}}));
  EXPECT_EQ(count_types(cluster("metis_t4_v100_16")), (Count{{"T4-16GB", 8}, {"V100-16GB", 8}}));
  EXPECT_EQ(count_types(cluster("llama3_16384")), (Count{{"H100-80GB", 16384}}));
}

// The Llama 3 Herd of Models, 3.3.1: a seventh of the bisection above pods.
TEST_F(LibraryData, LeavesRailsAndPodsJoinTheirNodes) {
  const Topology llama(cluster("llama3_24576"));
  const auto links_between = [](const Topology& topology, int a, int b) {
    std::string names;
    std::vector<LinkId> links;
    topology.route({a}, {b}, links);
    for (const LinkId link : links) names += topology.name_of(link) + " ";
    return names;
  };
  const int pod = 3072;
  EXPECT_EQ(links_between(llama, pod - 8, pod),
            "node-383/gpu0/slot/up node-383/nic0/up leaf191/up pod0/up pod1/down leaf192/down "
            "node-384/nic0/down node-384/gpu0/slot/down ");
  const BytesPerSecond nic = llama.links()[llama.find("node-0/nic0/up")].bandwidth;
  EXPECT_NEAR(llama.links()[llama.find("pod7/up")].bandwidth / nic, pod / 7.0, 1e-9);
  const Topology dgx(cluster("dgx_superpod_h100"));
  EXPECT_EQ(links_between(dgx, 0, 8 * 31),
            "dgx-0/gpu0/slot/up dgx-0/nic0/up dgx-31/nic0/down dgx-31/gpu0/slot/down ");
  EXPECT_EQ(links_between(dgx, 3, 8 * 31 + 4),
            "dgx-0/gpu3/slot/up dgx-0/nic3/up leaf0/rail3/up leaf0/rail4/down dgx-31/nic4/down "
            "dgx-31/gpu4/slot/down ");
}

// A rack is one node whose 72 GPUs reach each other without a NIC.
TEST_F(LibraryData, RacksOfSeventyTwoAreOneNvlinkDomain) {
  const Cluster racks = cluster("gb200_nvl72");
  const Topology topology(racks);
  EXPECT_EQ(racks.nodes.size(), 8U);
  EXPECT_EQ(topology.path({0}, {71}).kind, PathClass::nvlink);
  EXPECT_EQ(topology.path({71}, {72}).kind, PathClass::network);
  EXPECT_DOUBLE_EQ(topology.path({0}, {71}).bandwidth.value / 1e9, 0.8 * 900);
}

// HexiScale 5.1: 1.36 % more and 1.59 % less FLOPS than 16 A800.
TEST_F(LibraryData, HexiScaleSettingsHaveTheirPublishedFlops) {
  const double base = peak("hexiscale_homogeneous_ethernet");
  EXPECT_NEAR(100 * (peak("hexiscale_setting1") / base - 1), 1.36, 0.005);
  EXPECT_NEAR(100 * (peak("hexiscale_setting2") / base - 1), -1.59, 0.005);
}

// HexiScale 3.1 and Table 4: bandwidths inside machines, and between them.
TEST_F(LibraryData, HexiScalePathsHaveTheirPublishedBandwidths) {
  const auto bandwidth = [this](const std::string& name, int a, int b) {
    return Topology(cluster(name)).path({a}, {b}).bandwidth.value / 1e9;
  };
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_case_study", 0, 2), 200);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_case_study", 3, 5), 32);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_case_study", 6, 7), 16);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_case_study", 2, 3), 1);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_240", 0, 7), 24);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_240", 64, 71), 32);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_240", 224, 231), 200);
  EXPECT_DOUBLE_EQ(bandwidth("hexiscale_240", 231, 232), 0.7);
}

// HetHub 4.2: tokens/s per GPU x FLOPs per token of Llama-2 7B at 1024 tokens = peak x MFU.
TEST_F(LibraryData, HetHubPeaksFollowFromRatesAndMfu) {
  Job job;
  job.sequence_length = 1024;
  job.dtype = ir::Dtype::fp16;
  const Workload w = load_workload("llama2_7b", job, library_, {}, problems_);
  const auto rate = [&](const std::string& name, int device) {
    const Cluster c = cluster(name);
    const GpuType& gpu = c.gpu({device});
    return gpu.peak.at(ir::Dtype::fp16).value * gpu.efficiency / (model_flops(w).value / 1024);
  };
  EXPECT_NEAR(rate("hethub_pair1", 0), 1478, 2);
  EXPECT_NEAR(rate("hethub_pair1", 8), 673, 2);
  EXPECT_NEAR(rate("hethub_pair2", 0), 1341, 2);
  EXPECT_NEAR(rate("hethub_pair2", 8), 887, 2);
}

}  // namespace
}  // namespace orrery::models::library_data_test
