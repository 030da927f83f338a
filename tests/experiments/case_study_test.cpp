/// HexiScale, section 3: what its public code prints for both plans of the case study.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "experiments/study/execute.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::case_study_test {
namespace {

/// Pipeline times by plan, as runs.csv has them, to four decimals.
std::vector<std::string> printed(const std::string& plan) {
  config::Diagnostics diagnostics;
  const Study study = load_study("experiments/hexiscale/case_study/manifest.yaml", diagnostics);
  diagnostics.raise();
  std::vector<std::string> times;
  for (const support::PlannedRun& run : support::planned_runs(study)) {
    if (run.spec.cost != CostModel::hexiscale_public_code || run.spec.plan->value != plan) continue;
    LoadedRun loaded = load_run(run.spec, study.folder, support::library(), diagnostics);
    diagnostics.raise();
    const RunOutcome outcome = Session(std::move(loaded)).execute(false, nullptr);
    for (const Seconds time : outcome.evaluation->pipeline_times) {
      times.push_back(fmt::format("{:.4f}", time.value));
    }
  }
  return times;
}

TEST(CaseStudy, PublicCodePrintsMegatronsPipelines) {
  EXPECT_EQ(printed("plans/megatron.yaml"), (std::vector<std::string>{"31.6208", "32.1739"}));
}

TEST(CaseStudy, PublicCodePrintsHexiscalesPipelines) {
  EXPECT_EQ(printed("plans/hexiscale.yaml"), (std::vector<std::string>{"19.1412", "20.4797"}));
}

}  // namespace
}  // namespace orrery::experiments::case_study_test
