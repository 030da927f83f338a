#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "experiments/study/study.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::study_test {
namespace {

using support::Experiment;
using support::PlannedRun;
using support::replaced;

std::vector<PlannedRun> expanded(const std::string& manifest) {
  return Experiment(manifest).expanded();
}

/// With planners instead of the plan, and another axis instead of the jitter.
std::string planners_manifest(const std::string& axis) {
  return replaced(replaced(support::kManifest, "  plan: plan.yaml\n", ""),
                  "  simulation.jitter: [0, 0.1]\n", "  " + axis + "\n");
}

std::string axes(const PlannedRun& run) {
  std::string text;
  for (const auto& [path, value] : run.axes) text += path + "=" + value + " ";
  return text + "seed=" + std::to_string(run.spec.seed);
}

TEST(Expand, GoesOverAxesByNameWithTheLastOneFastestThenSeeds) {
  const auto runs = expanded(support::kManifest);
  ASSERT_EQ(runs.size(), 8u);
  EXPECT_EQ(axes(runs[0]), "job.sequence_length=512 simulation.jitter=0 seed=1");
  EXPECT_EQ(axes(runs[1]), "job.sequence_length=512 simulation.jitter=0 seed=2");
  EXPECT_EQ(axes(runs[2]), "job.sequence_length=512 simulation.jitter=0.1 seed=1");
  EXPECT_EQ(axes(runs[4]), "job.sequence_length=1024 simulation.jitter=0 seed=1");
  EXPECT_EQ(runs[4].spec.job.sequence_length, 1024);
  EXPECT_EQ(runs[3].spec.simulation.jitter, 0.1);
  EXPECT_EQ(runs[3].spec.simulation.seed, 2);
}

TEST(Expand, HashesDifferBetweenRunsAndDoNotDependOnTheFolder) {
  const auto first = expanded(support::kManifest);
  const auto second = expanded(support::kManifest);
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_EQ(first[i].hash, second[i].hash);
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(first[i].hash, first[j].hash) << i << " " << j;
  }
}

TEST(Expand, AnAxisMayReplaceAWholeMap) {
  const auto runs = expanded(planners_manifest(
      "planner: [{name: megatron_grid}, {name: hexiscale, options: {rounds: 3}}]"));
  ASSERT_EQ(runs.size(), 8u);
  EXPECT_EQ(runs[0].spec.planner->name.value, "megatron_grid");
  EXPECT_EQ(runs[2].spec.planner->options.at("rounds"), "3");
  EXPECT_EQ(axes(runs[2]),
            "job.sequence_length=512 planner={name: hexiscale, options: {rounds: 3}} seed=1");
}

TEST(Expand, PlannersWithoutRandomNumbersRunOnce) {
  const auto runs = expanded(planners_manifest("planner.name: [megatron_grid, hexiscale]") +
                             "unseeded: [megatron_grid]\n");
  ASSERT_EQ(runs.size(), 6u);
  EXPECT_EQ(axes(runs[0]), "job.sequence_length=512 planner.name=megatron_grid seed=1");
  EXPECT_EQ(axes(runs[1]), "job.sequence_length=512 planner.name=hexiscale seed=1");
  EXPECT_EQ(axes(runs[2]), "job.sequence_length=512 planner.name=hexiscale seed=2");
}

TEST(Expand, AJobMayBeAFile) {
  const Experiment experiment(replaced(
      support::kManifest, "job: {global_batch: 4, sequence_length: 512}", "job: job.yaml"));
  write_text_file(experiment.folder / "job.yaml",
                  "schema: orrery/job/1\nglobal_batch: 4\nsequence_length: 256\n");
  Study study = experiment.load();
  std::erase_if(study.axes.entries,
                [](const auto& axis) { return axis.key == "job.sequence_length"; });
  const auto runs = support::planned_runs(study);
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_EQ(runs[0].spec.job.sequence_length, 256);
}

TEST(RunSpec, DumpReadsBackEqual) {
  const auto runs =
      expanded(planners_manifest("planner: [{name: hexiscale, options: {rounds: 3}}]"));
  for (const PlannedRun& run : runs) {
    config::Diagnostics diagnostics;
    const std::string dump = config::dump(run.spec);
    const auto read = config::load_text<RunSpec>(dump, "dump", diagnostics);
    diagnostics.raise();
    EXPECT_EQ(config::dump(read), dump);
  }
}

TEST(StudySchema, IsJsonAndKnowsTheSettingsOfEachCommand) {
  const auto schema = nlohmann::json::parse(study_schema());
  EXPECT_EQ(schema["properties"]["schema"]["const"], "orrery/study/1");
  for (const auto& rule : schema["allOf"]) {
    const auto& settings = rule["then"]["properties"]["settings"];
    EXPECT_FALSE(settings.contains("required"));
    const bool plan = rule["if"]["properties"]["command"]["const"] == "plan";
    EXPECT_EQ(settings["properties"].contains("planner") && plan, plan);
  }
  EXPECT_NE(study_reference().find("work_budget"), std::string::npos);
}

TEST(FormerSchemas, AreToldWhatToWrite) {
  for (const char* kind : {"manifest", "replay", "mixed_length", "steps", "twin"}) {
    const Experiment experiment(
        replaced(support::kManifest, "orrery/study/1", "orrery/" + std::string(kind) + "/1"));
    config::Diagnostics diagnostics;
    load_study(experiment.folder / "manifest.yaml", diagnostics);
    ASSERT_EQ(diagnostics.problems().size(), 1u) << kind;
    const std::string what = to_string(diagnostics.problems()[0]);
    EXPECT_NE(what.find("manifest.yaml:1:9: "), std::string::npos) << what;
    EXPECT_NE(what.find("write `schema: orrery/study/1`, `command: "), std::string::npos) << what;
  }
}

/// A change to the tiny manifest and the message that it must lead to.
struct Mistake {
  const char* name;
  const char* from;
  const char* to;
  std::string message;  ///< After the folder; "manifest.yaml:line:col: what".
};

class BadManifest : public ::testing::TestWithParam<Mistake> {};

TEST_P(BadManifest, IsNamedAtItsPlace) {
  const Mistake& mistake = GetParam();
  const Experiment experiment(replaced(support::kManifest, mistake.from, mistake.to));
  try {
    experiment.sweep(experiment.dry_run());
    FAIL() << "no problem was found";
  } catch (const config::ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find(experiment.folder / mistake.message), std::string::npos) << what;
    EXPECT_EQ(error.problems.size(), 1u) << what;
  }
  EXPECT_FALSE(support::fs::exists(experiment.folder / "results"));
}

INSTANTIATE_TEST_SUITE_P(
    All, BadManifest,
    ::testing::Values(
        Mistake{"UnknownKey", "seeds: [1, 2]", "seed: [1, 2]",
                "manifest.yaml:12:1: unknown key 'seed' (did you mean 'seeds'?)"},
        Mistake{"DuplicateKey", "seeds: [1, 2]", "seeds: [1]\nseeds: [2]", "manifest.yaml:13:1: "},
        Mistake{"MissingKey", "name: tests/pair\n", "", "manifest.yaml:1:1: missing key 'name'"},
        Mistake{"WrongType", "seeds: [1, 2]", "seeds: [1, two]", "manifest.yaml:12:12: "},
        Mistake{"NameLeavesResults", "tests/pair", "../pair",
                "manifest.yaml:2:7: '../pair' is no folder below results/"},
        Mistake{"UnknownCommand", "command: plan", "command: plann",
                "manifest.yaml:3:10: unknown command 'plann' (did you mean 'plan'?)"},
        Mistake{"AxisOfNoSetting", "job.sequence_length:", "jop.sequence_length:",
                "manifest.yaml:10:3: axis 'jop.sequence_length' is no setting of `plan`"},
        Mistake{"UnseededPlannerOfNoRun", "seeds: [1, 2]", "seeds: [1, 2]\nunseeded: [metis]",
                "manifest.yaml:13:12: no run of this study has 'metis'"},
        Mistake{"EmptyAxis", "[512, 1024]", "[]",
                "manifest.yaml:10:24: axis 'job.sequence_length' has no values"},
        Mistake{"EmptySeeds", "seeds: [1, 2]", "seeds: []",
                "manifest.yaml:12:8: `seeds` has no values"},
        Mistake{"AxisLeadsNowhere", "job.sequence_length:", "job.sequence_lenght:",
                "manifest.yaml:10:25: unknown key 'sequence_lenght'"},
        Mistake{"AxisValueOfWrongType", "[0, 0.1]", "[0, fast]", "manifest.yaml:11:26: "},
        Mistake{"AxisOutOfRange", "[0, 0.1]", "[0, 3]",
                "manifest.yaml:11:26: must be from 0 to 1, is 3"},
        Mistake{"SameValueTwice", "[0, 0.1]", "[0.1, 0.1]",
                "manifest.yaml:11:28: runs 1 and 3 are the same"},
        Mistake{"AxisWithTheColumnOfAResult", "  simulation.jitter: [0, 0.1]\n",
                "  Status: [{name: a}, {name: b}]\n",
                "manifest.yaml:11:3: axis 'Status': runs.csv has another column of this name"},
        Mistake{"OptionOfAPlannerOfNoRun",
                "  plan: plan.yaml\n  job: {global_batch: 4, sequence_length: 512}\naxes:\n",
                "  planner: {name: hexiscale}\n"
                "  job: {global_batch: 4, sequence_length: 512}\naxes:\n"
                "  hexiscale.rounds: [1, 2]\n  planner: [{name: megatron_grid}]\n",
                "manifest.yaml:10:22: axis 'hexiscale.rounds': no run has the planner 'hexiscale'"},
        Mistake{"EveryPointLeftOut", "seeds: [1, 2]",
                "seeds: [1, 2]\nexclude:\n"
                "  - {simulation.jitter: 0}\n  - {simulation.jitter: 0.1}",
                "manifest.yaml:15:5: this leaves out the last point of the axes"},
        Mistake{"PublishedFileLeavesTheRun", "seeds: [1, 2]", "seeds: [1, 2]\npublish: [../x.csv]",
                "manifest.yaml:13:10: '../x.csv' is no plain file name"},
        Mistake{"PublishedFileOfTheRunner", "seeds: [1, 2]", "seeds: [1, 2]\npublish: [runs.csv]",
                "manifest.yaml:13:10: 'runs.csv' is a file of the runner"},
        Mistake{"PlannerAndPlan", "  plan: plan.yaml\n",
                "  plan: plan.yaml\n  planner: {name: hexiscale}\n",
                "manifest.yaml:7:9: both `planner` and `plan` are given"},
        Mistake{"NeitherPlannerNorPlan", "  plan: plan.yaml\n", "",
                "manifest.yaml:5:3: neither `planner` nor `plan` is given"},
        Mistake{"UnknownPlanner", "plan: plan.yaml", "planner: {name: hexiscal}",
                "manifest.yaml:7:19: unknown planner 'hexiscal' (did you mean 'hexiscale'?)"},
        Mistake{"UnknownOption", "plan: plan.yaml",
                "planner: {name: hexiscale, options: {round: 3}}",
                "manifest.yaml:7:47: planner 'hexiscale' has no option 'round' (did you mean"},
        Mistake{"BadOption", "plan: plan.yaml",
                "planner: {name: hexiscale, options: {rounds: many}}",
                "manifest.yaml:7:48: option 'rounds': "},
        Mistake{"UnknownCluster", "pair.yaml", "hexiscale_241",
                "manifest.yaml:5:12: unknown cluster 'hexiscale_241' (did you mean"},
        Mistake{"NoClusterFile", "pair.yaml", "pear.yaml",
                "manifest.yaml:5:12: no such cluster file 'pear.yaml'"},
        Mistake{"UnknownModel", "gpt3_125m", "gpt3_126m",
                "manifest.yaml:6:10: unknown model 'gpt3_126m' (did you mean"},
        Mistake{"NoPlanFile", "plan: plan.yaml", "plan: none.yaml",
                "manifest.yaml:7:9: no such plan file"},
        Mistake{"NoProfileFile", "plan: plan.yaml", "plan: plan.yaml\n  profile: none.yaml",
                "manifest.yaml:8:12: no such profile file"},
        Mistake{"NoJobFile", "job: {global_batch: 4, sequence_length: 512}", "job: none.yaml",
                "manifest.yaml:8:8: no such job file"},
        Mistake{"NoPlotScript", "seeds: [1, 2]", "seeds: [1, 2]\nplot: none.py",
                "manifest.yaml:13:7: no such file"},
        Mistake{"NoPublishedValues", "seeds: [1, 2]", "seeds: [1, 2]\npublished: none.csv",
                "manifest.yaml:13:12: no such file"},
        Mistake{"BatchThatThePlanDoesNotDivide", "global_batch: 4", "global_batch: 5",
                "plan.yaml:3:3: pipelines: micro-batches add up to 4 samples, the job's batch is "
                "5"},
        Mistake{"UnknownStraggler", "  plan: plan.yaml",
                "  plan: plan.yaml\n  simulation: {stragglers: [{device: 9, slowdown: 2}]}",
                "manifest.yaml:5:12: simulation: no device 9"},
        Mistake{"NoiseOfAClosedForm", "  plan: plan.yaml",
                "  plan: plan.yaml\n  cost: hexiscale_paper",
                "manifest.yaml:5:12: simulation.jitter: a closed form simulates nothing"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(BadPlan, OfAnotherClusterIsRefusedWithBothHashes) {
  const Experiment experiment;
  write_text_file(experiment.folder / "plan.yaml",
                  std::string(support::kPlan) + "cluster_hash: 0123456789abcdef\n");
  config::Diagnostics diagnostics;
  const models::Cluster cluster =
      models::load_cluster(experiment.folder / "pair.yaml", support::library(), {}, diagnostics);
  try {
    experiment.sweep(experiment.dry_run());
    FAIL() << "no problem was found";
  } catch (const config::ConfigError& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("plan.yaml:8:15: "), std::string::npos) << what;
    EXPECT_NE(what.find("0123456789abcdef"), std::string::npos) << what;
    EXPECT_NE(what.find(models::layout_hash(cluster)), std::string::npos) << what;
  }
}

TEST(BadPlan, TruncatedIsRefused) {
  for (const std::size_t length : {30u, 60u, 100u, 150u}) {
    const Experiment experiment;
    write_text_file(experiment.folder / "plan.yaml", std::string(support::kPlan).substr(0, length));
    EXPECT_THROW(experiment.sweep(experiment.dry_run()), config::ConfigError) << length;
  }
}

}  // namespace
}  // namespace orrery::experiments::study_test
