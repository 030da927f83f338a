/// Step plans as files: do they come back as they were, and is what does not fit refused?
#include "models/spec/step_plan.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>

#include "models/config/document.h"
#include "models/spec/library.h"
#include "tests/models/spec/random_plans.h"
#include "tests/models/spec/support.h"

namespace orrery::models::step_plan_test {
namespace {

PlannedStep any_step() {
  PlannedStep step;
  step.planner = *rc::gen::element<std::string>("", "hotspa", "hetu_b");
  const int phases = *rc::gen::inRange(1, 4);
  for (int i = 0; i < phases; ++i) {
    PlannedStep::Phase phase;
    phase.plan = ir::any_plan();
    phase.plan.optimizer = ir::OptimizerStart::together;
    phase.length_range = {*rc::gen::inRange<std::int64_t>(0, 1000),
                          *rc::gen::inRange<std::int64_t>(1000, 100000)};
    for (ir::Pipeline& pipeline : phase.plan.pipelines) {
      pipeline.micro_batch_size = 1;
      pipeline.micro_batches = std::min(pipeline.micro_batches, 40);
      phase.lengths.emplace_back();
      for (int m = 0; m < pipeline.micro_batches; ++m) {
        phase.lengths.back().push_back(*rc::gen::inRange<std::int64_t>(
            phase.length_range.shortest, phase.length_range.longest + 1));
      }
    }
    step.phases.push_back(std::move(phase));
  }
  return step;
}

RC_GTEST_PROP(StepPlanYaml, RoundTripsExactly, ()) {
  const PlannedStep step = any_step();
  config::Diagnostics problems;
  const auto back = config::load_text<PlannedStep>(dump_step_plan(step), "s.yaml", problems);
  if (!problems.empty()) RC_FAIL(config::to_string(problems.problems().front()));
  RC_ASSERT(dump_step_plan(back) == dump_step_plan(step));
  RC_ASSERT(back.planner == step.planner);
  RC_ASSERT(back.phases.size() == step.phases.size());
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    RC_ASSERT(back.phases[i].plan == step.phases[i].plan);
    RC_ASSERT(back.phases[i].lengths == step.phases[i].lengths);
    RC_ASSERT(back.phases[i].length_range == step.phases[i].length_range);
    RC_ASSERT(back.plans().phases[i].plan == step.phases[i].plan);
  }
}

constexpr const char* kHead = R"(schema: orrery/step_plan/1
phases:
  - length_range: {shortest: 256, longest: 4096}
    plan:
      schema: orrery/plan/1
      pipelines:
        - {micro_batches: 2, micro_batch_size: 1, stages: [{segments: [{blocks: 0-3, groups: [{devices: [0]}]}]}]}
)";

std::string problem(const std::string& lengths, std::string head = kHead) {
  config::Diagnostics problems;
  config::load_text<PlannedStep>(head + "    lengths: " + lengths + "\n", "s.yaml", problems);
  return problems.empty() ? "" : config::to_string(problems.problems().front());
}

TEST(StepPlanYaml, LengthsThatDoNotMatchThePlanAreRefusedAtTheirPlace) {
  EXPECT_EQ(problem("[[256, 4096]]"), "");
  EXPECT_EQ(problem("[]"), "s.yaml:8:14: 0 lists of lengths for 1 pipelines");
  EXPECT_EQ(problem("[[256]]"), "s.yaml:8:14: pipeline 0 has 2 micro-batches and 1 lengths");
  EXPECT_EQ(problem("[[256, 8192]]"),
            "s.yaml:8:14: pipeline 0 has a sequence of 8192 tokens, outside of 256 to 4096");
  std::string two = kHead;
  two.replace(two.find("micro_batch_size: 1"), 19, "micro_batch_size: 2");
  EXPECT_EQ(problem("[[256, 256]]", two),
            "s.yaml:8:14: pipeline 0 has 2 sequences in a micro-batch; lengths are of one");
  config::Diagnostics problems;
  config::load_text<PlannedStep>("schema: orrery/step_plan/1\nphases: []\n", "s.yaml", problems);
  EXPECT_EQ(config::to_string(problems.problems().front()), "s.yaml:2:9: the list is empty");
}

TEST(StepPlanYaml, StaggeredPhasesAreRefused) {
  std::string head = kHead;
  head.insert(head.find("      pipelines:"), "      optimizer: staggered\n");
  EXPECT_EQ(problem("[[256, 4096]]", head),
            "s.yaml:5:7: optimizer staggered: phases of a step follow one another on all ranks");
}

TEST(StepPlanYaml, IsToldFromAPlanByItsSchema) {
  EXPECT_TRUE(is_step_plan(file_with("step.yaml", "schema: orrery/step_plan/1\nphases: []\n")));
  EXPECT_FALSE(is_step_plan(file_with("plan.yaml", "schema: orrery/plan/1\npipelines: []\n")));
  EXPECT_FALSE(is_step_plan("/no/such/file.yaml"));
}

}  // namespace
}  // namespace orrery::models::step_plan_test
