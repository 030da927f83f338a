#include "planners/kit/ranking.h"

#include <gtest/gtest.h>

#include <atomic>

#include "planners/kit/plan_parts.h"
#include "tests/planners/support.h"

namespace orrery::planners::ranking_test {
namespace {

/// A plan on `devices` devices; one device of 4 GiB does not hold the model.
ir::Plan plan_on(const World& world, int devices) {
  ir::Plan plan;
  ir::Pipeline chain;
  chain.micro_batches = 32;
  int first = 0;
  for (int d = 0; d < devices; ++d) {
    const int layers = (d + 1) * 12 / devices - first;
    ir::Segment segment = segment_of_layers(world.workload, first, layers);
    first += layers;
    segment.groups = {{{DeviceId{d}}}};
    chain.stages.push_back({{segment}});
  }
  plan.pipelines = {chain};
  return plan;
}

const World& world() {
  static const World result(make_cluster({{"X", 300, 4, 4, 200, 1}}, 5), small_model(12), 32, 1024);
  return result;
}

/// Times by number of stages, so that tests decide who is fastest.
class Judge final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    ++asked;
    models::Evaluation result;
    const auto stages = static_cast<int>(plan.pipelines.front().stages.size());
    result.iteration_time = Seconds{stages == fastest ? 1.0 : 10.0};
    if (stages == too_large) {
      result.memory.by_gpu_type = {{"X", DeviceId{0}, 0, 0, 3_GiB, 2_GiB}};
    }
    return result;
  }
  std::string name() const override { return "judge"; }
  mutable int asked = 0;
  int fastest = 0;
  int too_large = 0;
};

PlannerInput input(const Judge& judge) {
  return {world().cluster, world().topology,       world().workload, world().job, world().profile,
          judge,           world().input().devices};
}

/// Offers plans on 1 to 4 devices with estimates 1 to 4.
void offer_all(Ranking& ranking) {
  for (int d = 4; d >= 1; --d) {
    ranking.offer(Seconds{static_cast<double>(d)}, plan_on(world(), d),
                  std::to_string(d) + " devices");
  }
}

const models::Infeasible kNothing{"nothing", "no offer"};

TEST(Ranking, TheBestEstimateThatFitsWinsAndTheRestIsExplained) {
  const Judge judge;
  const PlannerInput in = input(judge);
  Ranking ranking(in);
  offer_all(ranking);
  EXPECT_EQ(ranking.best(), Seconds{1});
  const PlannerResult result = ranking.finish("test", 1, {}, kNothing);
  EXPECT_EQ(judge.asked, 0);
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  const auto& plan = std::get<ir::Plan>(result.outcome);
  EXPECT_TRUE(world().verdict(plan).fits());
  EXPECT_EQ(plan.planner, "test");
  EXPECT_FALSE(world().verdict(plan_on(world(), 1)).fits());
  ASSERT_EQ(result.report.constraints.size(), 1u);
  const ConstraintCost& memory = result.report.constraints.front();
  EXPECT_EQ(memory.rejected, result.report.rejected_by_memory);
  EXPECT_EQ(memory.best_without, Seconds{1});
  EXPECT_EQ(memory.witness.rfind("1 devices: stage 0", 0), 0u) << memory.witness;
  const auto devices = static_cast<double>(plan.pipelines.front().stages.size());
  EXPECT_EQ(*result.report.estimate, Seconds{devices});
  EXPECT_EQ(result.report.rejected_by_memory, static_cast<int>(devices) - 1);
  EXPECT_EQ(result.report.runners_up.size() + static_cast<std::size_t>(devices), 4u);
}

TEST(Ranking, TheEvaluatorChoosesAmongTheFirst) {
  Judge judge;
  judge.fastest = 4;
  const PlannerInput in = input(judge);
  Ranking all(in);
  offer_all(all);
  const PlannerResult result = all.finish("test", 0, {}, kNothing);
  EXPECT_EQ(result.report.chosen, "4 devices");
  ASSERT_FALSE(result.report.runners_up.empty());
  EXPECT_EQ(*result.report.runners_up.front().evaluated, Seconds{10});
  EXPECT_EQ(*result.report.estimate, Seconds{4});
}

TEST(Ranking, WhatTheEvaluatorRefusesIsNotReturned) {
  Judge judge;
  judge.fastest = 4;
  judge.too_large = 4;
  const PlannerInput in = input(judge);
  Ranking ranking(in);
  offer_all(ranking);
  const PlannerResult result = ranking.finish("test", 0, {}, kNothing);
  EXPECT_NE(result.report.chosen, "4 devices");
  Ranking only(in);
  only.offer(Seconds{1}, plan_on(world(), 4), "four");
  const PlannerResult none = only.finish("test", 0, {}, kNothing);
  ASSERT_TRUE(std::holds_alternative<models::Infeasible>(none.outcome));
  EXPECT_NE(std::get<models::Infeasible>(none.outcome).witness.find("as the evaluator counts"),
            std::string::npos);
}

TEST(Ranking, StrataTakeTurnsWithOneNumberOfJudgedPlans) {
  Judge judge;
  judge.fastest = 2;
  const PlannerInput in = input(judge);
  Ranking one(in);
  Ranking two(in);
  for (int i = 1; i <= 6; ++i) {
    one.offer(Seconds{1.0 * i}, plan_on(world(), 4), "four");
    two.offer(Seconds{1.0 * i}, plan_on(world(), 4), "four");
  }
  one.offer(7_s, plan_on(world(), 2), "two");
  two.offer(7_s, plan_on(world(), 2), "two", 1);
  two.offer(8_s, plan_on(world(), 2), "two again", 1);
  ASSERT_TRUE(world().verdict(plan_on(world(), 2)).fits());
  EXPECT_EQ(one.finish("test", 2, {}, kNothing).report.chosen, "four");
  EXPECT_EQ(judge.asked, 2);
  const SearchReport report = two.finish("test", 2, {}, kNothing).report;
  EXPECT_EQ(report.chosen, "two");
  EXPECT_EQ(judge.asked, 2 + 2) << "a stratum more is not a judgment more";
  EXPECT_EQ(report.judged, 2);
  EXPECT_EQ(*report.own_choice, Seconds{10}) << "alone, the planner returns its best estimate";
}

TEST(Ranking, APlanOfTwoStrataIsJudgedOnce) {
  Judge judge;
  judge.fastest = 2;
  const PlannerInput in = input(judge);
  Ranking ranking(in);
  for (const int stratum : {0, 1}) {
    ranking.offer(1_s, plan_on(world(), 4), "four", stratum);
    ranking.offer(2_s, plan_on(world(), 3), "three", stratum);
    ranking.offer(3_s, plan_on(world(), 2), "two", stratum);
  }
  const PlannerResult result = ranking.finish("test", 3, {}, kNothing);
  EXPECT_EQ(judge.asked, 3);
  EXPECT_EQ(result.report.chosen, "two");
}

TEST(Ranking, AChoiceOfItsOwnThatTheEvaluatorRefusesIsStillTimed) {
  Judge judge;
  judge.too_large = 4;
  const PlannerInput in = input(judge);
  Ranking ranking(in);
  ranking.offer(1_s, plan_on(world(), 4), "four");
  ranking.offer(2_s, plan_on(world(), 3), "three");
  const SearchReport report = ranking.finish("test", 2, {}, kNothing).report;
  EXPECT_EQ(report.chosen, "three");
  EXPECT_EQ(report.judged, 1);
  EXPECT_EQ(*report.own_choice, Seconds{10});
}

TEST(Ranking, KeepsTheBestAndOfEqualOnesTheEarlier) {
  const Judge judge;
  const PlannerInput in = input(judge);
  Ranking ranking(in, 2);
  ranking.offer(5_s, plan_on(world(), 4), "a");
  ranking.offer(5_s, plan_on(world(), 4), "b");
  EXPECT_FALSE(ranking.wants(5_s));
  ranking.offer(5_s, plan_on(world(), 4), "c");
  ranking.offer(4_s, plan_on(world(), 3), "d");
  ranking.offer(6_s, plan_on(world(), 4), "e");
  const PlannerResult result = ranking.finish("test", 1, {}, kNothing);
  EXPECT_EQ(result.report.chosen, "d");
  ASSERT_EQ(result.report.runners_up.size(), 1u);
  EXPECT_EQ(result.report.runners_up.front().what, "a");
}

TEST(Ranking, WithoutOffersItSaysWhatThePlannerSays) {
  const Judge judge;
  const PlannerInput in = input(judge);
  const PlannerResult result = Ranking(in).finish("test", 1, {}, kNothing);
  EXPECT_EQ(std::get<models::Infeasible>(result.outcome).constraint, "nothing");
}

TEST(Ranking, CtrlCKeepsTheBestThatFits) {
  const Judge judge;
  const std::atomic<bool> canceled = true;
  PlannerInput in = input(judge);
  in.canceled = &canceled;
  Ranking ranking(in);
  offer_all(ranking);
  const PlannerResult result = ranking.finish("test", 0, {}, kNothing);
  EXPECT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  EXPECT_EQ(judge.asked, 1);
  EXPECT_FALSE(result.report.complete);
}

}  // namespace
}  // namespace orrery::planners::ranking_test
