// Are plan, policy, interval and spares chosen together, the same way each time?
#include "experiments/study/robust_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "experiments/study/json.h"
#include "tests/experiments/replay_support.h"

namespace orrery::experiments::robust_plan_test {
namespace {

/// Four nodes of two GPUs that come and go, a small model, traces of half an hour.
struct World : support::ExperimentFolder {
  World() {
    write_text_file(folder / "quad.yaml",
                    support::replaced(support::kReplayCluster, "count: 2\n", "count: 4\n"));
    write_text_file(folder / "restless.yaml", support::kGenerator);
    settings.job.cluster = folder / "quad.yaml";
    settings.job.model = "gpt3_125m";
    settings.job.set_default("global_batch", 16);
    settings.job.set_default("sequence_length", 512);
    settings.judge.cache.folder = "off";
    settings.planners = {"megatron_grid"};
    settings.choices.trace = folder / "restless.yaml";
    settings.choices.days = Days{0.5 / 24};
    settings.choices.policies = {"checkpoint_restart", "hetu", "varuna"};
    settings.choices.spares = 1;
    settings.choices.replays = 40;
    settings.choices.seeds = 3;
  }
  RobustSettings settings;
};

TEST(RobustPlan, ChoosesAmongPlansPoliciesIntervalsAndSpares) {
  World world;
  world.settings.output = world.folder / "best.yaml";
  const RobustResult result = robust_plan(world.settings, {});
  ASSERT_TRUE(result.best);
  EXPECT_EQ(exit_status(result), 0);
  EXPECT_LE(result.replays, 40);
  EXPECT_EQ(result.best->replays, 3);
  std::set<std::string> plans, policies, planners;
  std::set<double> intervals;
  std::set<std::int64_t> spares;
  for (const RobustCandidate& one : result.candidates) {
    plans.insert(one.plan);
    if (one.policy == "hetu") planners.insert(one.new_plans_by);
    policies.insert(one.policy);
    intervals.insert(one.interval);
    spares.insert(one.spare_nodes);
    EXPECT_GT(one.replays, 0);
    EXPECT_LE(one.tokens_per_second.mean, one.undisturbed_tokens_per_second * (1 + 1e-9));
  }
  EXPECT_GE(plans.size(), 2u);
  EXPECT_EQ(policies.size(), 3u);
  EXPECT_TRUE(intervals.contains(0.5) && intervals.contains(1) && intervals.contains(2));
  EXPECT_TRUE(spares.contains(0) && spares.contains(1));
  EXPECT_EQ(planners, (std::set<std::string>{"", "megatron_grid"}));
  ASSERT_TRUE(result.plan_then_policy && result.gain && result.runner_up && result.lead);
  EXPECT_EQ(result.plan_then_policy->interval, 1);
  EXPECT_EQ(result.plan_then_policy->new_plans_by, "");
  // What is judged is not what was chosen by, and both are of the same traces.
  EXPECT_NE(result.best->tokens_per_second.mean, result.candidates.front().tokens_per_second.mean);
  EXPECT_NEAR(result.best->tokens_per_second.mean / result.runner_up->tokens_per_second.mean - 1,
              result.lead->mean, 0.2);
  EXPECT_TRUE(support::fs::exists(*world.settings.output));
}

TEST(RobustPlan, IsTheSameEachTimeAndDependsOnTheSeed) {
  World world;
  world.settings.choices.replays = 16;
  const std::string once = to_json(robust_plan(world.settings, {}));
  EXPECT_EQ(to_json(robust_plan(world.settings, {})), once);
  world.settings.judge.seed = 1;
  EXPECT_NE(to_json(robust_plan(world.settings, {})), once);
}

/// Data parallelism over four nodes of two GPUs, each GPU or node a replica.
std::string replicas_of(int gpus) {
  std::string text = "schema: orrery/plan/1\npipelines:\n";
  for (int first = 0; first < 8; first += gpus) {
    const std::string devices =
        std::to_string(first) + (gpus == 2 ? ", " + std::to_string(first + 1) : "");
    text += "  - {micro_batches: " + std::to_string(2 * gpus) +
            ", micro_batch_size: 1, stages: [{segments: [{blocks: 0-13, groups: [{devices: [" +
            devices + "], tensor_parallel: " + std::to_string(gpus) + "}]}]}]}\n";
  }
  return text;
}

TEST(RobustPlan, PlansThatNeverRunAreNotToldApart) {
  World world;
  // Nodes are away when the trace begins: a policy that plans anew begins with a plan of its own,
  // whatever it was given.
  write_text_file(world.folder / "restless.yaml",
                  support::replaced(support::kGenerator, "start: 1,", "start: 0.5,"));
  for (const int gpus : {1, 2}) {
    const auto file = world.folder / ("plan" + std::to_string(gpus) + ".yaml");
    write_text_file(file, replicas_of(gpus));
    world.settings.choices.plans.push_back(file);
  }
  world.settings.choices.policies = {"hetu"};
  world.settings.choices.spares = 0;
  world.settings.choices.replays = 12;
  world.settings.choices.intervals = {1};
  const RobustResult result = robust_plan(world.settings, {});
  ASSERT_TRUE(result.best);
  EXPECT_GE(result.candidates.size(), 2u);
  std::map<std::tuple<std::string, double, double>, std::string> plans;
  for (const RobustCandidate& one : result.candidates) {
    const auto [known, fresh] =
        plans.try_emplace({one.new_plans_by, one.interval, one.tokens_per_second.mean}, one.plan);
    EXPECT_TRUE(fresh) << one.plan << " and " << known->second << " are the same run";
  }
}

TEST(RobustPlan, TracesWithoutNodesHaveNoTokensAndCount) {
  World world;
  // No node is there for half of a day; each seed sees half an hour of it.
  std::string trace =
      "# schema: orrery/trace/1\n# horizon: 24 h\n# nodes: a{0..3} A100-80GB x2\n"
      "time,kind,scope,cause\n";
  for (const char* event : {"21600,fail", "64800,repair"}) {
    for (const char* node : {"a0", "a1", "a2", "a3"}) {
      trace += std::string(event) + ",node:" + node + ",test\n";
    }
  }
  write_text_file(world.folder / "half.csv", trace);
  world.settings.choices.trace = world.folder / "half.csv";
  world.settings.choices.policies = {"checkpoint_restart", "varuna"};
  world.settings.choices.spares = 0;
  world.settings.choices.intervals = {1};
  world.settings.choices.replays = 12;
  world.settings.choices.seeds = 8;
  for (const std::int64_t seed : {0, 2, 4}) {  // With the last one, the first trace is empty.
    world.settings.judge.seed = seed;
    const RobustResult result = robust_plan(world.settings, {});
    ASSERT_TRUE(result.best) << seed;
    EXPECT_TRUE(result.unable.empty()) << result.unable.front();
    EXPECT_EQ(result.best->replays, 8) << seed;
    ASSERT_TRUE(result.lead) << seed;
    EXPECT_TRUE(std::isfinite(result.lead->mean)) << seed;
    for (const RobustCandidate& one : result.candidates) {
      EXPECT_TRUE(std::isfinite(one.behind.mean)) << one.plan << " under " << one.policy;
    }
  }
}

TEST(RobustPlan, RememberedReplaysAreTheSame) {
  World world;
  world.settings.choices.replays = 12;
  const std::string fresh = to_json(robust_plan(world.settings, {}));
  world.settings.judge.cache.folder = world.folder / "cache";
  EXPECT_EQ(to_json(robust_plan(world.settings, {})), fresh);
  EXPECT_EQ(to_json(robust_plan(world.settings, {})), fresh);
}

TEST(RobustPlan, WhatIsWrongIsSaidAtItsSetting) {
  World world;
  world.settings.choices.policies = {"checkpoint_restrat"};
  world.settings.choices.plans = {"nowhere.yaml"};
  world.settings.choices.runtime = {{"start_nod", "3 s"}};
  world.settings.planners = {"megatron"};
  try {
    robust_plan(world.settings, {});
    FAIL();
  } catch (const config::ConfigError& error) {
    std::set<std::string> at;
    for (const config::Problem& problem : error.problems) at.insert(problem.at.file);
    EXPECT_TRUE(at.contains("--policy") && at.contains("--planner") && at.contains("--runtime"));
  }
}

TEST(RobustPlan, WithoutATraceThereIsNothingToWithstand) {
  World world;
  world.settings.choices.trace.reset();
  EXPECT_THROW(robust_plan(world.settings, {}), config::ConfigError);
}

TEST(RobustPlan, ScalesFailuresToTheTimeBetweenThem) {
  World world;
  world.settings.choices.trace = "llama3";
  world.settings.choices.days = Days{0.25};
  world.settings.choices.policies = {"checkpoint_restart"};
  world.settings.choices.replays = 12;
  world.settings.choices.mtbf = Seconds{3600};
  const RobustResult often = robust_plan(world.settings, {});
  world.settings.choices.mtbf = Seconds{6 * 3600};
  const RobustResult seldom = robust_plan(world.settings, {});
  ASSERT_TRUE(often.best && seldom.best);
  EXPECT_GT(often.candidates.front().interruptions, seldom.candidates.front().interruptions);
  world.settings.choices.trace = world.folder / "restless.yaml";
  EXPECT_THROW(robust_plan(world.settings, {}), config::ConfigError) << "spot nodes alone";
}

TEST(RobustPlan, ATimeBetweenFailuresOutOfRangeIsNamedInTimes) {
  config::Diagnostics found;
  config::Value given = config::Value::map({});
  given.append("mtbf", config::Value::scalar("0 s"));
  RobustSettings settings;
  config::describe_value(given, settings, found);
  ASSERT_EQ(found.problems().size(), 1U);
  EXPECT_EQ(found.problems()[0].what.find("must be from 1 ms to "), 0U) << found.problems()[0].what;
  World world;
  world.settings.choices.trace = "llama3";
  world.settings.choices.mtbf = Seconds{1e-3};
  try {
    robust_plan(world.settings, {});
    FAIL() << "no problem was found";
  } catch (const config::ConfigError& error) {
    ASSERT_EQ(error.problems.size(), 1U) << error.what();
    EXPECT_EQ(error.problems[0].at.file, "--mtbf");
    EXPECT_NE(error.problems[0].what.find(" s, is 1 ms"), std::string::npos) << error.what();
  }
}

TEST(RobustPlan, RentsTheCheapestFleetThatReachesTheTarget) {
  World world;
  // A network on which more nodes train more.
  const std::string quad = read_text_file(world.folder / "quad.yaml");
  write_text_file(world.folder / "quad.yaml",
                  support::replaced(quad, "ethernet-1GBps", "infiniband-200"));
  world.settings.job.changes.clear();
  world.settings.job.set_default("global_batch", 128);
  world.settings.job.set_default("sequence_length", 512);
  world.settings.choices.policies = {"hetu"};
  world.settings.choices.replays = 8;
  world.settings.choices.rent = "1..8 of A100";
  world.settings.choices.spares = 0;
  world.settings.choices.target_rate = 1;
  RobustResult result = robust_plan(world.settings, {});
  ASSERT_TRUE(result.fleet);
  EXPECT_EQ(result.fleet->gpus, 2) << "a node is rented whole";
  const double reached = result.best->tokens_per_second.mean;
  world.settings.choices.target_rate = 1.2 * reached;
  result = robust_plan(world.settings, {});
  ASSERT_TRUE(result.fleet);
  EXPECT_GT(result.fleet->gpus, 2);
  EXPECT_GE(result.best->tokens_per_second.mean, 1.2 * reached);
  for (const RobustFleet& fleet : result.fleets) {
    EXPECT_LE(fleet.dollars_per_hour, result.fleet->dollars_per_hour);
    if (fleet.tokens_per_second) {
      EXPECT_LE(fleet.tokens_per_second->mean, fleet.most_tokens_per_second);
    }
  }
  world.settings.choices.target_rate = 1e9;
  result = robust_plan(world.settings, {});
  EXPECT_FALSE(result.fleet);
  EXPECT_EQ(exit_status(result), 1);
  EXPECT_EQ(result.fleets.size(), 4u);
  for (const RobustFleet& fleet : result.fleets) EXPECT_FALSE(fleet.tried);
  world.settings.choices.rent = "1..8 of A10G";
  EXPECT_THROW(robust_plan(world.settings, {}), config::ConfigError);
}

TEST(RobustPlan, ACanceledCallSaysSo) {
  World world;
  Call call;
  call.cancellation.request();
  const RobustResult result = robust_plan(world.settings, call);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(exit_status(result), kInterrupted);
}

}  // namespace
}  // namespace orrery::experiments::robust_plan_test
