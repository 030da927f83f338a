#include "models/spec/plan_yaml.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "models/spec/plan_file.h"
#include "tests/models/spec/random_plans.h"
#include "tests/models/spec/support.h"

namespace orrery::models::plan_yaml_test {
namespace {

ir::Plan read(const std::string& text, config::Diagnostics& problems) {
  return config::load_text<ir::Plan>(text, "p.yaml", problems);
}

ir::Plan sample() {
  ir::Plan plan;
  plan.planner = "by hand";
  ir::Group left{{{0}, {1}, {2}, {3}}, 4, ir::SequenceParallelism::none, 1, 2};
  ir::Group right{{{8}, {5}}, 2, ir::SequenceParallelism::none, 1, 1};
  ir::Segment segment{{0}, {20}, 0, {left, right}, ir::Recompute::full, {}, 1};
  ir::Segment last{
      {21},   {21}, 0, {{{{9}}, 1, ir::SequenceParallelism::none, 1, 3}}, ir::Recompute::none,
      {1, 0}, 1};
  plan.pipelines.push_back({4, 3, std::nullopt, {{{segment}}, {{last}}}, {}});
  return plan;
}

TEST(PlanYaml, ReadsWell) {
  EXPECT_EQ(dump_plan(sample()), R"(schema: orrery/plan/1
planner: by hand
schedule: 1f1b
pipelines:
  - micro_batches: 4
    micro_batch_size: 3
    stages:
      - segments:
          - blocks: 0-20
            groups:
              - devices: [0-3]
                tensor_parallel: 4
                samples: 2
              - devices: [8, 5]
                tensor_parallel: 2
            recompute: full
      - segments:
          - blocks: 21
            groups:
              - devices: [9]
                samples: 3
            zero:
              stage: 1
)");
}

RC_GTEST_PROP(PlanYaml, RoundTripsExactly, ()) {
  const ir::Plan plan = ir::any_plan();
  config::Diagnostics problems;
  const ir::Plan back = read(dump_plan(plan), problems);
  if (!problems.empty()) RC_FAIL(config::to_string(problems.problems().front()));
  RC_ASSERT(back == plan);
  RC_ASSERT(dump_plan(back) == dump_plan(plan));
}

TEST(PlanYaml, LoadsFromAFile) {
  config::Diagnostics problems;
  const ir::Plan plan = load_plan(file_with("plan.yaml", dump_plan(sample())), problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(plan, sample());
}

TEST(PlanYaml, WhatItWasMadeForIsSeenFromItsFolder) {
  PlanOrigin origin;
  origin.cluster.value = "some/where/cluster.yaml";
  origin.model.value = "gpt3_1.3b";  // A name, whatever looks like an ending.
  origin.job.global_batch = 8;
  origin.job.sequence_length = 512;
  const std::string text = dump_plan_file({sample(), origin}, "some/plan.yaml");
  EXPECT_NE(text.find("\n  cluster: where/cluster.yaml\n  model: gpt3_1.3b\n"), std::string::npos)
      << text;
  const std::string path = file_with("plan.yaml", text);
  config::Diagnostics problems;
  const PlanFile back = load_plan_file(path, problems);
  ASSERT_TRUE(problems.empty()) << config::to_string(problems.problems().front());
  EXPECT_EQ(back.plan, sample());
  ASSERT_TRUE(back.made_for);
  EXPECT_EQ(back.made_for->cluster.value,
            (std::filesystem::path(path).parent_path() / "where/cluster.yaml").string());
  EXPECT_EQ(back.made_for->job.sequence_length, 512);
  EXPECT_EQ(load_plan(path, problems), sample());
}

TEST(PlanYaml, EveryTruncationIsAPlanOrAProblemWithAPosition) {
  const std::string text = dump_plan(sample());
  int refused = 0;
  for (std::size_t length = 0; length < text.size(); ++length) {
    config::Diagnostics problems;
    read(text.substr(0, length), problems);
    refused += problems.empty() ? 0 : 1;
    for (const config::Problem& problem : problems.problems()) {
      EXPECT_GT(problem.at.line, 0) << length << ": " << config::to_string(problem);
    }
  }
  EXPECT_GT(refused, static_cast<int>(text.size() / 2));
}

TEST(PlanYaml, IllFormedListsAndRangesAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& blocks, const std::string& devices) {
    config::Diagnostics problems;
    read(
        "schema: orrery/plan/1\npipelines:\n  - micro_batches: 1\n    micro_batch_size: 1\n"
        "    stages:\n      - segments:\n          - blocks: " +
            blocks + "\n            groups: [{devices: " + devices + "}]\n",
        problems);
    return problems.empty() ? "" : config::to_string(problems.problems().front());
  };
  EXPECT_EQ(problem("0-3", "[0-7, 9]"), "");
  EXPECT_EQ(problem("0-3", "4"), "");
  EXPECT_EQ(problem("3-0", "[0]"), "p.yaml:7:21: range '3-0' ends before it begins (as in 0-20)");
  EXPECT_EQ(problem("-1", "[0]"),
            "p.yaml:7:21: expected a number or a range, got '-1' (as in 0-20)");
  EXPECT_EQ(problem("0", "[0-]"),
            "p.yaml:8:32: expected a number or a range, got '0-' (as in [0-7, 12])");
  EXPECT_EQ(problem("0", "{}"), "p.yaml:8:32: expected a list of devices (as in [0-7])");
  EXPECT_EQ(problem("0", "[0-1000000000]"), "p.yaml:8:32: more than 1048576 devices");
  // The largest ids, whose next one is a number, too.
  EXPECT_EQ(problem("1073741823", "[1073741822-1073741823]"), "");
  for (const char* beyond : {"2147483647", "1073741824", "2147483646-2147483647"}) {
    const std::string got = std::string("expected a number or a range, got '") + beyond + "' ";
    EXPECT_EQ(problem("0", std::string("[") + beyond + "]"),
              "p.yaml:8:32: " + got + "(as in [0-7, 12])");
    EXPECT_EQ(problem(beyond, "[0]"), "p.yaml:7:21: " + got + "(as in 0-20)");
  }
}

TEST(PlanYaml, AnOptimizerIsWrittenOnlyWhenStaggeredAndOthersAreRefused) {
  ir::Plan plan = sample();
  EXPECT_EQ(dump_plan(plan).find("optimizer"), std::string::npos);
  const std::string hash = plan_hash(plan);
  plan.optimizer = ir::OptimizerStart::staggered;
  EXPECT_NE(dump_plan(plan).find("\noptimizer: staggered\n"), std::string::npos);
  EXPECT_NE(plan_hash(plan), hash);
  config::Diagnostics problems;
  read("schema: orrery/plan/1\noptimizer: alone\npipelines: []\n", problems);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(config::to_string(problems.problems().front()),
            "p.yaml:2:12: unknown value 'alone' (one of: together, staggered)");
}

TEST(PlanYaml, AShareInHostMemoryIsWrittenOnlyWhereThereIsOneAndOthersAreRefused) {
  ir::Plan plan = sample();
  EXPECT_EQ(dump_plan(plan).find("optimizer_offload"), std::string::npos);
  const std::string hash = plan_hash(plan);
  plan.optimizer_offload = 0.5;
  EXPECT_NE(dump_plan(plan).find("\noptimizer_offload: 0.5\n"), std::string::npos);
  EXPECT_NE(plan_hash(plan), hash);
  config::Diagnostics problems;
  EXPECT_EQ(read(dump_plan(plan), problems), plan);
  EXPECT_TRUE(problems.empty());
  read("schema: orrery/plan/1\noptimizer_offload: 1.5\npipelines: []\n", problems);
  ASSERT_FALSE(problems.empty());
  EXPECT_EQ(config::to_string(problems.problems().front()),
            "p.yaml:2:20: must be from 0 to 1, is 1.5");
}

TEST(PlanYaml, CopiesOfAPipelineStandForThemselves) {
  const std::string head = "schema: orrery/plan/1\npipelines:\n";
  const auto pipeline = [](const std::string& more, const std::string& devices) {
    return "  - {micro_batches: 2, micro_batch_size: 1, " + more +
           "stages: [{segments: [{blocks: 0-3, groups: [{devices: [" + devices +
           "], tensor_parallel: 2}]}]}]}\n";
  };
  config::Diagnostics problems;
  const ir::Plan copied = read(head + pipeline("copies: 3, device_step: 4, ", "0-1"), problems);
  const ir::Plan written =
      read(head + pipeline("", "0-1") + pipeline("", "4-5") + pipeline("", "8-9"), problems);
  ASSERT_TRUE(problems.empty());
  EXPECT_EQ(copied, written);
  EXPECT_EQ(dump_plan(copied), dump_plan(written));
  read(head + pipeline("copies: 3, ", "0-1"), problems);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems.problems().front().what.find("devices of their own"), std::string::npos);
  for (const char* most :
       {"copies: 1048576, device_step: 1, ", "copies: 3, device_step: 1048576, "}) {
    problems = {};
    read(head + pipeline(most, most[8] == '1' ? "0-1" : "1073741822"), problems);
    ASSERT_FALSE(problems.empty()) << most;
    EXPECT_EQ(problems.problems().front().what,
              "copies have more than 1048576 devices, or ids above 1073741823");
  }
}

TEST(PlanYaml, EmptyListsAreRefused) {
  for (const char* text : {"schema: orrery/plan/1\npipelines: []\n",
                           "schema: orrery/plan/1\npipelines: [{micro_batches: 1, "
                           "micro_batch_size: 1, stages: []}]\n",
                           "schema: orrery/plan/1\npipelines: [{micro_batches: 1, "
                           "micro_batch_size: 1, stages: [{segments: []}]}]\n"}) {
    config::Diagnostics problems;
    read(text, problems);
    ASSERT_EQ(problems.problems().size(), 1u);
    EXPECT_EQ(problems.problems()[0].what, "the list is empty");
  }
}

TEST(PlanHash, IgnoresPredictionAndPlannerOnly) {
  ir::Plan plan = sample();
  const std::string hash = plan_hash(plan);
  plan.planner = "other";
  plan.predicted = ir::Prediction{1.0_s, 1_GiB};
  EXPECT_EQ(plan_hash(plan), hash);
  plan.pipelines[0].micro_batches = 5;
  EXPECT_NE(plan_hash(plan), hash);
}

}  // namespace
}  // namespace orrery::models::plan_yaml_test
