#include "calibration/importers/sailor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "models/spec/library.h"
#include "models/spec/link_calibration.h"
#include "tests/calibration/sailor_fixture.h"

namespace orrery::calibration::sailor_test {
namespace {

using support::SailorFolder;

/// Bandwidth of one GPU pair between two nodes; the shape of a real measurement.
SailorBandwidth curve() {
  SailorBandwidth fit;
  fit.sender_gpu = fit.receiver_gpu = "A";
  fit.c2 = -0.2;
  fit.c1 = 3;
  fit.c0 = 12;
  fit.most_measured = {22e9};
  fit.positive_from = {131072};
  return fit;
}

std::string first_problem(const config::Diagnostics& diagnostics) {
  return diagnostics.empty() ? "" : config::to_string(diagnostics.problems().front());
}

const ir::BlockTime* find(const ir::Profile& profile, ir::BlockKind block, ir::Pass pass) {
  const auto found =
      std::find_if(profile.block_times.begin(), profile.block_times.end(),
                   [&](const auto& entry) { return entry.block == block && entry.pass == pass; });
  return found == profile.block_times.end() ? nullptr : &*found;
}

TEST(SailorRate, CountsInDecimalGigabytesAndMegabytes) {
  EXPECT_DOUBLE_EQ(sailor_rate(curve(), Bytes{1e6}).value, 12e9);  // x = 0
  EXPECT_DOUBLE_EQ(sailor_rate(curve(), Bytes{4e6}).value, (12 + 2 * 3 - 4 * 0.2) * 1e9);
  EXPECT_DOUBLE_EQ(sailor_rate(curve(), Bytes{5e5}).value, (12 - 3 - 0.2) * 1e9);
}

TEST(SailorRate, BelowItsRangeIsThatOfItsLeastMessage) {
  EXPECT_EQ(sailor_rate(curve(), Bytes{1000}), sailor_rate(curve(), Bytes{131072}));
}

models::LinkCalibration calibration_of(const std::vector<ir::LinkSegment>& segments) {
  ir::Profile profile;
  profile.links = segments;
  return models::link_calibrations(profile).at("wire");
}

Seconds time_of(const models::LinkCalibration& links, Bytes message) {
  const auto& segment = links.segment(message);
  return segment.latency + message / segment.bandwidth;
}

TEST(SailorSegments, MeetTheParabolaAtPowersOfTwoBelowTheFastestMeasurement) {
  const SailorBandwidth fit = curve();
  const auto links = calibration_of(sailor_segments(fit, 1, "wire"));
  int met = 0;
  for (double size = 0x1p19; size <= 0x1p25; size *= 2) {
    const BytesPerSecond rate = sailor_rate(fit, Bytes{size});
    if (rate > fit.most_measured) break;
    EXPECT_NEAR(time_of(links, Bytes{size}).value, size / rate.value, 1e-12) << size;
    ++met;
  }
  EXPECT_GE(met, 3);
}

TEST(SailorSegments, AreNeverFasterThanTheFastestMeasurementNorNegative) {
  const SailorBandwidth fit = curve();
  const auto links = calibration_of(sailor_segments(fit, 1, "wire"));
  for (const auto& segment : links.segments) EXPECT_GE(segment.latency.value, 0);
  for (double size = 1024; size <= 0x1p31; size *= 1.5) {
    EXPECT_GE(time_of(links, Bytes{size}).value, size / fit.most_measured.value * (1 - 1e-12))
        << size;
  }
}

TEST(SailorSegments, TakeNoLessTimeForLargerMessages) {
  const auto links = calibration_of(sailor_segments(curve(), 1, "wire"));
  Seconds before;
  for (double size = 1024; size <= 0x1p31; size *= 1.1) {
    const Seconds time = time_of(links, Bytes{size});
    EXPECT_GE(time.value, before.value * (1 - 1e-12)) << size;
    before = time;
  }
}

TEST(SailorSegments, AShareOfTheRateTakesAsManyTimesLonger) {
  const auto whole = calibration_of(sailor_segments(curve(), 1, "wire"));
  const auto half = calibration_of(sailor_segments(curve(), 0.5, "wire"));
  for (const double size : {1e5, 1e6, 3e7}) {
    EXPECT_NEAR(time_of(half, Bytes{size}).value, 2 * time_of(whole, Bytes{size}).value, 1e-12);
  }
}

TEST(SailorImport, ALayerIsTheMeanOfTheTwoThatWereProfiled) {
  const SailorFolder folder("mean");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_sailor_profile(folder.path(), {}, diagnostics);
  ASSERT_EQ(first_problem(diagnostics), "");
  const auto* forward = find(profile, ir::BlockKind::transformer, ir::Pass::forward);
  const auto* backward = find(profile, ir::BlockKind::transformer, ir::Pass::backward);
  ASSERT_NE(forward, nullptr);
  ASSERT_NE(backward, nullptr);
  EXPECT_DOUBLE_EQ(forward->time.value, 1.0);
  EXPECT_DOUBLE_EQ(backward->time.value, 2.0);
  EXPECT_EQ(forward->sequence_length, 8);
  EXPECT_EQ(forward->dtype, ir::Dtype::fp32);
}

TEST(SailorImport, TheEmbeddingHasNoBackwardTime) {
  const SailorFolder folder("embedding");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_sailor_profile(folder.path(), {}, diagnostics);
  EXPECT_NE(find(profile, ir::BlockKind::embedding, ir::Pass::forward), nullptr);
  EXPECT_EQ(find(profile, ir::BlockKind::embedding, ir::Pass::backward), nullptr);
}

TEST(SailorImport, OptimizerIsALineThroughTheMeansOverMicroBatches) {
  const SailorFolder folder("optimizer");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_sailor_profile(folder.path(), {}, diagnostics);
  ASSERT_EQ(profile.optimizers.size(), 1U);
  EXPECT_NEAR(profile.optimizers.front().per_parameter.value, 0.5e-9, 1e-18);
  EXPECT_NEAR(profile.optimizers.front().fixed.value, 1e-3, 1e-12);
}

TEST(SailorImport, AnOptimizerThatIsFasterOnMoreParametersIsInProportionToThem) {
  const SailorFolder folder("falling");
  folder.write("optimizer_times.csv",
               "model,gpu,tp,micro_batch,optimizer_step_s,profiled_params_per_gpu\n"
               "toy,GH-96,1,1,0.001,2000000\n"
               "toy,GH-96,2,1,0.002,1000000\n");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_sailor_profile(folder.path(), {}, diagnostics);
  ASSERT_EQ(first_problem(diagnostics), "");
  ASSERT_EQ(profile.optimizers.size(), 1U);
  EXPECT_NEAR(profile.optimizers.front().per_parameter.value, 1e-9, 1e-18);
  EXPECT_NEAR(profile.optimizers.front().fixed.value, 0, 1e-12);
}

TEST(SailorImport, LinksInsideANodeAreTheShareOfOnePair) {
  const SailorFolder folder("links");
  config::Diagnostics diagnostics;
  const ir::Profile profile =
      import_sailor_profile(folder.path(), {{"GH-96", "mine"}}, diagnostics);
  const auto links = models::link_calibrations(profile);
  ASSERT_TRUE(links.contains(sailor_gpu_link("mine", 2)));
  ASSERT_TRUE(links.contains(sailor_node_link("mine")));
  EXPECT_NEAR(links.at(sailor_gpu_link("mine", 1)).segment(Bytes{1e6}).bandwidth.value, 100e9, 1);
  EXPECT_NEAR(links.at(sailor_gpu_link("mine", 2)).segment(Bytes{1e6}).bandwidth.value, 75e9, 1);
  EXPECT_NEAR(links.at(sailor_node_link("mine")).segment(Bytes{1e6}).bandwidth.value, 4096, 1e-6);
}

TEST(SailorImport, IsAProfileFileThatReadsBackEqual) {
  const SailorFolder folder("file");
  config::Diagnostics diagnostics;
  const ir::Profile profile = import_sailor_profile(folder.path(), {}, diagnostics);
  const std::string text = models::dump_profile(profile);
  folder.write("profile.yaml", text);
  const ir::Profile again = models::load_profile(folder.path() + "/profile.yaml", diagnostics);
  ASSERT_EQ(first_problem(diagnostics), "");
  EXPECT_EQ(models::dump_profile(again), text);
  EXPECT_EQ(again.block_times.size(), profile.block_times.size());
  EXPECT_EQ(again.optimizers.size(), profile.optimizers.size());
  EXPECT_EQ(again.links.size(), profile.links.size());
}

TEST(SailorImport, ProblemsHaveTheirPlace) {
  const SailorFolder folder("problems");
  folder.write("layer_times.csv",
               "model,gpu,tp,micro_batch,first_layer,last_layer,forward_s,backward_s\n"
               "toy,GH-96,0,1,0,0,fast,2e-06\n"
               "toy,GH-96,1,1\n");
  folder.write("models.json", R"({"models": {"toy": {"sequence": 1e300}}})");
  config::Diagnostics diagnostics;
  import_sailor_profile(folder.path(), {}, diagnostics);
  std::string all;
  for (const auto& problem : diagnostics.problems()) all += config::to_string(problem) + "\n";
  EXPECT_NE(all.find("'sequence' must be at most 1000000000, is 1e+300"), std::string::npos) << all;
  EXPECT_NE(all.find("layer_times.csv:2:11: 'tp' must be at least 1, is 0"), std::string::npos)
      << all;
  EXPECT_NE(all.find("layer_times.csv:2:19: 'forward_s' must be a number, is 'fast'"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("layer_times.csv:3:1: has 4 cells, the table has 8 columns"),
            std::string::npos)
      << all;
}

TEST(SailorImport, ACutOffLastNumberIsAProblem) {
  const SailorFolder folder("cut");
  folder.write("layer_times.csv",
               "model,gpu,tp,micro_batch,first_layer,last_layer,forward_s,backward_s\n"
               "toy,GH-96,1,1,0,0,0,2e-0");
  config::Diagnostics diagnostics;
  import_sailor_profile(folder.path(), {}, diagnostics);
  EXPECT_NE(first_problem(diagnostics).find("layer_times.csv:2: the last line has no line break"),
            std::string::npos)
      << first_problem(diagnostics);
}

TEST(SailorImport, SaysWhichFilesAndColumnsAreMissing) {
  const SailorFolder folder("missing");
  folder.write("layer_memory.csv", "model,tp\ntoy,1\n");
  std::filesystem::remove(folder.path() + "/optimizer_times.csv");
  config::Diagnostics diagnostics;
  read_sailor_tables(folder.path(), diagnostics);
  std::string all;
  for (const auto& problem : diagnostics.problems()) all += config::to_string(problem) + "\n";
  EXPECT_NE(all.find("optimizer_times.csv"), std::string::npos) << all;
  EXPECT_NE(all.find("layer_memory.csv:1:1: has no column 'first_layer'"), std::string::npos)
      << all;
}

}  // namespace
}  // namespace orrery::calibration::sailor_test
