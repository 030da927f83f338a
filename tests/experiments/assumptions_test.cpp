/// What manifests take from assumptions of a paper, from cases, and from changes to the hardware.
#include "experiments/study/assumptions.h"

#include <gtest/gtest.h>

#include "experiments/study/execute.h"
#include "experiments/study/hardware.h"
#include "experiments/study/study.h"
#include "models/config/document.h"
#include "models/spec/library.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::assumptions_test {
namespace {

using support::Experiment;
using support::replaced;

constexpr const char* kBase =
    "schema: orrery/assumptions/1\n"
    "paper: A. Author, 2024\n"
    "settings:\n"
    "  job: {global_batch: 8, sequence_length: 256}\n"
    "  hardware: {scale_network: 0.5}\n"
    "assumptions:\n"
    "  - {what: batch, value: 8 samples, source: homogeneous rows}\n";

std::string manifest_with(const std::string& more, const std::string& job = "{}") {
  return "schema: orrery/study/1\nname: tests/pair\ncommand: plan\nbase: assumptions.yaml\n"
         "settings:\n"
         "  cluster: pair.yaml\n  model: gpt3_125m\n  plan: plan.yaml\n  job: " +
         job + "\n" + more;
}

/// An experiment with that manifest over the assumptions above.
struct Based : Experiment {
  explicit Based(const std::string& more, const std::string& job = "{}") {
    write_text_file(folder / "assumptions.yaml", kBase);
    write_text_file(folder / "manifest.yaml", manifest_with(more, job));
  }
};

TEST(Base, LiesUnderTheRunOfTheManifest) {
  const Based experiment("", "{global_batch: 4}");
  const auto runs = experiment.expanded();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].spec.job.global_batch, 4);
  EXPECT_EQ(runs[0].spec.job.sequence_length, 256);
  EXPECT_EQ(runs[0].spec.hardware.scale_network, 0.5);
  EXPECT_EQ(experiment.load().assumptions,
            std::vector<std::string>{"batch: 8 samples (homogeneous rows)"});
}

TEST(Base, BelongsToTheHashOfTheManifest) {
  const Based experiment("");
  const std::string before = experiment.load().hash;
  write_text_file(experiment.folder / "assumptions.yaml",
                  replaced(kBase, "value: 8 samples", "value: eight samples"));
  EXPECT_NE(experiment.load().hash, before);
}

TEST(Base, ThatIsNotThereIsAProblemAtItsPlace) {
  Experiment experiment;
  write_text_file(experiment.folder / "manifest.yaml", manifest_with(""));
  config::Diagnostics diagnostics;
  load_study(experiment.folder / "manifest.yaml", diagnostics);
  ASSERT_EQ(diagnostics.problems().size(), 1u);
  EXPECT_EQ(diagnostics.problems()[0].at.line, 4u);
}

TEST(Cases, AreAnAxisOfTheirOwnThatExclusionsKnow) {
  const Based experiment(
      "axes:\n  case:\n    - {name: small, job.global_batch: 4}\n"
      "    - {name: large, job.global_batch: 16, job.sequence_length: 512}\n"
      "  simulation.jitter: [0, 0.1]\n"
      "exclude:\n  - {case: small, simulation.jitter: 0.1}\n");
  const auto runs = experiment.expanded();
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].axes[0], (std::pair<std::string, std::string>("case", "small")));
  EXPECT_EQ(runs[0].spec.job.global_batch, 4);
  EXPECT_EQ(runs[0].spec.job.sequence_length, 256);
  EXPECT_EQ(runs[2].spec.job.global_batch, 16);
  EXPECT_EQ(runs[2].spec.job.sequence_length, 512);
  EXPECT_EQ(runs[2].spec.simulation.jitter, 0.1);
}

TEST(Cases, NeedNamesThatDiffer) {
  for (const char* cases :
       {"[{job.global_batch: 4}]", "[{name: a}, {name: a}]", "[{name: a, modle: gpt3_125m}]"}) {
    const Based experiment(std::string("axes: {case: ") + cases + "}\n",
                           "{global_batch: 4, sequence_length: 512}");
    config::Diagnostics diagnostics;
    EXPECT_TRUE(expand(experiment.load(), diagnostics).empty());
    EXPECT_EQ(diagnostics.problems().size(), 1u) << cases;
  }
}

TEST(Cases, MayHaveAxesOfTheirOwn) {
  const Based experiment(
      "axes:\n  case:\n    - {name: one, axes: {simulation.jitter: [0.2, 0.3, 0.4]}}\n"
      "    - {name: two, axes: {job.sequence_length: [256, 512]}}\n"
      "  simulation.jitter: [0, 0.1]\n",
      "{global_batch: 4}");
  std::vector<std::string> texts;
  for (const auto& run : experiment.expanded()) {
    std::string text;
    for (const auto& [axis, value] : run.axes) text += value + " ";
    texts.push_back(text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"one 0.2 ", "one 0.3 ", "one 0.4 ", "two 256 0 ",
                                             "two 256 0.1 ", "two 512 0 ", "two 512 0.1 "}));
  EXPECT_EQ(axis_names(experiment.load()),
            (std::vector<std::string>{"case", "simulation.jitter", "job.sequence_length"}));
}

TEST(Options, OfAPlannerMultiplyItsRunsAlone) {
  const support::Experiment experiment(support::replaced(
      support::replaced(support::kManifest, "  plan: plan.yaml\n", ""),
      "  simulation.jitter: [0, 0.1]\n",
      "  planner: [{name: megatron_grid}, {name: hexiscale}]\n  hexiscale.rounds: [3, 4]\n"));
  const auto runs = experiment.expanded();
  ASSERT_EQ(runs.size(), 12u);
  EXPECT_TRUE(runs[0].spec.planner->options.empty());
  EXPECT_EQ(runs[2].spec.planner->options.at("rounds"), "3");
  EXPECT_EQ(runs[4].spec.planner->options.at("rounds"), "4");
  EXPECT_EQ(runs[4].axes.back(), (std::pair<std::string, std::string>("hexiscale.rounds", "4")));
}

TEST(Cases, HaveAColumnInTheResults) {
  const Based experiment(
      "axes: {case: [{name: near, hardware.scale_node: 1}, {name: far, hardware.scale_node: "
      "0.01}]}\n",
      "{global_batch: 4, sequence_length: 512}");
  EXPECT_EQ(experiment.sweep(experiment.options()).done, 2);
  const auto rows = experiment.rows();
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("case"), "near");
  EXPECT_EQ(rows[1].at("case"), "far");
  EXPECT_LT(std::stod(rows[0].at("iteration_time_s")), std::stod(rows[1].at("iteration_time_s")));
  EXPECT_NE(rows[0].at("cluster_hash"), rows[1].at("cluster_hash"));
}

TEST(Hardware, ChangesWhatItNamesAndNothingElse) {
  config::Diagnostics diagnostics;
  const models::Cluster before =
      models::load_cluster("hexiscale_240", support::library(), {}, diagnostics);
  diagnostics.raise();
  models::Cluster after = before;
  HardwareChanges changes;
  apply(changes, after, diagnostics);
  EXPECT_EQ(after.hash, before.hash);
  changes.efficiency[before.gpu_types[0].name] = {0.25, {}};
  changes.scale_efficiency = 0.5;
  changes.scale_network = 2;
  apply(changes, after, diagnostics);
  EXPECT_TRUE(diagnostics.empty());
  EXPECT_EQ(after.gpu_types[0].efficiency, 0.125);
  EXPECT_EQ(after.gpu_types[1].efficiency, 0.5 * before.gpu_types[1].efficiency);
  const std::string nic = before.nodes[0].nics[0].link;
  for (const auto& [name, link] : before.links) {
    bool between = false;
    for (const models::Node& node : before.nodes) {
      for (const models::Nic& each : node.nics) between = between || each.link == name;
    }
    EXPECT_EQ(after.links.at(name).bandwidth.value, (between ? 2 : 1) * link.bandwidth.value)
        << name;
    EXPECT_EQ(after.links.at(name).latency.value, link.latency.value);
  }
  EXPECT_NE(after.hash, before.hash);
}

TEST(Hardware, RefusesGpusThatTheClusterDoesNotHave) {
  config::Diagnostics diagnostics;
  models::Cluster cluster = models::load_cluster("a100_8", support::library(), {}, diagnostics);
  diagnostics.raise();
  HardwareChanges changes;
  changes.efficiency["A100"] = {0.5, {"m.yaml", 4, 2}};
  apply(changes, cluster, diagnostics);
  ASSERT_EQ(diagnostics.problems().size(), 1u);
  EXPECT_EQ(diagnostics.problems()[0].at.line, 4u);
}

}  // namespace
}  // namespace orrery::experiments::assumptions_test
