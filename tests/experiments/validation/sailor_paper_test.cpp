// The public Sailor data, where they lie: that they are read right. How far predictions are from
// measurements is a finding, not a test.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "experiments/validation/common/data.h"
#include "experiments/validation/sailor/data.h"
#include "experiments/validation/sailor/own_formula.h"
#include "experiments/validation/sailor/predict.h"
#include "models/spec/workload.h"
#include "tests/experiments/library.h"

namespace orrery::experiments::sailor_paper_test {
namespace {

class PublicSailorData : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = validation_data(".", "sailor");
    if (!std::filesystem::exists(folder_ + "/measured.json")) {
      GTEST_SKIP() << "no measured.json in " << folder_ << " (set ORRERY_DATA)";
    }
    config::Diagnostics diagnostics;
    data_ = read_sailor_data(folder_, diagnostics);
    for (const auto& problem : diagnostics.problems()) ADD_FAILURE() << config::to_string(problem);
  }
  std::string folder_;
  SailorData data_;
};

TEST_F(PublicSailorData, Has18PlansWithValuesAnd16Without) {
  int measured = 0;
  std::set<std::string> ids;
  for (const SailorPlan& plan : data_.plans) {
    measured += plan.measured.iteration.has_value();
    ids.insert(plan.id);
  }
  EXPECT_EQ(measured, 18);
  EXPECT_EQ(data_.plans.size(), 34U);
  EXPECT_EQ(ids.size(), 34U);
}

TEST_F(PublicSailorData, SailorsOwnFormulaReproducesItsEstimates) {
  int times = 0, memories = 0;
  for (const SailorPlan& plan : data_.plans) {
    const auto sailor = plan.others.find("SAILOR");
    if (sailor == plan.others.end()) continue;
    if (const auto& time = sailor->second.iteration) {
      EXPECT_NEAR(sailor_formula_time(plan, data_) / *time, 1, 1e-6) << plan.id;
      ++times;
    }
    if (const auto& memory = sailor->second.peak_memory) {
      EXPECT_NEAR(sailor_formula_memory(plan, data_) / *memory, 1, 1e-6) << plan.id;
      ++memories;
    }
  }
  EXPECT_EQ(times, 18);
  EXPECT_EQ(memories, 14);
}

TEST_F(PublicSailorData, OurWorkloadHasItsParametersAndActivations) {
  for (const SailorPlan& plan : data_.plans) {
    const models::Workload workload = sailor_workload(plan, data_);
    const int degree = plan.tensor_parallel();
    const bool profiled = head_is_profiled(data_, plan.model, degree);
    EXPECT_EQ(profiled, plan.model == "OPT-350") << plan.id;
    for (int layer = 0; layer < workload.size(); ++layer) {
      const models::Block& block = workload.block({layer});
      const auto& row = layer_memory(data_, plan.model, degree, layer);
      const bool head = layer + 1 == workload.size();
      if (head && !profiled) continue;
      double parameters = 0;
      for (const models::Parameter& parameter : block.parameters) {
        const auto elements = static_cast<double>(parameter.elements);
        parameters += parameter.split_length > 0 ? elements / degree : elements;
      }
      EXPECT_DOUBLE_EQ(parameters, row.parameters) << plan.id << " layer " << layer;
      if (head) continue;
      EXPECT_EQ(block.output_bytes, row.output) << plan.id << " layer " << layer;
    }
  }
}

TEST_F(PublicSailorData, EveryPlanIsPredicted) {
  const ir::Profile profile = sailor_profile(data_, folder_, true);
  for (const SailorPlan& plan : data_.plans) {
    const SailorPrediction prediction = predict_sailor(plan, data_, profile, support::library());
    EXPECT_GT(prediction.iteration.value, prediction.slowest_compute.value) << plan.id;
    EXPECT_LE(prediction.iteration_overlapped.value, prediction.iteration.value * (1 + 1e-9))
        << plan.id;
    EXPECT_LT(prediction.held, data_.nodes.at(plan.stages[0].replicas[0].gpu).memory) << plan.id;
  }
}

}  // namespace
}  // namespace orrery::experiments::sailor_paper_test
