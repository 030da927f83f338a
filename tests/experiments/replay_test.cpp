#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cmath>

#include "experiments/study/replay_session.h"
#include "experiments/study/replay_traces.h"
#include "models/base/ids.h"
#include "planners/recovery/catalog.h"
#include "sim/flow/fork.h"
#include "tests/experiments/replay_support.h"
#include "traces/csv.h"

namespace orrery::experiments::replay_test {
namespace {

using support::contents;
using support::kStudy;
using support::replaced;
using support::ReplayExperiment;

const std::string kWithoutAxis = replaced(kStudy, "  nvme.interval: [60, 300]\n", "");

std::int64_t whole(const CsvRow& row, const std::string& column) {
  return std::stoll(row.at(column));
}

TEST(ReplayStudy, RunsGoByPolicyThenPointThenSeed) {
  const ReplayExperiment experiment;
  const StudyResult result = experiment.run(experiment.options(2));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  const auto rows = experiment.rows();
  ASSERT_EQ(rows.size(), 6u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("status"), "ok") << rows[i].at("reason");
    EXPECT_EQ(rows[i].at("run"), result.runs[i].hash);
    EXPECT_EQ(rows[i].at("policy"), i < 2 ? "checkpoint_restart" : "nvme");
    EXPECT_EQ(rows[i].at("policy_name"), "checkpoint_restart");
    EXPECT_EQ(rows[i].at("seed"), std::to_string(i % 2 + 1));
    EXPECT_EQ(rows[i].at("nvme.interval"), i < 2 ? "" : i < 4 ? "60" : "300");
    EXPECT_EQ(
        support::names_in(experiment.results() + "/runs/" + rows[i].at("run")),
        (std::vector<std::string>{"buckets.csv", "effective.yaml", "interruptions.csv", "log.txt",
                                  "points.csv", "profile_entries.txt", "summary.json"}));
  }
}

TEST(ReplayStudy, BucketsSumToTheHorizonInNanoseconds) {
  const ReplayExperiment experiment;
  experiment.run(experiment.options(2));
  for (const CsvRow& row : experiment.rows()) {
    std::int64_t sum = 0;
    double hours = 0;
    for (std::size_t b = 0; b < sim::kBuckets; ++b) {
      const std::string name = sim::name_of(static_cast<sim::Bucket>(b));
      sum += whole(row, name + "_ns");
      hours += std::stod(row.at("gpu_hours." + name));
    }
    EXPECT_EQ(sum, whole(row, "horizon_ns"));
    EXPECT_EQ(whole(row, "horizon_ns"), 1800'000'000'000);
    hours += std::stod(row.at("gpu_hours.spare")) + std::stod(row.at("gpu_hours.absent"));
    EXPECT_NEAR(hours, 4 * 0.5, 1e-8);
  }
}

TEST(ReplayStudy, AllPoliciesSeeTheSameTraceOfASeed) {
  const ReplayExperiment experiment(replaced(
      kWithoutAxis, "{name: checkpoint_restart, label: nvme, options: {location: nvme}}", "all"));
  experiment.run(experiment.options(2));
  std::map<std::string, CsvRow> first;
  for (const CsvRow& row : experiment.rows()) {
    if (row.at("status") != "ok") continue;
    const auto [known, is_new] = first.emplace(row.at("seed"), row);
    if (is_new) continue;
    EXPECT_EQ(row.at("events"), known->second.at("events")) << row.at("policy");
    EXPECT_EQ(row.at("gpu_hours.absent"), known->second.at("gpu_hours.absent")) << row.at("policy");
    EXPECT_EQ(row.at("trace_hash"), known->second.at("trace_hash"));
  }
  ASSERT_EQ(first.size(), 2u);
  EXPECT_NE(first["1"].at("gpu_hours.absent"), first["2"].at("gpu_hours.absent"));
}

TEST(ReplayStudy, EveryPolicyOfTheCatalogRunsOrSaysWhyNot) {
  const ReplayExperiment experiment(
      replaced(replaced(kWithoutAxis,
                        "  policy: [checkpoint_restart, {name: checkpoint_restart, label: nvme, "
                        "options: {location: nvme}}]\n",
                        ""),
               "seeds: [1, 2]", "seeds: [1]"));
  const StudyResult result = experiment.run(experiment.options(2));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  const auto rows = experiment.rows();
  ASSERT_EQ(rows.size(), planners::recovery_catalog().size());
  for (const CsvRow& row : rows) {
    const bool runs = row.at("status") == "ok";
    EXPECT_EQ(row.at("reason").empty(), runs) << row.at("policy");
    if (!runs) {
      EXPECT_EQ(row.at("status"), "infeasible") << row.at("policy") << row.at("reason");
      EXPECT_EQ(row.at("iterations"), "");
    }
  }
}

TEST(ReplayStudy, EqualCasesAreReplayedOnceAndHaveARowEach) {
  const std::string rest =
      "      cluster: quad.yaml\n      model: gpt3_125m\n"
      "      job: {global_batch: 16, sequence_length: 512}\n"
      "      trace: {generator: restless.yaml}\n      horizon: 30 min\n";
  const ReplayExperiment experiment(replaced(kStudy, rest, rest + "    - name: again\n" + rest));
  const StudyResult result = experiment.run(experiment.options(4));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  EXPECT_EQ(result.total, 12);
  EXPECT_EQ(result.done, 6);
  EXPECT_EQ(result.present, 6);
  const auto rows = experiment.rows();
  ASSERT_EQ(rows.size(), 12u);
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rows[i].at("case"), "quad");
    EXPECT_EQ(rows[i + 6].at("case"), "again");
    EXPECT_EQ(rows[i + 6].at("run"), rows[i].at("run"));
    EXPECT_EQ(rows[i + 6].at("status"), "ok");
  }
}

TEST(ReplayStudy, GivesTheSameBytesOnOneWorkerAndOnTwo) {
  const ReplayExperiment one;
  const ReplayExperiment two;
  one.run(one.options(1));
  two.run(two.options(2));
  EXPECT_EQ(contents(one.results()), contents(two.results()));
}

TEST(ReplayStudy, AKilledReplayGoesOnToTheBytesOfAWholeOne) {
  const ReplayExperiment whole;
  whole.run(whole.options(1));
  const ReplayExperiment hurt;
  sim::run_forked([&]() -> std::string {
    hurt.run(hurt.options(2), [](const Progress& progress) {
      if (progress.done == 2) kill(getpid(), SIGKILL);
    });
    return "";
  });
  const auto kept = support::names_in(hurt.results() + "/runs");
  EXPECT_GE(kept.size(), 2u);
  EXPECT_LT(kept.size(), 6u);
  const StudyResult rest = hurt.run(hurt.options(2));
  EXPECT_EQ(as_size(rest.present), kept.size());
  EXPECT_EQ(rest.present + rest.done, 6);
  EXPECT_EQ(contents(hurt.results()), contents(whole.results()));
}

TEST(ReplayStudy, CanceledItKeepsWhatIsDone) {
  const ReplayExperiment experiment;
  const Cancellation cancellation;
  const StudyResult result = experiment.run(
      experiment.options(1),
      [&](const Progress& progress) {
        if (progress.done == 2 && progress.message.starts_with("started")) cancellation.request();
      },
      cancellation);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.done, 2);
  EXPECT_EQ(experiment.rows().size(), 2u);
  EXPECT_EQ(experiment.run(experiment.options(1)).done, 4);
}

TEST(ReplayStudy, ShardsTogetherGiveTheWhole) {
  const ReplayExperiment whole;
  whole.run(whole.options(2));
  const ReplayExperiment parts;
  for (const int shard : {2, 1}) {
    EXPECT_EQ(parts.run(parts.shard(shard, 2)).done, 3);
  }
  EXPECT_EQ(contents(parts.results()), contents(whole.results()));
}

TEST(ReplayStudy, AChangedTraceMakesOtherRuns) {
  const ReplayExperiment experiment;
  experiment.run(experiment.options(2));
  EXPECT_EQ(experiment.run(experiment.dry_run()).present, 6);
  write_text_file(experiment.folder / "restless.yaml",
                  replaced(support::kGenerator, "leaves_per_hour: 4", "leaves_per_hour: 5"));
  EXPECT_EQ(experiment.run(experiment.dry_run()).present, 0);
}

TEST(ReplayStudy, WhatGpusDrawCountsWhereItDecidesPlans) {
  LoadedReplayCase loaded;
  const auto hash = [&](const std::string& options, const std::string& power) {
    loaded.cluster.power_hash = power;
    ReplayRun run;
    run.policy.value.name = "checkpoint_restart";
    run.policy.value.options = {{"planner", "orrery"}, {"planner_options", options}};
    return replay_identity(loaded, run).hash();
  };
  EXPECT_EQ(hash("budget=5", "400 W"), hash("budget=5", "700 W"));
  for (const char* options : {"budget=5,objective=energy", "objective=frontier"}) {
    EXPECT_NE(hash(options, "400 W"), hash(options, "700 W")) << options;
  }
}

TEST(ReplayStudy, ProblemsAreNamedAtTheirPlaces) {
  struct Mistake {
    const char* from;
    const char* to;
    const char* says;
  };
  for (const Mistake& mistake :
       {Mistake{"policy: [checkpoint_restart", "policy: [checkpoint_restrat",
                "manifest.yaml:12:12: unknown policy 'checkpoint_restrat' (did you mean "
                "'checkpoint_restart'?)"},
        Mistake{"location: nvme", "locatoin: nvme", "has no option 'locatoin'"},
        Mistake{"location: nvme", "location: tape", "option 'location'"},
        Mistake{"nvme.interval", "nvmm.interval",
                "manifest.yaml:13:3: axis 'nvmm.interval' is no setting of `replay`"},
        Mistake{"generator: restless.yaml", "file: none.csv", "no such trace file"},
        Mistake{"trace: {generator: restless.yaml}", "trace: {}",
                "a trace has either `file` or `generator`"},
        Mistake{"      horizon: 30 min\n", "", "a generated trace needs a horizon"},
        Mistake{"      horizon: 30 min\n", "      horizon: 30 min\n      nodes: 3\n",
                "`nodes` is 3, the cluster has 2"},
        Mistake{"      horizon: 30 min\n",
                "      horizon: 30 min\n      runtime: {monitor: nobody}\n", "nobody"},
        Mistake{"seeds: [1, 2]", "seeds: [1, 1]", "runs 1 and 2 are the same"}}) {
    const std::string problems =
        ReplayExperiment(replaced(kStudy, mistake.from, mistake.to)).problems();
    EXPECT_NE(problems.find(mistake.says), std::string::npos) << mistake.to << ": " << problems;
  }
}

TEST(ReplayStudy, ASettingForAllRunsIsSetOverCasesAndAxes) {
  Study study = ReplayExperiment().load();
  study.set("horizon", config::Value::scalar("10 min"));
  study.set_axis("policy", {config::Value::scalar("torchft")});
  study.drop_option_axes({});
  config::Diagnostics diagnostics;
  const auto points = expand(study, diagnostics);
  ASSERT_EQ(points.size(), 2u);
  EXPECT_EQ(points[0].settings.find("horizon")->text, "10 min");
  EXPECT_EQ(points[0].settings.find("policy")->text, "torchft");
}

TEST(ReplayStudy, ACaseWithoutItsDataIsSkippedAndNamed) {
  const ReplayExperiment experiment(
      replaced(kStudy, "generator: restless.yaml", "file: $ORRERY_DATA/no/such/trace.csv"));
  const StudyResult result = experiment.run(experiment.options());
  EXPECT_EQ(result.total, 0);
  ASSERT_EQ(result.skipped.size(), 1u);
  EXPECT_NE(result.skipped[0].find("no/such/trace.csv is not there"), std::string::npos);
}

TEST(ReplayStudy, ATraceFileIsReplayedAsItIs) {
  const ReplayExperiment experiment(
      replaced(replaced(kStudy, "generator: restless.yaml", "file: trace.csv"), "seeds: [1, 2]",
               "seeds: [0]"));
  write_text_file(experiment.folder / "trace.csv",
                  "# schema: orrery/trace/1\n# horizon: 30 min\n# nodes: a{0..1} A100-80GB x2\n"
                  "time,kind,scope,cause\n600,fail,node:a1,test\n1200,repair,node:a1,test\n");
  const StudyResult result = experiment.run(experiment.options(2));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  for (const CsvRow& row : experiment.rows()) {
    EXPECT_EQ(row.at("events"), "2");
    EXPECT_NEAR(std::stod(row.at("gpu_hours.absent")), 2 * 600 / 3600.0, 1e-9);
  }
}

TEST(ReplayStudy, ATraceWithoutNodesHasNoTokensAndIsNoFaultOfThePolicy) {
  const std::string study =
      replaced(replaced(kWithoutAxis, "generator: restless.yaml", "file: trace.csv"),
               "seeds: [1, 2]", "seeds: [0]");
  for (const char* model : {"gpt3_125m", "gpt3_175b"}) {
    const ReplayExperiment experiment(replaced(study, "gpt3_125m", model));
    write_text_file(experiment.folder / "trace.csv",
                    "# schema: orrery/trace/1\n# horizon: 30 min\n# nodes: a{0..1} A100-80GB x2\n"
                    "time,kind,scope,cause\n0,fail,node:a0,test\n0,fail,node:a1,test\n");
    const StudyResult result = experiment.run(experiment.options(2));
    EXPECT_TRUE(result.problems.empty()) << result.problems.front();
    const auto rows = experiment.rows();
    ASSERT_EQ(rows.size(), 2u);
    for (const CsvRow& row : rows) {
      if (model == std::string("gpt3_175b")) {  // Four GPUs do not hold it.
        EXPECT_EQ(row.at("status"), "infeasible");
        continue;
      }
      EXPECT_EQ(row.at("status"), "ok") << row.at("reason");
      EXPECT_EQ(row.at("tokens"), "0");
      EXPECT_EQ(row.at("idle_ns"), row.at("horizon_ns"));
      EXPECT_FALSE(row.at("first_plan_problem").empty());
    }
  }
}

}  // namespace
}  // namespace orrery::experiments::replay_test
