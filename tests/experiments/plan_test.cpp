// Can a program call what commands do, as functions, without a terminal?
#include "experiments/study/plan.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "experiments/study/simulate.h"
#include "models/config/document.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::plan_test {
namespace {

/// Two GPUs, a small model, 4 samples of 512 tokens.
JobSettings small_job(const support::TempFolder& folder) {
  write_text_file(folder / "pair.yaml", support::kCluster);
  JobSettings job;
  job.cluster = folder / "pair.yaml";
  job.model = "gpt3_125m";
  job.set_default("global_batch", 4);
  job.set_default("sequence_length", 512);
  return job;
}

TEST(Plan, ABestPlanComesBackAndSimulatesTheSame) {
  const support::TempFolder folder;
  PlanSettings settings;
  settings.job = small_job(folder);
  settings.planners = {"hexiscale", "amp", "hexiscale"};
  settings.output = folder / "best.yaml";
  const PlanResult planned = plan(settings, {});
  ASSERT_EQ(planned.planners.size(), 2u) << "a planner that is named twice runs once";
  const RunReport* best = planned.best_report();
  ASSERT_NE(best, nullptr);
  EXPECT_EQ(exit_status(planned), 0);

  SimulateSettings again;
  again.job = small_job(folder);
  again.plans = {*settings.output};
  const SimulateResult simulated = simulate(again, {});
  ASSERT_EQ(simulated.plans.size(), 1u);
  EXPECT_EQ(simulated.plans[0].evaluation->iteration_time.value,
            best->evaluation->iteration_time.value)
      << "a call leaves nothing in the process that another one sees";
}

TEST(Plan, AllProblemsComeAtOnceAtTheirSettings) {
  PlanSettings settings;
  settings.planners.clear();
  settings.output = "";
  try {
    plan(settings, {});
    FAIL() << "no settings are settings";
  } catch (const config::ConfigError& error) {
    std::vector<std::string> at;
    for (const config::Problem& problem : error.problems) at.push_back(problem.at.file);
    EXPECT_EQ(at, (std::vector<std::string>{"--planner", "--cluster", "--model", "--output"}));
  }
}

TEST(Plan, SettingsOfRobustPlanningAreRefusedWithoutIt) {
  const support::TempFolder folder;
  config::Diagnostics problems;
  PlanSettings settings;
  config::describe_value(
      config::load_value_text("planner: [amp]\nspares: 2\nset: {a: 1}\nplan: [none.yaml]\n"
                              "days: 1\nprices: spot\nruntime: {monitor: timeout}\n",
                              "settings", problems),
      settings, problems);
  problems.raise();
  settings.job = small_job(folder);
  try {
    plan(settings, {});
    FAIL() << "nobody asks for a robust plan";
  } catch (const config::ConfigError& error) {
    std::set<std::string> at;
    for (const config::Problem& problem : error.problems) {
      EXPECT_EQ(problem.what, "is for --robust");
      at.insert(problem.at.file);
    }
    EXPECT_EQ(at, (std::set<std::string>{"--spares", "--set", "--plan", "--days", "--prices",
                                         "--runtime"}));
  }
}

TEST(Plan, WhoIsToRunThePlanSteersEverySearchThatCanBeSteered) {
  const support::TempFolder folder;
  write_text_file(folder / "pair.yaml", support::kCluster);
  RunSpec spec;  // As a study has it.
  spec.cluster.value = folder / "pair.yaml";
  spec.model.value = "gpt3_125m";
  spec.job.global_batch = 4;
  spec.job.sequence_length = 512;
  spec.executable_by = models::PlanRunner::megatron;
  const auto options = [&](const std::string& planner,
                           const std::map<std::string, std::string>& given) {
    spec.planner = PlannerChoice{{planner, {}}, given, {}};
    config::Diagnostics problems;
    const LoadedRun run = load_run(spec, "", support::library(), problems);
    problems.raise();
    return run.spec.planner->options;
  };
  using Options = std::map<std::string, std::string>;
  EXPECT_EQ(options("orrery", {}), (Options{{"target", "megatron"}}));
  EXPECT_EQ(options("orrery", {{"target", "executor"}}), (Options{{"target", "executor"}}));
  EXPECT_EQ(options("amp", {}), Options{}) << "it has no such option";
}

TEST(Simulate, AStepPlanSeesHardwareAndProfileAsPlansDo) {
  const support::TempFolder folder;
  SimulateSettings settings;
  settings.job = small_job(folder);
  write_text_file(folder / "plan.yaml", support::kPlan);
  config::Diagnostics problems;
  const ir::Plan plan = models::load_plan(folder / "plan.yaml", problems);
  problems.raise();
  const models::PlannedStep step{.planner = "",
                                 .phases = {{plan, {0, 512}, {{512, 512, 256, 128}}}}};
  settings.plans = {folder / "step.yaml"};
  write_text_file(settings.plans.front(), models::dump_step_plan(step));
  const auto seconds = [&] { return simulate(settings, {}).step->outcome.time.value; };
  const double before = seconds();
  settings.judge.hardware.scale_compute = 0.5;
  EXPECT_GT(seconds(), before);
  settings.judge.hardware = {};
  EXPECT_EQ(seconds(), before);
  ir::Profile profile;
  profile.name = "slow link";
  profile.links = {{"nvlink3", {}, Seconds{1}, BytesPerSecond{1e9}, {}}};
  profile.links.front().provenance.source = "test";
  settings.job.profile = folder / "profile.yaml";
  write_text_file(*settings.job.profile, models::dump_profile(profile));
  EXPECT_GT(seconds(), before + 1);
  const auto refused = [&] {
    try {
      simulate(settings, {});
    } catch (const config::ConfigError& error) {
      return error.problems.front().at.file;
    }
    return std::string();
  };
  settings.job.scale_profile = "A100-80GB";
  EXPECT_EQ(refused(), "--scale-profile");
  settings.job.scale_profile.reset();
  settings.judge.hardware.without = {{"1", {}}};
  EXPECT_EQ(refused(), settings.plans.front()) << "its plan uses what is left out";
  settings.judge.hardware = {};
  settings.judge.hardware.any_cluster = true;
  EXPECT_EQ(refused(), "--any-cluster");
}

TEST(Plan, ACanceledCallSaysSo) {
  const support::TempFolder folder;
  PlanSettings settings;
  settings.job = small_job(folder);
  settings.planners = {"exhaustive", "amp"};
  std::vector<std::string> notes;
  std::set<std::string> ends;
  Call call;
  call.on_note = [&](const std::string& text) { notes.push_back(text); };
  call.on_progress = [&](const Progress& progress) { ends.insert(progress.message); };
  call.cancellation.request();
  const PlanResult result = plan(settings, call);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(exit_status(result), kInterrupted);
  EXPECT_EQ(notes.size(), 1u);
  ASSERT_TRUE(result.planners[0].search.has_value());
  EXPECT_FALSE(result.planners[0].search->complete) << "the search heard of it in its own process";
  for (const RunReport& report : result.planners) {
    EXPECT_TRUE(report.looked_at_nothing()) << report.name;
    EXPECT_TRUE(ends.contains(report.name + ": not run")) << report.name;
  }
}

}  // namespace
}  // namespace orrery::experiments::plan_test
