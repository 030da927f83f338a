// Is the cache of answers what it should be: shared, bounded, harmless when it is broken, and of no
// influence on any result?
#include "experiments/study/disk_cache.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "experiments/study/sqlite.h"
#include "sim/flow/fork.h"
#include "tests/experiments/replay_support.h"

namespace orrery::experiments::disk_cache_test {
namespace {

using support::contents;
using support::replaced;
using support::TempFolder;

/// A cache with what it said about problems.
struct Told {
  explicit Told(const std::string& folder, std::int64_t most_bytes = DiskCache::kMostBytes)
      : cache(
            folder, [this](const std::string& problem) { problems.push_back(problem); },
            most_bytes) {}
  std::vector<std::string> problems;
  DiskCache cache;
};

std::string in_fork(const std::function<std::string()>& work) {
  const sim::ForkResult result = sim::run_forked(work);
  const auto* text = std::get_if<std::string>(&result);
  return text != nullptr ? *text : std::get<sim::ChildFailure>(result).message;
}

TEST(DiskCache, ProcessesShareAnswersEvenIfTheyForkWithAnOpenConnection) {
  const TempFolder folder;
  const DiskCache cache(folder / "new/folders");
  EXPECT_EQ(cache.find("a"), std::nullopt);
  cache.keep("a", std::string("one\0two", 7));
  EXPECT_EQ(in_fork([&] {
              cache.keep("b", "of the child");
              return cache.find("a").value_or("nothing");
            }),
            std::string("one\0two", 7));
  EXPECT_EQ(cache.find("b"), "of the child");
  EXPECT_EQ(DiskCache(folder / "new/folders").find("a"), std::string("one\0two", 7));
}

TEST(DiskCache, ManyProcessesKeepAndFindAtOnce) {
  const TempFolder folder;
  constexpr int kProcesses = 6, kAnswers = 200;
  std::vector<std::unique_ptr<sim::ForkedRun>> children;
  for (int p = 0; p < kProcesses; ++p) {
    children.push_back(std::make_unique<sim::ForkedRun>([&, p] {
      Told told(folder.path());
      for (int i = 0; i < kAnswers; ++i) {
        told.cache.keep(fmt::format("{} {}", p, i), fmt::format("answer {} {}", p, i));
        told.cache.keep(fmt::format("common {}", i), fmt::format("answer {}", i));
      }
      return told.problems.empty() ? std::string("kept") : told.problems.front();
    }));
  }
  for (const auto& child : children) EXPECT_EQ(std::get<std::string>(child->join()), "kept");
  const DiskCache cache(folder.path());
  for (int i = 0; i < kAnswers; ++i) {
    for (int p = 0; p < kProcesses; ++p) {
      ASSERT_EQ(cache.find(fmt::format("{} {}", p, i)), fmt::format("answer {} {}", p, i));
    }
    ASSERT_EQ(cache.find(fmt::format("common {}", i)), fmt::format("answer {}", i));
  }
}

TEST(DiskCache, WhatWasNotUsedForLongestMakesRoom) {
  const TempFolder folder;
  constexpr std::int64_t kMost = 1 << 20;
  constexpr int kAnswers = 5000;
  Told told(folder.path(), kMost);
  const auto answer = [](int i) { return std::string(1000, static_cast<char>('a' + i % 26)); };
  for (int i = 0; i < kAnswers; ++i) told.cache.keep(std::to_string(i), answer(i));
  EXPECT_TRUE(told.problems.empty()) << told.problems.front();
  EXPECT_LE(support::fs::file_size(told.cache.path()), static_cast<std::uintmax_t>(kMost));
  int found = 0, newer = 0;
  for (int i = 0; i < kAnswers; ++i) {
    const auto known = told.cache.find(std::to_string(i));
    if (!known) continue;
    EXPECT_EQ(*known, answer(i));
    ++found;
    newer += i >= kAnswers / 2 ? 1 : 0;
  }
  EXPECT_GT(found, 400);
  EXPECT_EQ(newer, found) << "old answers stayed while newer ones went";
  EXPECT_TRUE(told.cache.find(std::to_string(kAnswers - 1)).has_value());
  told.cache.keep("too large", std::string(kMost, 'x'));
  EXPECT_EQ(told.cache.find("too large"), std::nullopt);
}

TEST(DiskCache, AnAnswerWhoseBytesChangedIsNotFound) {
  const TempFolder folder;
  DiskCache(folder.path()).keep("key", "an answer");
  const std::string path = DiskCache(folder.path()).path();
  SqliteConnection(path).execute("UPDATE answers SET answer = CAST('12345678an ansWer' AS BLOB)");
  EXPECT_EQ(DiskCache(folder.path()).find("key"), std::nullopt);
}

/// Nothing works, nothing throws, and there is one note.
void expect_aside(Told& told, const std::string& why) {
  EXPECT_EQ(told.cache.find("a"), std::nullopt);
  told.cache.keep("a", "b");
  told.cache.keep("c", "d");
  EXPECT_EQ(told.cache.find("a"), std::nullopt);
  EXPECT_FALSE(told.cache.usable());
  ASSERT_EQ(told.problems.size(), 1u);
  EXPECT_NE(told.problems.front().find(why), std::string::npos) << told.problems.front();
}

TEST(DiskCache, WhatCannotBeUsedIsLeftAsideWithOneNote) {
  const TempFolder folder;
  {
    write_text_file(folder / "file", "");
    Told told(folder / "file");
    expect_aside(told, "Not a directory");
  }
  {
    Told told(folder / "damaged");
    support::fs::create_directories(folder / "damaged");
    write_text_file(told.cache.path(), std::string(5000, 'x'));
    expect_aside(told, "file is not a database");
  }
  {
    Told told(folder / "locked");
    EXPECT_TRUE(told.cache.usable());
    SqliteConnection other(told.cache.path());
    other.execute("PRAGMA locking_mode=EXCLUSIVE; BEGIN IMMEDIATE; DELETE FROM answers");
    told.cache.keep("a", "b");
    EXPECT_EQ(told.problems.size(), 1u);
    told.cache.keep("c", "d");
    EXPECT_EQ(told.problems.size(), 1u);
  }
  if (geteuid() != 0) {  // nothing is read-only to root
    support::fs::create_directories(folder / "read_only");
    support::fs::permissions(folder / "read_only",
                             support::fs::perms::owner_read | support::fs::perms::owner_exec);
    Told told(folder / "read_only");
    expect_aside(told, "unable to open");
  }
}

TEST(DiskCache, AFullDiskEndsTheCacheAndNotTheRun) {
  const TempFolder folder;
  const std::string said = in_fork([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit most{200'000, 200'000};
    setrlimit(RLIMIT_FSIZE, &most);
    Told told(folder.path());
    for (int i = 0; i < 1000; ++i) told.cache.keep(std::to_string(i), std::string(1000, 'x'));
    return fmt::format("{} {}", told.problems.size(), told.cache.find("0").has_value());
  });
  EXPECT_EQ(said, "1 false");
  Told later(folder.path());
  EXPECT_EQ(later.cache.find("0"), std::string(1000, 'x')) << "what was kept before is lost";
  EXPECT_TRUE(later.problems.empty());
}

/// Knows all but the files of whole runs, so that runs are done again from what is remembered of
/// their parts.
class OnlyParts final : public models::AnswerStore {
 public:
  explicit OnlyParts(std::shared_ptr<const models::AnswerStore> all) : all_(std::move(all)) {}
  std::optional<std::string> find(const std::string& key) const override {
    return key.starts_with("files of run") ? std::nullopt : all_->find(key);
  }
  void keep(const std::string& key, const std::string& answer) const override {
    all_->keep(key, answer);
  }

 private:
  std::shared_ptr<const models::AnswerStore> all_;
};

/// All files of an experiment's results: without a cache, with a new one, and with one that knows
/// every answer, with and without whole runs.
template <class Run>
void expect_equal_results(const support::ExperimentFolder& experiment, const std::string& results,
                          const Run& run) {
  RunnerOptions options = experiment.options(2);
  const auto each = [&](const std::string& name) {
    options.results_root = experiment.folder / name;
    run(options);
    return contents(options.results_root + "/" + results);
  };
  const auto off = each("off");
  const auto cache = std::make_shared<DiskCache>(experiment.folder / "cache");
  options.answers = cache;
  const auto cold = each("cold");
  const std::int64_t kept = SqliteConnection(cache->path()).number("SELECT count(*) FROM answers");
  EXPECT_GT(kept, 0);
  const auto warm = each("warm");
  EXPECT_EQ(SqliteConnection(cache->path()).number("SELECT count(*) FROM answers"), kept)
      << "the second time something was not remembered";
  options.answers = std::make_shared<OnlyParts>(cache);
  const auto parts = each("parts");
  EXPECT_EQ(SqliteConnection(cache->path()).number("SELECT count(*) FROM answers"), kept)
      << "a part of a run was not remembered";
  ASSERT_GT(off.size(), 5u);
  for (const auto* files : {&cold, &warm, &parts}) {
    ASSERT_EQ(files->size(), off.size());
    for (const auto& [name, text] : off) {
      if (name == "index.sqlite") continue;
      EXPECT_EQ(files->at(name), text) << name;
    }
  }
}

TEST(DiskCache, ChangesNoResultOfAReplayStudy) {
  const support::ReplayExperiment experiment(
      replaced(replaced(support::kStudy, "  nvme.interval: [60, 300]\n", ""),
               "{name: checkpoint_restart, label: nvme, options: {location: nvme}}", "all"));
  expect_equal_results(experiment, "tests/replay",
                       [&](const RunnerOptions& options) { experiment.run(options); });
}

TEST(DiskCache, ChangesNoResultOfASweepOfPlanners) {
  const support::Experiment experiment(
      "schema: orrery/study/1\n"
      "name: tests/pair\n"
      "command: plan\n"
      "settings:\n"
      "  cluster: pair.yaml\n"
      "  model: gpt3_125m\n"
      "  job: {global_batch: 4, sequence_length: 512}\n"
      "axes:\n"
      "  planner: [{name: megatron_grid}, {name: hexiscale}, {name: metis}, {name: autohet}]\n"
      "  simulation.jitter: [0, 0.1]\n");
  expect_equal_results(experiment, "tests/pair",
                       [&](const RunnerOptions& options) { experiment.sweep(options); });
}

}  // namespace
}  // namespace orrery::experiments::disk_cache_test
