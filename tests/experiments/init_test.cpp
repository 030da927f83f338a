// Does `orrery init` write clusters that load as meant, and say what looks wrong?
#include "experiments/study/init.h"

#include <gtest/gtest.h>

#include "models/spec/library.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::init_test {
namespace {

models::Cluster load(const std::string& path) {
  config::Diagnostics problems;
  models::Cluster cluster = models::load_cluster(path, support::library(), {path, 0, 0}, problems);
  problems.raise();
  return cluster;
}

TEST(Init, AFewWordsMakeACluster) {
  const support::TempFolder folder;
  InitSettings settings;
  settings.nodes = {"4x8xH100", "6 x 8 x A100-80GB", "5x4xL40S"};
  settings.network = {{"all", "roce-200"}, {"H100", "infiniband-400"}};
  settings.nics = {{"L40S", "1"}};
  settings.oversubscription = 2;
  settings.output = folder / "mine.yaml";
  std::vector<std::string> notes;
  Call call;
  call.on_note = [&](const std::string& note) { notes.push_back(note); };
  const TextResult result = init_cluster(settings, call);
  EXPECT_TRUE(notes.empty()) << notes.front();
  const models::Cluster cluster = load(*result.file);
  EXPECT_EQ(cluster.nodes.size(), 15u);
  EXPECT_EQ(cluster.size(), 100);
  EXPECT_EQ(cluster.gpu(DeviceId{0}).name, "H100-80GB");
  EXPECT_EQ(cluster.nodes[0].nics.front().link, "infiniband-400");
  EXPECT_EQ(cluster.nodes[0].domains.front().link, "nvlink4");
  EXPECT_EQ(cluster.nodes[4].nics.front().link, "roce-200");
  EXPECT_EQ(cluster.nodes[14].nics.size(), 1u);
  EXPECT_TRUE(cluster.nodes[14].domains.empty()) << "L40S has no NVLink";
  EXPECT_EQ(cluster.fabric.leaf_oversubscription, 2);
}

TEST(Init, EveryGpuOfTheLibraryHasANodeThatLoads) {
  const support::TempFolder folder;
  for (const auto& [name, gpu] : support::library().gpus) {
    InitSettings settings;
    settings.nodes = {"2x8x" + name};
    settings.output = folder / (name + ".yaml");
    init_cluster(settings, {});
    const models::Cluster cluster = load(*settings.output);
    EXPECT_EQ(cluster.gpu(DeviceId{15}).name, name);
    EXPECT_TRUE(implausible(cluster).empty()) << implausible(cluster).front();
  }
}

TEST(Init, AllProblemsComeAtOnce) {
  InitSettings settings;
  settings.nodes = {"4x8", "0x8xH100", "2x8xH1000", "2x8xA100"};
  settings.network = {{"A100", "infiniband-40"}, {"V100", "roce-200"}};
  settings.nics = {{"all", "many"}};
  try {
    init_cluster(settings, {});
    FAIL();
  } catch (const config::ConfigError& error) {
    std::vector<std::string> at;
    for (const config::Problem& problem : error.problems) at.push_back(problem.at.file);
    EXPECT_EQ(at, (std::vector<std::string>{"--nodes", "--nodes", "--nodes", "--network",
                                            "--network", "--nics"}));
  }
}

/// Where init_cluster() finds problems; nothing is written then.
std::vector<std::string> problems_at(const InitSettings& settings) {
  std::vector<std::string> at;
  try {
    init_cluster(settings, {});
  } catch (const config::ConfigError& error) {
    for (const config::Problem& problem : error.problems) at.push_back(problem.at.file);
  }
  return at;
}

TEST(Init, MoreNodesThanAClusterMayHaveAreNamedAndNothingIsWritten) {
  const support::TempFolder folder;
  InitSettings settings;
  settings.output = folder / "large.yaml";
  for (const char* nodes : {"65537x8xH100", "65536x64xH100"}) {
    settings.nodes = {nodes};
    EXPECT_EQ(problems_at(settings), std::vector<std::string>{"--nodes"}) << nodes;
    EXPECT_FALSE(support::fs::exists(*settings.output)) << nodes;
  }
}

TEST(Init, AnEditedFileIsNotOverwritten) {
  const support::TempFolder folder;
  InitSettings settings;
  settings.output = folder / "mine.yaml";
  settings.nodes = {"2x8xH100"};
  EXPECT_TRUE(problems_at(settings).empty());
  EXPECT_TRUE(problems_at(settings).empty()) << "it says the same";
  const std::string edited = read_text_file(*settings.output) + "# mine\n";
  write_text_file(*settings.output, edited);
  EXPECT_EQ(problems_at(settings), std::vector<std::string>{"--output"});
  EXPECT_EQ(read_text_file(*settings.output), edited);
}

TEST(Init, UnitsThatWereMixedUpAreNoticed) {
  const support::TempFolder folder;
  const auto warnings = [&](const std::string& nic, const std::string& peak) {
    write_text_file(folder / "odd.yaml",
                    "schema: orrery/cluster/1\nname: odd\n"
                    "links: {mine: {bandwidth: " +
                        nic +
                        ", latency: 5 us, source: me}}\n"
                        "gpus: {mine: {vendor: nvidia, peak: {bf16: " +
                        peak +
                        "}, memory: 80 GiB, memory_bandwidth: 2 TB/s, source: me}}\n"
                        "nodes: [{name: a, count: 2, gpus: {type: mine, count: 2}, pcie: {link: "
                        "pcie4-x16}, nics: {link: mine, count: "
                        "1}}]\n");
    return implausible(load(folder / "odd.yaml"));
  };
  EXPECT_TRUE(warnings("400 Gbps", "362 TFLOPS").empty());
  const auto nic = warnings("400 GB/s", "362 TFLOPS");
  ASSERT_EQ(nic.size(), 1u);
  EXPECT_NE(nic[0].find("400 Gbps"), std::string::npos) << nic[0];
  const auto peak = warnings("400 Gbps", "362 GFLOPS");
  ASSERT_EQ(peak.size(), 1u);
  EXPECT_NE(peak[0].find("TFLOP/s"), std::string::npos) << peak[0];
}

}  // namespace
}  // namespace orrery::experiments::init_test
