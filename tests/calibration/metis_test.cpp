#include "calibration/importers/metis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/spec/library.h"
#include "models/spec/topology.h"

namespace orrery::calibration::metis_test {
namespace {

namespace fs = std::filesystem;

/// A folder that is empty when the test begins.
class Folder {
 public:
  explicit Folder(const std::string& name)
      : path_(fs::path(testing::TempDir()) / ("metis_import_" + name)) {
    fs::remove_all(path_);
    fs::create_directories(path_);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path_ / name) << text;
    return (path_ / name).string();
  }
  std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

/// A profile of three layers; the second one takes `ms`.
std::string profile_json(double ms, const std::string& extra = "") {
  return fmt::format(
      "{{\n\t\"model\": {{\"model_name\": \"tiny\", \"num_layers\": 3,\n"
      "    \"parameters\": {{\"parameters_per_layer_bytes\": [100, 50, 100]}}}},\n"
      "  \"execution_time\": {{\n    \"forward_backward_time_ms\": {0},\n"
      "    \"batch_generator_time_ms\": 0.9145021438598633,\n    \"optimizer_time_ms\": 12.5,\n"
      "    \"layer_compute_total_ms\": [0.2892017364501953, {0}, 0.41]}},\n"
      "  \"execution_memory\": {{\"layer_memory_total_mb\": [7820, 4146.5, 12132]}}{1}\n}}\n",
      ms, extra);
}

std::vector<std::string> problems_of(const config::Diagnostics& diagnostics) {
  std::vector<std::string> lines;
  for (const config::Problem& problem : diagnostics.problems()) {
    lines.push_back(config::to_string(problem));
  }
  return lines;
}

std::string all(const config::Diagnostics& diagnostics) {
  return fmt::format("{}", fmt::join(problems_of(diagnostics), "\n"));
}

TEST(MetisProfile, NumbersArriveBitByBitAndSurviveTheYaml) {
  const Folder folder("numbers");
  folder.write("DeviceType.T4_tp1_bs1.json", profile_json(29.507994651794434));
  folder.write("DeviceType.A100_tp2_bs4.json", profile_json(1.0 / 3));
  folder.write("DeviceType.A100_tp2_bs16.json", profile_json(7));
  folder.write("notes.txt", "not read");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_metis_profile(folder.path(), {{"T4", "T4-16GB"}}, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
  const std::string yaml = folder.write("out.yaml", models::dump_profile(profile));
  const ir::Profile again = models::load_profile(yaml, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
  for (const ir::Profile& each : {profile, again}) {
    ASSERT_EQ(each.model_layers.size(), 1u);
    const ir::ModelLayers& model = each.model_layers[0];
    EXPECT_EQ(model.model, "tiny");
    EXPECT_EQ(model.parameter_bytes, (std::vector<double>{100, 50, 100}));
    EXPECT_EQ(model.optimizer_ms, 12.5);
    EXPECT_EQ(model.batch_generator_ms, 0.9145021438598633);
    ASSERT_EQ(model.profiles.size(), 3u);
    EXPECT_EQ(model.profiles[0].gpu, "A100");
    EXPECT_EQ(model.profiles[0].tensor_parallel, 2);
    EXPECT_EQ(model.profiles[0].micro_batch_size, 4);
    EXPECT_EQ(model.profiles[0].layer_ms, (std::vector<double>{0.2892017364501953, 1.0 / 3, 0.41}));
    EXPECT_EQ(model.profiles[1].micro_batch_size, 16);
    EXPECT_EQ(model.profiles[2].gpu, "T4-16GB");
    EXPECT_EQ(model.profiles[2].layer_mb, (std::vector<double>{7820, 4146.5, 12132}));
    EXPECT_EQ(model.profiles[2].forward_backward_ms, 29.507994651794434);
  }
  EXPECT_EQ(models::dump_profile(again), models::dump_profile(profile));
}

TEST(MetisProfile, ATypeThatNoFileSaysComesFromTheFlag) {
  const Folder folder("nameless");
  folder.write("tp1_bs1.json", profile_json(1));
  config::Diagnostics missing;
  import_metis_profile(folder.path(), {}, missing);
  EXPECT_NE(all(missing).find("does not say the GPU type (--gpu NAME says it)"), std::string::npos);
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_metis_profile(folder.path(), {{"", "H20-96GB"}}, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  EXPECT_EQ(profile.model_layers[0].profiles[0].gpu, "H20-96GB");
}

TEST(MetisProfile, AllProblemsOfAllFilesHaveTheirPlaces) {
  const Folder folder("problems");
  folder.write("DeviceType.A_tp1_bs1.json", "{\"model\": {\"model_name\": 3,}\n}");
  folder.write("DeviceType.A_tp1_bs2.json",
               "{\"model\": {\"model_name\": 3, \"num_layers\": 2,\n \"parameters\": "
               "{\"parameters_per_layer_bytes\": [1, -2]}},\n\"execution_time\": "
               "{\"layer_compute_total_ms\": [1, \"x\"],\n\"forward_backward_time_ms\": 1, "
               "\"batch_generator_time_ms\": null, \"optimizer_time_ms\": 1},\n"
               "\"execution_memory\": {\"layer_memory_total_mb\": [1, 2, 3]}}");
  folder.write("DeviceType.A_tp0_bs2.json", profile_json(1));
  folder.write("other.json", "{}");
  config::Diagnostics diagnostics;
  import_metis_profile(folder.path(), {}, diagnostics);
  const std::string bad = folder.path() + "/DeviceType.A_tp1_bs2.json";
  std::vector<std::string> lines = problems_of(diagnostics);
  std::sort(lines.begin(), lines.end());
  std::vector<std::string> expected = {
      folder.path() +
          "/DeviceType.A_tp0_bs2.json: the name does not say what was profiled "
          "(DeviceType.<TYPE>_tp<T>_bs<B>.json, T and B at least 1)",
      folder.path() +
          "/DeviceType.A_tp1_bs1.json:1:28: no JSON: unexpected '}'; expected string literal",
      bad + ":1:26: 'model.model_name' must be a text, is '3'",
      bad + ":2:51: 'model.parameters.parameters_per_layer_bytes[1]' must be at least 0, is -2",
      bad + ":3:50: 'execution_time.layer_compute_total_ms[1]' must be a number, is 'x'",
      bad + ":4:59: 'execution_time.batch_generator_time_ms' must be a number, is nothing",
      bad + ":5:47: 'execution_memory.layer_memory_total_mb' has 3 entries for 2 layers",
      folder.path() +
          "/other.json: the name does not say what was profiled "
          "(DeviceType.<TYPE>_tp<T>_bs<B>.json, T and B at least 1)"};
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(lines, expected);
}

TEST(MetisProfile, MissingKeysDuplicatesAndMixedModelsAreNamed) {
  const Folder folder("missing");
  folder.write("DeviceType.A_tp1_bs1.json", profile_json(1));
  folder.write("DeviceType.A_tp1_bs2.json", "{\"model\": {}}");
  std::string other = profile_json(1);
  other.replace(other.find("tiny"), 4, "huge");
  folder.write("DeviceType.A_tp2_bs1.json", other);
  folder.write("DeviceType.B_tp1_bs1.json", profile_json(1));
  config::Diagnostics diagnostics;
  import_metis_profile(folder.path(), {{"B", "A"}}, diagnostics);
  const std::string text = all(diagnostics);
  for (const char* part :
       {"_bs2.json:1:11: 'model.model_name' is missing", "'execution_memory.layer_memory_total_mb'",
        "profiles 'huge' with 3 layers", "a second profile of A, degree 1, micro-batch size 1"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(MetisProfile, AFolderWithoutProfilesIsAProblem) {
  const Folder folder("empty");
  config::Diagnostics empty, absent;
  import_metis_profile(folder.path(), {}, empty);
  import_metis_profile(folder.path() + "/absent", {}, absent);
  EXPECT_NE(all(empty).find("holds no profiles"), std::string::npos);
  EXPECT_NE(all(absent).find("cannot be listed"), std::string::npos);
}

models::Library library() {
  config::Diagnostics diagnostics;
  models::Library result = models::load_library(models::default_library_root(), diagnostics);
  EXPECT_TRUE(diagnostics.empty());
  return result;
}

constexpr const char* kMachine =
    "{\n\"a\": {\"instance_type\": \"a100\", \"inter_bandwidth\": 10, \"intra_bandwidth\": 46, "
    "\"memory\": 40},\n\"t\": {\"instance_type\": \"T4\", \"inter_bandwidth\": 5, "
    "\"intra_bandwidth\": 12, \"memory\": 15}}";

TEST(MetisCluster, BecomesAClusterThatLoads) {
  const Folder folder("cluster");
  const std::string hosts = folder.write("hostfile", "# three nodes\na slots=4\n\nt 2\na slots=1");
  const std::string machines = folder.write("clusterfile.json", kMachine);
  config::Diagnostics diagnostics;
  const std::string yaml =
      import_metis_cluster(hosts, machines, {}, BandwidthUnit::gigabytes, library(), diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
  const models::Cluster cluster =
      models::load_cluster(folder.write("cluster.yaml", yaml), library(), {}, diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics) << "\n" << yaml;
  ASSERT_EQ(cluster.size(), 7);
  ASSERT_EQ(cluster.gpu_types.size(), 2u);
  EXPECT_EQ(cluster.gpu_types[0].name, "A100");
  EXPECT_EQ(cluster.gpu_types[0].memory, 40_GiB);
  EXPECT_EQ(cluster.gpu_types[0].peak, library().gpus.at("A100-40GB").peak);
  EXPECT_EQ(cluster.gpu_types[1].memory, 15_GiB);
  const models::Topology topology(cluster);
  EXPECT_EQ(topology.path(DeviceId{0}, DeviceId{3}).bandwidth, 46_GBps);
  EXPECT_EQ(topology.path(DeviceId{4}, DeviceId{5}).bandwidth, 12_GBps);
  EXPECT_EQ(topology.path(DeviceId{0}, DeviceId{6}).bandwidth, 10_GBps);
  EXPECT_EQ(topology.path(DeviceId{0}, DeviceId{4}).bandwidth, 5_GBps);
}

TEST(MetisCluster, BytesPerSecondAreReadOnRequestAndNeverGuessed) {
  const Folder folder("unit");
  const std::string hosts = folder.write("hostfile", "a slots=2\n");
  const std::string machines =
      folder.write("clusterfile.json",
                   "{\"a\": {\"instance_type\": \"T4\", \"inter_bandwidth\": 312500000.0, "
                   "\"intra_bandwidth\": 5312500000.0, \"memory\": 15}}");
  config::Diagnostics diagnostics;
  import_metis_cluster(hosts, machines, {}, BandwidthUnit::gigabytes, library(), diagnostics);
  EXPECT_EQ(problems_of(diagnostics),
            (std::vector<std::string>{
                machines + ":1:82: 'intra_bandwidth' of 5312500000.0 GB/s is no link (Metis's "
                           "README writes B/s: --bandwidth-unit B/s)",
                machines + ":1:50: 'inter_bandwidth' of 312500000.0 GB/s is no link (Metis's "
                           "README writes B/s: --bandwidth-unit B/s)"}));
  config::Diagnostics good;
  const std::string yaml =
      import_metis_cluster(hosts, machines, {}, BandwidthUnit::bytes, library(), good);
  EXPECT_TRUE(good.empty()) << all(good);
  EXPECT_NE(yaml.find("bandwidth: 5.3125 GB/s"), std::string::npos) << yaml;
}

TEST(MetisCluster, AllProblemsOfBothFilesHaveTheirPlaces) {
  const Folder folder("bad_cluster");
  const std::string hosts = folder.write("hostfile", "a slots=4\nb slots=0\n  c\nd slots=2\n");
  const std::string machines =
      folder.write("clusterfile.json",
                   "{\"a\": {\"instance_type\": \"Z9\", \"inter_bandwidth\": 0, \"memory\": 15},\n"
                   "\"b\": 7}");
  config::Diagnostics diagnostics;
  const std::string yaml =
      import_metis_cluster(hosts, machines, {}, BandwidthUnit::gigabytes, library(), diagnostics);
  EXPECT_EQ(yaml, "");
  const std::string text = all(diagnostics);
  for (const std::string& part :
       {hosts + ":2:3: no number of GPUs (<address> slots=<GPUs>)", hosts + ":3:4: no number",
        hosts + ":4:1: " + machines + " does not name 'd'",
        machines + ":1:7: 'intra_bandwidth' is missing",
        machines + ":1:50: 'inter_bandwidth' must be positive, is 0",
        machines + ":1:25: the library has no GPU 'Z9' (--gpu Z9=NAME; known: ",
        machines + ":2:6: must be an object, is '7'"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(MetisCluster, HostsThatTheClusterFileDoesNotNameAreNamedUpToTen) {
  const Folder folder("unnamed");
  std::string lines;
  for (int i = 0; i < 50'000; ++i) lines += fmt::format("wanted{} 8\n", i);
  std::string entries;
  for (int i = 0; i < 1000; ++i) entries += fmt::format("{}\"there{}\": 7", i > 0 ? ", " : "", i);
  config::Diagnostics diagnostics;
  import_metis_cluster(folder.write("hostfile", lines),
                       folder.write("clusterfile.json", "{" + entries + "}"), {},
                       BandwidthUnit::gigabytes, library(), diagnostics);
  EXPECT_EQ(diagnostics.problems().size(), 1000u + 10 + 1);  // Machines, hosts, how many more.
  const config::Problem& last = diagnostics.problems().back();
  EXPECT_TRUE(last.what.starts_with("49990 more hosts that ")) << last.what;
  const std::string& hint = diagnostics.problems()[1000].hint;
  EXPECT_TRUE(hint.ends_with(" and 700 more")) << hint;
}

TEST(MetisCluster, AGivenBaseFillsInWhatMetisDoesNotSay) {
  const Folder folder("base");
  const std::string hosts = folder.write("hostfile", "a slots=1\n");
  const std::string machines =
      folder.write("clusterfile.json",
                   "{\"a\": {\"instance_type\": \"Z9\", \"inter_bandwidth\": 1, "
                   "\"intra_bandwidth\": 2, \"memory\": 24}}");
  config::Diagnostics diagnostics;
  const std::string yaml = import_metis_cluster(hosts, machines, {{"Z9", "RTX4090-24GB"}},
                                                BandwidthUnit::gigabytes, library(), diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  EXPECT_NE(yaml.find("base: RTX4090-24GB"), std::string::npos) << yaml;
}

}  // namespace
}  // namespace orrery::calibration::metis_test
