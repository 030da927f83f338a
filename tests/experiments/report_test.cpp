// Does a report's page show what the plan, the log and the results say, and nothing else?
#include "experiments/report/report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "experiments/study/json.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::report_test {
namespace {

ReportSettings pair_settings(const support::TempFolder& folder) {
  write_text_file(folder / "pair.yaml", support::kCluster);
  write_text_file(folder / "plan.yaml", support::kPlan);
  ReportSettings settings;
  settings.what = {folder / "plan.yaml"};
  settings.output = folder / "report.html";
  settings.job.cluster = folder / "pair.yaml";
  settings.job.model = "gpt3_125m";
  settings.job.set_default("sequence_length", 512);
  return settings;
}

TEST(Report, APlanIsDrawnOnItsClusterWithItsTimelineAndMemory) {
  const support::TempFolder folder;
  const Page page = report_page(pair_settings(folder), {});
  ASSERT_EQ(page.plans.size(), 1u);
  const PlanPage& plan = page.plans[0];
  ASSERT_EQ(plan.nodes.size(), 1u);
  const double whole = plan.evaluation->iteration_time.value;
  double share = 0;
  for (const PageGpu& gpu : plan.nodes[0].gpus) {
    ASSERT_TRUE(gpu.pipeline.has_value());
    share += *gpu.compute / static_cast<double>(plan.nodes[0].gpus.size());
  }
  // Spans on the compute stream hold the optimizer step, too.
  const models::Breakdown& parts = plan.evaluation->breakdown;
  EXPECT_NEAR(share, (parts.compute + parts.optimizer).value / whole, 1e-6);

  ASSERT_TRUE(plan.timeline.has_value());
  EXPECT_EQ(plan.timeline->names.size(), plan.timeline->kinds.size());
  std::int64_t spans = 0;
  std::int64_t latest = 0;
  for (const PageRow& row : plan.timeline->rows) {
    std::istringstream text(row.spans);
    std::int64_t gap = 0, length = 0, name = 0, at = 0;
    while (text >> gap >> length >> name) {
      ++spans;
      EXPECT_GE(gap, 0) << "spans of a row do not overlap";
      ASSERT_LT(name, static_cast<std::int64_t>(plan.timeline->names.size()));
      at += gap + length;
    }
    latest = std::max(latest, at);
  }
  EXPECT_EQ(spans, plan.timeline->spans);
  EXPECT_NEAR(static_cast<double>(latest) * 1e-9, whole, 1e-6);

  ASSERT_FALSE(plan.memory.empty());
  double peak = 0;
  for (const PageMemory& memory : plan.memory) {
    peak = std::max(peak, *std::max_element(memory.allocated.begin(), memory.allocated.end()));
  }
  // The verdict is the larger of this and a closed form's.
  const double need = plan.evaluation->memory.by_gpu_type[0].need.value;
  EXPECT_LE(peak, need);
  EXPECT_GT(peak, 0.5 * need);
  EXPECT_TRUE(std::any_of(page.sources.begin(), page.sources.end(), [](const PageSource& source) {
    return source.what == "plan file" && source.hash == content_hash(support::kPlan);
  }));
  EXPECT_NE(page.command.find("--sequence-length 512"), std::string::npos) << page.command;
}

TEST(Report, AStudyTellsSettingsThatVaryFromResults) {
  const StudyPage page = study_page(
      {{"run", "model", "seed", "version", "job.pace", "label", "status", "time_s", "same", "note"},
       {"a1", "m", "1", "v", "fast", "f", "ok", "1.5", "3", "x"},
       {"a2", "m", "2", "v", "slow", "s", "ok", "", "3", "y"},
       {"a3", "m", "2", "v", "fast", "f", "ok", "2.5", "3", "y"}});
  EXPECT_EQ(page.axes, (std::vector<std::string>{"seed", "job.pace"}))
      << "the label says what the pace says";
  EXPECT_EQ(page.measures, std::vector<std::string>{"time_s"});
  EXPECT_EQ(page.rows.size(), 3u);
}

TEST(Report, AReplaysSlicesAreSharesOfTheirTime) {
  const support::TempFolder folder;
  write_text_file(folder / "buckets.csv",
                  "from_ns,to_ns,productive_ns,idle_ns\n0,100,75,25\n100,300,0,200\n");
  write_text_file(folder / "points.csv",
                  "at_ns,iterations,tokens,live,in_plan,samples_per_second\n"
                  "86400000000000,3,300,8,4,1\n");
  write_text_file(folder / "interruptions.csv",
                  "at_ns,cause,reason,rolled_back,stall_ns\n43200000000000,GPU,restart,2,5e9\n");
  const ReplayPage page = replay_page({{"policy", "p"}, {"seed", "7"}}, "", folder.path());
  EXPECT_EQ(page.buckets.at("productive"), (std::vector<double>{0.75, 0}));
  EXPECT_EQ(page.buckets.at("idle"), (std::vector<double>{0.25, 1}));
  EXPECT_EQ(page.at, std::vector<double>{1});
  EXPECT_EQ(page.lost_at, std::vector<double>{0.5});
  EXPECT_EQ(page.stalls, std::vector<double>{5});
}

TEST(Report, NamesCannotLeaveTheDataOfThePage) {
  const std::string html =
      with_data("<script type=\"application/json\">{\"orrery\":\"data\"}</script>",
                R"x({"title":"</script><script>alert(1)"})x");
  EXPECT_EQ(
      html,
      "<script type=\"application/json\">{\"title\":\"\\u003c/script>\\u003cscript>alert(1)\"}"
      "</script>");
  EXPECT_THROW(with_data("<html></html>", "{}"), std::runtime_error);
}

TEST(Report, WhatIsNoReportIsNamed) {
  const support::TempFolder folder;
  ReportSettings settings;
  settings.what = {folder.path()};
  settings.output = folder / "report.html";
  try {
    report_page(settings, {});
    FAIL() << "an empty folder has no results";
  } catch (const config::ConfigError& error) {
    EXPECT_EQ(error.problems[0].at.file, folder.path());
  }
}

}  // namespace
}  // namespace orrery::experiments::report_test
