#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "experiments/study/claims.h"
#include "experiments/study/run_study.h"
#include "sim/flow/fork.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::sweep_test {
namespace {

using support::Experiment;
using support::replaced;

/// The manifest with a planner instead of the plan, and this axis instead of the jitter.
std::string planned(const std::string& axis) {
  return replaced(
      replaced(support::kManifest, "  plan: plan.yaml\n", "  planner: {name: megatron_grid}\n"),
      "  simulation.jitter: [0, 0.1]\n", axis);
}

/// Children of this process.
std::vector<pid_t> children() {
  std::vector<pid_t> pids;
  const std::string self = std::to_string(getpid());
  std::ifstream file("/proc/" + self + "/task/" + self + "/children");
  for (pid_t pid; file >> pid;) pids.push_back(pid);
  return pids;
}

/// Sends a signal to the worker of the `nth` run that starts.
std::function<void(const Progress&)> strike(int nth, int signal_number) {
  return [nth, signal_number, started = 0](const Progress& progress) mutable {
    if (!progress.message.starts_with("started") || ++started != nth) return;
    const std::vector<pid_t> pids = children();
    ASSERT_FALSE(pids.empty());
    kill(pids.back(), signal_number);
  };
}

TEST(Sweep, FinishesAllRunsInTheOrderOfTheManifest) {
  const Experiment experiment;
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_EQ(result.total, 8);
  EXPECT_EQ(result.done, 8);
  EXPECT_EQ(result.failed, 0);
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  const auto rows = experiment.rows();
  ASSERT_EQ(rows.size(), 8u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].at("run"), result.runs[i].hash);
    EXPECT_EQ(rows[i].at("status"), "ok");
    EXPECT_GT(std::stod(rows[i].at("iteration_time_s")), 0);
    EXPECT_GT(std::stod(rows[i].at("mfu")), 0);
    EXPECT_EQ(rows[i].at("fits"), "true");
    EXPECT_EQ(rows[i].at("seed"), std::to_string(i % 2 + 1));
    EXPECT_EQ(support::names_in(experiment.results() + "/runs/" + rows[i].at("run")),
              (std::vector<std::string>{"effective.yaml", "log.txt", "plan.yaml",
                                        "profile_entries.txt", "summary.json"}));
  }
  EXPECT_EQ(support::names_in(experiment.results()),
            (std::vector<std::string>{"index.sqlite", "runs", "runs.csv", "timings.csv"}));
}

TEST(Sweep, SaysWhichPublishedFileNoRunWrote) {
  const Experiment experiment(
      replaced(support::kManifest, "seeds: [1, 2]", "seeds: [1]\npublish: [log.txt, none.csv]"));
  std::vector<std::string> notes;
  run_study(experiment.load(), support::library(), experiment.options(2),
            {.on_progress = {},
             .on_note = [&](const std::string& note) { notes.push_back(note); },
             .on_line = {},
             .cancellation = {}});
  EXPECT_EQ(notes, std::vector<std::string>{"publish: no run wrote 'none.csv'"});
  EXPECT_TRUE(support::fs::exists(experiment.results() + "/log.txt"));
}

TEST(Sweep, EverySettingIsWrittenWithTheResult) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  for (const auto& row : experiment.rows()) {
    const std::string folder = experiment.results() + "/runs/" + row.at("run");
    const std::string config = read_text_file(folder + "/effective.yaml");
    for (const char* line : {"\nwork_budget: 0\n", "\n  inner: automatic\n",
                             "\n  version: ", "\nsimgrid:\n", "network/model: "}) {
      EXPECT_NE(config.find(line), std::string::npos) << line << config;
    }
    EXPECT_NE(config.find("jitter: " + row.at("simulation.jitter") + "\n"), std::string::npos);
    EXPECT_NE(read_text_file(folder + "/profile_entries.txt").find("roofline: "),
              std::string::npos);
  }
}

TEST(Sweep, PartsOfTheIterationAddUpToItsTime) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  for (const auto& row : experiment.rows()) {
    double sum = 0;
    for (const char* part : {"compute_s", "tensor_parallel_s", "zero_s", "pipeline_s",
                             "data_parallel_s", "optimizer_s", "bubble_s"}) {
      sum += std::stod(row.at(part));
    }
    EXPECT_NEAR(sum, std::stod(row.at("iteration_time_s")), 2e-9);
  }
}

TEST(Sweep, GivesTheSameBytesOnOneWorkerAndOnTwo) {
  const Experiment one;
  const Experiment two;
  one.sweep(one.options(1));
  two.sweep(two.options(2));
  EXPECT_EQ(support::contents(one.results()), support::contents(two.results()));
}

TEST(Sweep, RepeatsNothingThatIsPresent) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  const auto before = support::contents(experiment.results());
  const StudyResult again = experiment.sweep(experiment.options(2));
  EXPECT_EQ(again.present, 8);
  EXPECT_EQ(again.done, 0);
  EXPECT_EQ(support::contents(experiment.results()), before);
}

TEST(Sweep, ChangedContentOfAFileMakesAnotherRun) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  write_text_file(experiment.folder / "pair.yaml",
                  replaced(support::kCluster, "ethernet-1GBps", "ethernet-0.7GBps"));
  EXPECT_EQ(experiment.sweep(experiment.dry_run()).present, 0);
  write_text_file(experiment.folder / "pair.yaml",
                  "# another comment\n" + std::string(support::kCluster));
  EXPECT_EQ(experiment.sweep(experiment.dry_run()).present, 8);
}

/// A sweep whose nth worker got the signal. A worker may be done before the signal reaches it: then
/// once more.
std::unique_ptr<Experiment> struck_sweep(int workers, int nth, int signal_number,
                                         StudyResult& result) {
  std::unique_ptr<Experiment> experiment;
  for (int attempt = 0; attempt < 20; ++attempt) {
    experiment = std::make_unique<Experiment>();
    result = experiment->sweep(experiment->options(workers), strike(nth, signal_number));
    if (result.failed == 1) return experiment;
  }
  ADD_FAILURE() << "no worker could be struck";
  return experiment;
}

class KilledWorker : public ::testing::TestWithParam<int> {};

TEST_P(KilledWorker, ResumesToTheBytesOfAnUninterruptedSweep) {
  const Experiment whole;
  whole.sweep(whole.options(1));
  StudyResult first;
  const auto hurt = struck_sweep(GetParam(), 3, SIGKILL, first);
  EXPECT_EQ(first.done, 7);
  ASSERT_EQ(first.problems.size(), 1u);
  EXPECT_NE(first.problems[0].find("signal 9"), std::string::npos) << first.problems[0];
  const auto rows = hurt->rows();
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[2].at("status"), "failed");
  EXPECT_NE(rows[2].at("reason").find("failed/" + rows[2].at("run") + "/log.txt"),
            std::string::npos);
  EXPECT_TRUE(support::fs::exists(hurt->results() + "/failed/" + rows[2].at("run") + "/log.txt"));
  EXPECT_FALSE(support::fs::exists(hurt->results() + "/.work"));

  const StudyResult second = hurt->sweep(hurt->options(GetParam()));
  EXPECT_EQ(second.present, 7);
  EXPECT_EQ(second.done, 1);
  EXPECT_TRUE(second.problems.empty());
  EXPECT_EQ(hurt->csv(), whole.csv());
  support::fs::remove(hurt->results() + "/failed");  // empty by now
  EXPECT_EQ(support::contents(hurt->results()), support::contents(whole.results()));
}

INSTANTIATE_TEST_SUITE_P(Workers, KilledWorker, ::testing::Values(1, 2));

TEST(Sweep, AKilledParentLeavesNothingHalfDone) {
  const Experiment whole;
  whole.sweep(whole.options(1));
  const Experiment hurt;
  sim::run_forked([&]() -> std::string {
    hurt.sweep(hurt.options(2), [](const Progress& progress) {
      if (progress.done == 3) kill(getpid(), SIGKILL);
    });
    return "";
  });
  EXPECT_GE(support::names_in(hurt.results() + "/runs").size(), 3u);
  const StudyResult rest = hurt.sweep(hurt.options(2));
  EXPECT_GE(rest.present, 3);
  EXPECT_EQ(rest.present + rest.done, 8);
  EXPECT_EQ(support::contents(hurt.results()), support::contents(whole.results()));
}

TEST(Sweep, LeavesWhatAnotherCallIsAboutToWrite) {
  const Experiment experiment;
  const std::string work = experiment.results() + "/.work/0123456789abcdef.";
  // Of a call that lives, before its worker has locked its log; of one that is gone.
  Claims other(experiment.results() + "/.work");
  other.enter();
  const std::string living = work + other.name();
  const std::string gone = work + "node-4711-1-1";
  for (const std::string& folder : {living, gone}) {
    make_folders(folder);
    write_text_file(folder + "/log.txt", "");
  }
  // Half a file of one that was killed.
  const std::string half = experiment.results() + "/runs.csv.tmp.99999999.0";
  write_text_file(half, "run,");
  support::fs::last_write_time(half, support::fs::last_write_time(half) - std::chrono::hours(1));
  EXPECT_EQ(experiment.sweep(experiment.options(1)).done, 8);
  EXPECT_FALSE(support::fs::exists(half));
  EXPECT_TRUE(support::fs::exists(living + "/log.txt"));
  EXPECT_FALSE(support::fs::exists(gone));
}

TEST(Sweep, CallsAtTheSameTimeShareTheRuns) {
  const Experiment whole;
  whole.sweep(whole.options(1));
  const Experiment shared;
  RunnerOptions join = shared.options(1);
  join.join = true;
  const pid_t helper = fork();
  if (helper == 0) {
    const StudyResult result = shared.sweep(join);
    _exit(result.problems.empty() ? result.done - result.elsewhere : 100);
  }
  const StudyResult result = shared.sweep(shared.options(1));
  int status = 0;
  waitpid(helper, &status, 0);
  EXPECT_EQ(result.done, 8);
  EXPECT_EQ(result.done - result.elsewhere + WEXITSTATUS(status), 8);
  EXPECT_EQ(support::contents(shared.results()), support::contents(whole.results()));
}

TEST(Sweep, AHelperFindsNothingToDoBesideACallThatDoesTheLastRun) {
  const Experiment experiment;
  RunnerOptions join = experiment.options(1);
  join.join = true;
  const std::string work = experiment.results() + "/.work";
  Claims other(work);
  other.enter();
  for (const auto& run : experiment.sweep(experiment.dry_run()).runs) {
    EXPECT_TRUE(other.take(run.hash));
  }
  const StudyResult result = experiment.sweep(join);
  EXPECT_EQ(result.done, 0);
  EXPECT_EQ(result.missing, 8);
  EXPECT_TRUE(result.problems.empty());
  EXPECT_FALSE(support::fs::exists(experiment.results() + "/runs.csv"));
}

TEST(Sweep, AnAbortedWorkerIsAFailedRowAndTheOthersGoOn) {
  StudyResult result;
  struck_sweep(2, 1, SIGABRT, result);
  EXPECT_EQ(result.done, 7);
  EXPECT_NE(result.problems.at(0).find("signal 6"), std::string::npos);
}

TEST(Sweep, CanceledItKeepsWhatIsDone) {
  const Experiment experiment;
  const Cancellation cancellation;
  const StudyResult result = experiment.sweep(
      experiment.options(1),
      [&](const Progress& progress) {
        if (progress.done == 2 && progress.message.starts_with("started")) cancellation.request();
      },
      cancellation);
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.done, 2);
  EXPECT_EQ(result.failed, 0);
  EXPECT_EQ(experiment.rows().size(), 2u);
  EXPECT_FALSE(support::fs::exists(experiment.results() + "/.work"));
  EXPECT_TRUE(children().empty());
  EXPECT_EQ(experiment.sweep(experiment.options(1)).done, 6);
}

/// Runs a sweep whose files may have at most `bytes`, as on a full disk.
std::vector<std::string> sweep_with_limit(const Experiment& experiment, RunnerOptions options,
                                          rlim_t bytes) {
  const auto delivered = sim::run_forked([&]() -> std::string {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string problems;
    for (const std::string& problem : experiment.sweep(options).problems) {
      problems += problem + "\n";
    }
    return problems;
  });
  std::vector<std::string> lines;
  if (const auto* failure = std::get_if<sim::ChildFailure>(&delivered)) {
    ADD_FAILURE() << failure->message;
    return lines;
  }
  const std::string& text = std::get<std::string>(delivered);
  for (std::size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1) {
    lines.push_back(text.substr(begin, text.find('\n', begin) - begin));
  }
  return lines;
}

TEST(FullDisk, OfTheParentKeepsEarlierResults) {
  const Experiment experiment;
  EXPECT_EQ(experiment.sweep(experiment.shard(1, 2)).done, 4);
  const auto before = support::contents(experiment.results());
  const auto problems = sweep_with_limit(experiment, experiment.options(), 700);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("cannot write"), std::string::npos) << problems[0];
  support::fs::remove(experiment.results() + "/.work");
  EXPECT_EQ(support::contents(experiment.results()), before);
}

TEST(FullDisk, OfAWorkerKeepsEarlierResultsAndEndsTheSweep) {
  const Experiment experiment;
  EXPECT_EQ(experiment.sweep(experiment.shard(1, 2)).done, 4);
  const std::string before = experiment.csv();
  RunnerOptions with_timelines = experiment.shard(2, 2);
  with_timelines.timelines = true;
  const auto limit = static_cast<rlim_t>(before.size() + 1000);
  const auto problems = sweep_with_limit(experiment, with_timelines, limit);
  ASSERT_FALSE(problems.empty());
  EXPECT_NE(problems[0].find("timeline.perfetto: File too large"), std::string::npos)
      << problems[0];
  EXPECT_EQ(experiment.csv(), before);
  EXPECT_EQ(support::names_in(experiment.results() + "/runs").size(), 4u);
  EXPECT_FALSE(support::fs::exists(experiment.results() + "/.work"));
  EXPECT_EQ(experiment.sweep(experiment.options()).done, 4);
}

TEST(Sweep, ShardsTogetherGiveTheWhole) {
  const Experiment whole;
  whole.sweep(whole.options(2));
  const Experiment parts;
  for (const int shard : {3, 1, 2}) {
    const StudyResult result = parts.sweep(parts.shard(shard, 3));
    EXPECT_EQ(result.total, shard == 3 ? 2 : 3);
    EXPECT_EQ(result.done, result.total);
  }
  EXPECT_EQ(support::contents(parts.results()), support::contents(whole.results()));
}

TEST(Sweep, ALimitIsTheMostThatOneCallDoes) {
  const Experiment experiment;
  RunnerOptions options = experiment.options(2);
  options.limit = 3;
  EXPECT_EQ(experiment.sweep(options).done, 3);
  EXPECT_EQ(experiment.rows().size(), 3u);
  const StudyResult second = experiment.sweep(options);
  EXPECT_EQ(second.present, 3);
  EXPECT_EQ(second.done, 3);
  EXPECT_EQ(experiment.sweep(options).done, 2);
}

TEST(Sweep, ADryRunWritesNothingAndEstimatesFromEarlierRuns) {
  const Experiment experiment;
  RunnerOptions options = experiment.options(2);
  options.dry_run = true;
  const StudyResult first = experiment.sweep(options);
  EXPECT_EQ(first.runs.size(), 8u);
  EXPECT_EQ(first.missing, 8);
  EXPECT_LT(first.estimate_seconds, 0);
  EXPECT_FALSE(support::fs::exists(experiment.folder / "results"));
  experiment.sweep(experiment.shard(1, 2));
  const StudyResult second = experiment.sweep(options);
  EXPECT_EQ(second.missing, 4);
  EXPECT_GE(second.estimate_seconds, 0);
}

TEST(Sweep, TimelinesAreAddedToRunsThatLackThem) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  const std::string before = experiment.csv();
  RunnerOptions options = experiment.options(2);
  options.timelines = true;
  EXPECT_EQ(experiment.sweep(options).done, 8);
  EXPECT_EQ(experiment.sweep(options).present, 8);
  EXPECT_EQ(experiment.csv(), before);
  for (const auto& row : experiment.rows()) {
    const std::string file = experiment.results() + "/runs/" + row.at("run") + "/timeline.perfetto";
    ASSERT_TRUE(support::fs::exists(file));
    EXPECT_GT(support::fs::file_size(file), 1000u);
  }
}

TEST(Sweep, APlannerThatFindsNothingIsARowWithAReason) {
  const Experiment experiment(replaced(planned(""), "gpt3_125m", "gpt3_175b"));
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_EQ(result.done, 4);
  EXPECT_EQ(result.failed, 0);
  for (const auto& row : experiment.rows()) {
    EXPECT_EQ(row.at("status"), "infeasible");
    EXPECT_FALSE(row.at("reason").empty());
    EXPECT_GT(std::stoi(row.at("rejected_by_memory")), 0);
    EXPECT_EQ(row.at("iteration_time_s"), "");
  }
}

TEST(Sweep, PlannersReportTheirEstimateAndTheSimulatorsTime) {
  const Experiment experiment(planned(""));
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_EQ(result.done, 4);
  for (const auto& row : experiment.rows()) {
    EXPECT_EQ(row.at("status"), "ok") << row.at("reason");
    EXPECT_GT(std::stod(row.at("planner_estimate_s")), 0);
    EXPECT_GT(std::stod(row.at("iteration_time_s")), 0);
    EXPECT_GT(std::stoi(row.at("plans_examined")), 0);
  }
}

TEST(Sweep, AnAxisOfWholePlannersFillsTheColumnsOfPlanners) {
  const Experiment experiment(
      planned("  planner: [{name: megatron_grid, options: {evaluate_top: 1}}, {name: alpa}]\n"));
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  EXPECT_EQ(result.done, 8);
  std::map<std::string, int> rows;
  for (const auto& row : experiment.rows()) ++rows[row.at("planner")];
  EXPECT_EQ(rows, (std::map<std::string, int>{{"alpa", 4}, {"megatron_grid", 4}}));
  EXPECT_TRUE(std::filesystem::exists(experiment.results() + "/index.sqlite"));
}

TEST(Sweep, TheIndexMirrorsRunsCsv) {
  const Experiment experiment;
  experiment.sweep(experiment.options(2));
  sqlite3* database = nullptr;
  const std::string path = experiment.results() + "/index.sqlite";
  ASSERT_EQ(sqlite3_open_v2(path.c_str(), &database, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  sqlite3_stmt* statement = nullptr;
  const char* sql = "SELECT count(*), typeof(mfu), typeof(run), sum(mfu) FROM runs";
  ASSERT_EQ(sqlite3_prepare_v2(database, sql, -1, &statement, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(statement), SQLITE_ROW);
  EXPECT_EQ(sqlite3_column_int(statement, 0), 8);
  EXPECT_STREQ(reinterpret_cast<const char*>(sqlite3_column_text(statement, 1)), "real");
  EXPECT_STREQ(reinterpret_cast<const char*>(sqlite3_column_text(statement, 2)), "text");
  double sum = 0;
  for (const auto& row : experiment.rows()) sum += std::stod(row.at("mfu"));
  EXPECT_DOUBLE_EQ(sqlite3_column_double(statement, 3), sum);
  sqlite3_finalize(statement);
  sqlite3_close(database);
}

/// `orrery simulate` of the plan at two lengths.
constexpr const char* kSimulations =
    "schema: orrery/study/1\n"
    "name: tests/pair\n"
    "command: simulate\n"
    "settings: {cluster: pair.yaml, model: gpt3_125m, plan: [plan.yaml]}\n"
    "axes:\n"
    "  sequence_length: [512, 1024]\n";

TEST(FunctionStudy, HasTheResultOfAnyFunctionInItsRows) {
  const Experiment experiment(kSimulations);
  const RunnerOptions options = experiment.options(2);  // Results are below the study's folder.
  const StudyResult result = experiment.sweep(options);
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  const auto rows = read_csv_rows(result.runs_csv);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].at("sequence_length"), "512");
  EXPECT_EQ(rows[0].at("plans.0.name"), "plan.yaml");
  const auto seconds = [&](std::size_t row) {
    return std::stod(rows[row].at("plans.0.evaluation.iteration_seconds"));
  };
  EXPECT_LT(seconds(0), seconds(1));
  const Experiment plans(replaced(support::kManifest, "  simulation.jitter: [0, 0.1]\n", ""));
  plans.sweep(plans.options(2));
  EXPECT_NEAR(seconds(0), std::stod(plans.rows()[0].at("iteration_time_s")), 1e-9);
  EXPECT_EQ(experiment.sweep(options).present, 2);
}

TEST(FunctionStudy, ChangedContentOfWhatItNamesMakesAnotherRun) {
  // Neither plan nor cluster lies in the folder of the study; the plan says what it is for.
  const support::TempFolder elsewhere;
  write_text_file(elsewhere / "pair.yaml", support::kCluster);
  const std::string made_for =
      "made_for:\n  cluster: pair.yaml\n  model: gpt3_125m\n"
      "  job: {schema: orrery/job/1, global_batch: 4, sequence_length: 512}\n";
  write_text_file(elsewhere / "plan.yaml", support::kPlan + made_for);
  const Experiment experiment(
      replaced(replaced(kSimulations, "cluster: pair.yaml, model: gpt3_125m, ", ""), "plan.yaml",
               elsewhere / "plan.yaml"));
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_EQ(result.done, 2);
  for (const CsvRow& row : experiment.rows()) EXPECT_EQ(row.at("status"), "ok");
  models::Library library = support::library();
  const auto present = [&] {
    return run_study(experiment.load(), library, experiment.dry_run(), {}).present;
  };
  EXPECT_EQ(present(), 2);
  library.gpus.at("A100-80GB").efficiency /= 2;
  EXPECT_EQ(present(), 0) << "a GPU of the library";
  library = support::library();
  const std::map<std::string, std::pair<std::string, std::string>> changes = {
      {"pair.yaml", {"nvlink3", "nvlink4"}}, {"plan.yaml", {"blocks: 0-6", "blocks: 0-7"}}};
  for (const auto& [name, change] : changes) {
    const std::string before = read_text_file(elsewhere / name);
    write_text_file(elsewhere / name, replaced(before, change.first, change.second));
    EXPECT_EQ(present(), 0) << name;
    write_text_file(elsewhere / name, before);
    EXPECT_EQ(present(), 2) << name;
  }
}

TEST(FunctionStudy, NamesProblemsOfSettingsAtTheirPlaces) {
  const Experiment experiment(
      replaced(kSimulations, "sequence_length: [512, 1024]", "cost: [simulator, guessed]"));
  try {
    experiment.sweep(experiment.dry_run());
    FAIL() << "no problem was found";
  } catch (const config::ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("manifest.yaml:6:21: "), std::string::npos)
        << error.what();
  }
}

TEST(Figure, IsWhatThePlotScriptPrints) {
  const Experiment experiment;
  write_text_file(experiment.folder / "manifest.yaml",
                  std::string(support::kManifest) + "plot: plot.py\n");
  write_text_file(experiment.folder / "plot.py",
                  "import sys\n"
                  "args = dict(zip(sys.argv[1::2], sys.argv[2::2]))\n"
                  "rows = open(args['--runs']).read().splitlines()\n"
                  "open(args['--out'] + '/figure.pdf', 'w').write('x')\n"
                  "print(args['--out'] + '/figure.pdf')\n"
                  "print(len(rows))\n");
  const StudyResult result = experiment.sweep(experiment.options(2));
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  ASSERT_EQ(result.figures.size(), 2u);
  EXPECT_EQ(result.figures[0], experiment.results() + "/figures/figure.pdf");
  EXPECT_EQ(result.figures[1], "9");
  RunnerOptions without = experiment.options();
  without.figure = false;
  EXPECT_TRUE(experiment.sweep(without).figures.empty());
}

TEST(Figure, ProblemsOfTheScriptAreReportedAndResultsKept) {
  const Experiment experiment;
  write_text_file(experiment.folder / "manifest.yaml",
                  std::string(support::kManifest) + "plot: plot.py\n");
  write_text_file(experiment.folder / "plot.py", "raise SystemExit('no such column')\n");
  const StudyResult broken = experiment.sweep(experiment.options(2));
  EXPECT_EQ(broken.done, 8);
  ASSERT_EQ(broken.problems.size(), 1u);
  EXPECT_NE(broken.problems[0].find("no such column"), std::string::npos);
  write_text_file(experiment.folder / "plot.py", "import module_that_nobody_has\n");
  const StudyResult missing = experiment.sweep(experiment.options(2));
  ASSERT_EQ(missing.problems.size(), 1u);
  EXPECT_NE(missing.problems[0].find("apt install python3-module_that_nobody_has"),
            std::string::npos)
      << missing.problems[0];
}

}  // namespace
}  // namespace orrery::experiments::sweep_test
