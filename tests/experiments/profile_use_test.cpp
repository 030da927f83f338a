#include <gtest/gtest.h>

#include "experiments/study/profile_scaling.h"
#include "experiments/study/replay_session.h"

namespace orrery::experiments::profile_use_test {
namespace {

models::GpuType gpu(const std::string& name) {
  models::GpuType type;
  type.name = name;
  type.peak[ir::Dtype::bf16] = FlopsPerSecond{1e14};
  type.memory_bandwidth = BytesPerSecond{1e12};
  return type;
}

/// First problem of "--scale-profile `asked`" for a profile of A, on a cluster of B, or "".
std::string problem_of(const std::string& asked) {
  models::Library library;
  library.gpus["A"] = gpu("A");
  models::Cluster cluster;
  cluster.name = "here";
  cluster.gpu_types = {gpu("B")};
  ir::Profile profile;
  profile.name = "p";
  profile.pass_overheads = {{"A", ir::Pass::forward, Seconds{1}, {}},
                            {"Z", ir::Pass::forward, Seconds{1}, {}}};
  config::Diagnostics problems;
  const ir::Profile out =
      scaled_profile(profile, {asked, {"m.yaml", 3, 16}}, cluster, library, problems);
  if (!problems.empty()) return config::to_string(problems.problems().front());
  EXPECT_EQ(out.pass_overheads.at(2).gpu, "B");
  return "";
}

TEST(ScaleProfile, EveryProblemStandsWhereItWasAsked) {
  EXPECT_EQ(problem_of("A=B"), "");
  EXPECT_EQ(problem_of("A"), "m.yaml:3:16: 'A' is no FROM=TO (for example A100-80GB=H100-80GB)");
  EXPECT_EQ(problem_of("Q=B"), "m.yaml:3:16: profile 'p' says nothing about 'Q' (it has A, Z)");
  EXPECT_NE(problem_of("Z=B").find("no GPU type 'Z' in cluster and library"), std::string::npos);
  EXPECT_EQ(problem_of("A=C"), "m.yaml:3:16: cluster 'here' has no GPU type 'C'");
  EXPECT_NE(problem_of(""), "");
}

TEST(FindProfile, TakesNamesOfTheLibraryAndPathsAndSuggestsNames) {
  models::Library library;
  library.profiles["today"] = "/library/profiles/today.yaml";
  config::Diagnostics problems;
  EXPECT_EQ(find_profile({"today", {}}, "", library, problems), "/library/profiles/today.yaml");
  EXPECT_EQ(find_profile({"profiles/today.yaml", {}}, "models/library", library, problems),
            "models/library/profiles/today.yaml");
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(find_profile({"toady", {"m.yaml", 3, 10}}, "here", library, problems), std::nullopt);
  EXPECT_EQ(config::to_string(problems.problems().at(0)),
            "m.yaml:3:10: no such profile file 'here/toady' (did you mean 'today'?)");
}

TEST(MeasuredPhases, StandForOptionsThatTheUserLeavesAlone) {
  ir::Profile profile;
  profile.phases = {{"detect", Seconds{3.5}, {}},
                    {"reinitialize", Seconds{8}, {}},
                    {"no such phase", Seconds{9}, {}}};
  ReplayPolicy policy;
  policy.name = "checkpoint_restart";
  policy.options = {{"detect", "60"}};
  const ReplayPolicy out = with_measured_phases(policy, profile);
  EXPECT_EQ(out.options.at("detect"), "60") << "the user said so";
  EXPECT_EQ(out.options.at("reinitialize"), "8");
  EXPECT_FALSE(out.options.contains("no such phase"));
  EXPECT_EQ(with_measured_phases(policy, {}).options, policy.options);
}

}  // namespace
}  // namespace orrery::experiments::profile_use_test
