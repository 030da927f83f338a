/// Mixed-length experiments as sweeps: do they go on where they stopped, and are their files
/// checked?
#include "experiments/study/mixed_length_study.h"

#include <gtest/gtest.h>

#include "experiments/study/execute.h"
#include "experiments/study/files.h"
#include "experiments/study/run_study.h"
#include "models/config/document.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::mixed_length_study_test {
namespace {

const std::string kCases = R"(axes:
  case:
    - name: short
      job: {sequence_length: 4096, lengths: [{longest: 1024, share: 0.5}, {longest: 8192, share: 0.5}]}
      axes:
        system: &systems
          - name: given
            planner: hotspa
            strategies:
              - {longest: 4096, pipelines: [{count: 4, tensor_parallel: 4, stages: 2, sequence: megatron}]}
          - name: impossible
            planner: hetu_b
            zero_stages: [0]
            strategies:
              - {longest: 4096, pipelines: [{count: 32}]}
    - name: github
      job: job.yaml
      axes: {system: *systems}
)";

std::string file_text(const std::string& axes) {
  return "schema: orrery/study/1\nname: study\ntitle: A study\ncommand: mixed_length\n"
         "settings: {cluster: hetu_32h20, model: hetu_32b, tokens_per_step: 16384, steps: 2}\n" +
         axes;
}

class MixedLengthStudy : public ::testing::Test {
 protected:
  MixedLengthStudy() {
    write_text_file(
        folder_ / "job.yaml",
        "schema: orrery/job/1\nglobal_batch: 4\nsequence_length: 4096\nlengths: github_like\n");
  }

  Study load(const std::string& text) {
    problems_ = {};
    const std::string path = folder_ / "manifest.yaml";
    write_text_file(path, text);
    return load_study(path, problems_);
  }
  std::vector<LoadedMixedLength> runs(const std::string& text) {
    const Study study = load(text);
    std::vector<LoadedMixedLength> runs;
    if (!problems_.empty()) return runs;
    for (const auto& [point, loaded] :
         load_mixed_lengths(study, expand(study, problems_), support::library(), problems_)) {
      runs.push_back(*loaded);
    }
    return runs;
  }
  std::string problem(const std::string& text) {
    runs(text);
    return problems_.empty() ? "" : config::to_string(problems_.problems().front());
  }
  StudyResult run(const Study& study) const {
    RunnerOptions options;
    options.results_root = folder_ / "results";
    options.workers = 2;
    return run_study(study, support::library(), options, {});
  }

  support::TempFolder folder_;
  config::Diagnostics problems_;
};

TEST_F(MixedLengthStudy, GoesOnWhereItStoppedAndEndsWithTheSameBytes) {
  const Study study = load(file_text(kCases));
  ASSERT_TRUE(problems_.empty()) << config::to_string(problems_.problems().front());
  const StudyResult first = run(study);
  ASSERT_TRUE(first.problems.empty()) << first.problems.front();
  EXPECT_EQ(first.done, 4);
  // Two steps of the two systems that have a plan.
  EXPECT_EQ(read_csv_rows(first.table).size(), 4U);
  const MixedLengthSummary second = mixed_length_summary(first.runs[1], first.results_folder);
  EXPECT_EQ(second.status, "infeasible");
  EXPECT_NE(second.reason.find("device memory"), std::string::npos);
  EXPECT_EQ(first.runs[2].inputs.at("lengths"), "github_like");
  const std::string runs = read_text_file(first.runs_csv);
  const std::string steps = read_text_file(first.table);
  const StudyResult nothing = run(study);
  EXPECT_EQ(nothing.present, 4);
  EXPECT_EQ(nothing.done, 0);
  // As after Ctrl-C: one run is missing.
  std::string missing;
  for (const auto& entry : support::fs::directory_iterator(first.results_folder + "/runs")) {
    if (support::fs::exists(entry.path() / "steps.csv")) missing = entry.path().string();
  }
  support::fs::remove_all(missing);
  const StudyResult rest = run(study);
  EXPECT_EQ(rest.present, 3);
  EXPECT_EQ(rest.done, 1);
  EXPECT_EQ(read_text_file(rest.runs_csv), runs);
  EXPECT_EQ(read_text_file(rest.table), steps);
}

TEST_F(MixedLengthStudy, CasesWithEqualLengthsSeeTheSameSequences) {
  const std::string twice = R"(axes:
  case:
    - {name: a, job: {sequence_length: 4096, lengths: github_like}}
    - {name: b, job: {sequence_length: 4096, lengths: commoncrawl_like}}
    - {name: c, job: {sequence_length: 2048, lengths: github_like}}
    - {name: d, job: job.yaml}
  system: [{name: s, planner: hetu_b, strategies: search}]
)";
  const std::vector<LoadedMixedLength> loaded = runs(file_text(twice));
  ASSERT_TRUE(problems_.empty()) << config::to_string(problems_.problems().front());
  ASSERT_EQ(loaded.size(), 4U);
  EXPECT_EQ(sequences_of(loaded[0], 0), sequences_of(loaded[3], 0));
  EXPECT_NE(sequences_of(loaded[0], 0), sequences_of(loaded[1], 0));
  EXPECT_NE(sequences_of(loaded[0], 0), sequences_of(loaded[0], 1));
  EXPECT_NE(sequences_of(loaded[0], 0), sequences_of(loaded[0], 0, true));
  // The shorter context cuts the same sequences.
  EXPECT_EQ(sequences_of(loaded[2], 0).front(),
            std::min<std::int64_t>(sequences_of(loaded[0], 0).front(), 2048));
  LoadedMixedLength by_batch = loaded[3];
  by_batch.run.tokens_per_step.reset();
  EXPECT_EQ(sequences_of(by_batch, 0).size(), 4U);
}

TEST_F(MixedLengthStudy, WhatIsWrongIsNamedAtItsPlace) {
  const auto with = [](const std::string& job, const std::string& system) {
    return file_text("axes: {case: [{name: a, job: " + job + "}], system: [" + system + "]}\n");
  };
  const std::string good = "{sequence_length: 4096, lengths: github_like}";
  const std::string search = "{name: s, planner: hetu_b, strategies: search}";
  EXPECT_EQ(problem(with(good, search)), "");
  EXPECT_EQ(problem(with(good, "{name: s, planner: packed_megatron, strategies: search}")), "");
  const auto says = [&](const std::string& text, const std::string& what) {
    const std::string found = problem(text);
    EXPECT_NE(found.find(what), std::string::npos) << found;
    EXPECT_NE(found.find("manifest.yaml:6:"), std::string::npos) << found;
  };
  says(with("{sequence_length: 4096}", search), "has no `lengths`");
  says(with("{sequence_length: 4096, lengths: githublike}", search), "did you mean 'github_like'");
  says(with("{sequence_length: 4000, lengths: github_like}", search), "no multiple of 256");
  says(with("none.yaml", search), "no such job file");
  says(with(good, "{name: s, planner: hetu_c, strategies: search}"), "did you mean 'hetu_");
  says(with(good, "{name: s, planner: hetu_b, strategies: []}"), "none");
  says(with(good,
            "{name: s, planner: hetu_b, strategies: [{longest: 1000, pipelines: [{count: 4}]}]}"),
       "longest 1000 is no multiple of 256");
  says(with(good, "{name: s, planner: hetu_b, strategies: search, search: {borders: [8, 4]}}"),
       "ascend");
  says(with(good, "{name: s, planner: hetu_b, strategies: search, search: {max_kinds: 9}}"),
       "must be from 1 to 3");
}

TEST_F(MixedLengthStudy, JobsWithLengthsAreRefusedWhereOneLengthIsSeen) {
  RunSpec spec;
  spec.cluster = {"hetu_32h20", {}};
  spec.model = {"hetu_32b", {}};
  spec.job = models::load_job(folder_ / "job.yaml", problems_);
  spec.job_at = {"job.yaml", 4, 10};
  const auto first = [&](const char* planner) -> std::string {
    spec.planner = PlannerChoice{{planner, {}}, {}, {}};
    config::Diagnostics problems;
    load_run(spec, "", support::library(), problems);
    return problems.empty() ? "" : config::to_string(problems.problems().front());
  };
  EXPECT_EQ(first("hexiscale"), "");
  for (const char* planner : {"metis", "amp", "megatron_grid"}) {
    EXPECT_EQ(first(planner).find("job.yaml:4:10: the job has `lengths`"), 0U) << first(planner);
    EXPECT_NE(first(planner).find("orrery mixed-length"), std::string::npos);
  }
}

}  // namespace
}  // namespace orrery::experiments::mixed_length_study_test
