#include "calibration/compare/compare.h"

#include <gtest/gtest.h>

#include "calibration/compare/phases.h"
#include "calibration/compare/residuals.h"
#include "tests/calibration/compare/support.h"

namespace orrery::calibration::compare_test {
namespace {

ir::RunLog even_log(const ir::Program& program, std::int64_t length = 1000) {
  return timed(program, [length](OpId) { return length; });
}

std::string problem_of(const ir::Program& program, const ir::RunLog& measured) {
  auto result = compare(program, even_log(program), measured);
  const auto* problem = std::get_if<CompareProblem>(&result);
  return problem == nullptr ? "" : *problem;
}

TEST(LoggedSteps, ATransferStartsWhenItsReceiverIsThere) {
  const ir::Program program = two_stage_program(1);
  ir::RunLog log = even_log(program);
  // The executor posts the receive at once; the simulator's transfer starts with the send.
  std::size_t send = 0;
  while (program.ops[send].kind != ir::OpKind::send) ++send;
  const std::size_t recv = program.ops[send].match;
  log.spans[recv].start = {0};
  log.spans[send].end = {log.spans[send].start.nanoseconds + 1};
  const auto steps = std::get<std::vector<LoggedStep>>(logged_steps(program, log));
  for (const std::size_t op : {send, recv}) {
    EXPECT_EQ(steps[0].spans[op].start.nanoseconds, log.spans[send].start.nanoseconds);
    EXPECT_EQ(steps[0].spans[op].end.nanoseconds, log.spans[recv].end.nanoseconds);
  }
}

TEST(LoggedSteps, StepsAddUpToTheRun) {
  const ir::Program program = two_stage_program(2);
  ir::RunLog log = repeated(program, even_log(program), 3);
  // A rank that finishes early begins the next step before this one ends.
  log.iterations[1].start = {log.iterations[1].start.nanoseconds - 500};
  const auto steps = std::get<std::vector<LoggedStep>>(logged_steps(program, log));
  ASSERT_EQ(steps.size(), 3U);
  EXPECT_EQ(steps[1].start, steps[0].end);
  EXPECT_EQ(steps[2].start, steps[1].end);
}

TEST(Compare, FirstStepsDoNotCount) {
  const ir::Program program = two_stage_program(2);
  const ir::RunLog log = even_log(program);
  ir::RunLog measured = repeated(program, log, 6);
  // The first step is twice as long.
  const std::int64_t length = log.iterations.front().end.nanoseconds;
  for (ir::IterationMark& mark : measured.iterations) {
    mark.start = {mark.start.nanoseconds + (mark.iteration == 1 ? 0 : length)};
    mark.end = {mark.end.nanoseconds + length};
  }
  for (ir::Span& span : measured.spans) {
    span.start = {span.start.nanoseconds + length};
    span.end = {span.end.nanoseconds + length};
  }
  const auto without = std::get<Comparison>(compare(program, log, measured, {.warm_up = 1}));
  EXPECT_NEAR(without.iteration.error(), 0, 1e-12);
  EXPECT_EQ(without.steps, 4);
  const auto with = std::get<Comparison>(compare(program, log, measured, {.warm_up = 0}));
  EXPECT_DOUBLE_EQ(with.longest_step, 2 * with.shortest_step);
}

TEST(Compare, OfThreeSimulatedIterationsTheMiddleOneCountsFromTheEndOfTheOneBefore) {
  const ir::Program program = two_stage_program(2);
  const ir::RunLog one = even_log(program);
  ir::RunLog three = repeated(program, one, 3);
  // As of a staggered program: marks of iterations begin with their first rank.
  for (std::size_t k = 1; k < 3; ++k) {
    three.iterations[k].start = {three.iterations[k].start.nanoseconds - 700};
  }
  EXPECT_EQ(simulated_iteration(three), simulated_iteration(one));
  const ir::RunLog measured = repeated(program, one, 5);
  const auto expected = std::get<Comparison>(compare(program, one, measured));
  const auto result = std::get<Comparison>(compare(program, three, measured));
  EXPECT_EQ(result.iteration.predicted, expected.iteration.predicted);
  for (std::size_t c = 0; c < expected.components.size(); ++c) {
    EXPECT_EQ(result.components[c].seconds.predicted, expected.components[c].seconds.predicted)
        << expected.components[c].name;
  }
  // Another one of the three does not count.
  for (ir::Span& span : three.spans) {
    if (span.end <= three.iterations[0].end) span.inner = {};
  }
  EXPECT_EQ(std::get<Comparison>(compare(program, three, measured)).transfers.predicted,
            expected.transfers.predicted);
}

TEST(Compare, TheOpThatIsOffIsTheWorst) {
  const ir::Program program = two_stage_program(4);
  const ir::RunLog predicted = even_log(program);
  const ir::RunLog measured = timed(program, [&](OpId op) {
    const ir::Op& one = program.op(op);
    return one.kind == ir::OpKind::backward && one.rank.value == 1 ? 3000 : 1000;
  });
  const auto result =
      std::get<Comparison>(compare(program, predicted, repeated(program, measured, 3)));
  ASSERT_FALSE(result.worst.empty());
  EXPECT_EQ(result.worst.front().what, "backward of blocks 2-3");
  EXPECT_EQ(result.worst.front().rank.value, 1);
  EXPECT_EQ(result.worst.front().ops, 4);
  EXPECT_GT(result.worst.front().share, 0.99);
  EXPECT_LT(result.iteration.error(), 0);
}

TEST(Compare, SaysWhyALogCannotBeCompared) {
  const ir::Program program = two_stage_program(2);
  ir::RunLog empty = even_log(program);
  empty.iterations.clear();
  EXPECT_NE(problem_of(program, empty).find("no finished step"), std::string::npos);

  ir::RunLog missing = even_log(program);
  missing.spans.pop_back();
  EXPECT_NE(problem_of(program, missing).find("no finished step"), std::string::npos);

  ir::RunLog overlapping = even_log(program);
  overlapping.spans[1].start = {overlapping.spans[0].start.nanoseconds};
  EXPECT_NE(problem_of(program, overlapping).find("overlaps"), std::string::npos);

  ir::RunLog outside = even_log(program);
  outside.iterations.front().end = {outside.iterations.front().end.nanoseconds - 1};
  EXPECT_NE(problem_of(program, outside).find("outside"), std::string::npos);

  ir::RunLog foreign = even_log(program);
  foreign.spans[0].op = {100000};
  EXPECT_NE(problem_of(program, foreign), "");
}

TEST(PassFactors, AreWhatWasMultiplied) {
  const ir::Program program = two_stage_program(3);
  const ir::RunLog predicted = even_log(program, 4000);
  const ir::RunLog measured = timed(program, [&](OpId op) -> std::int64_t {
    switch (program.op(op).kind) {
      case ir::OpKind::forward:
        return 6000;
      case ir::OpKind::backward:
        return 5000;
      case ir::OpKind::optimizer_step:
        return 2000;
      default:
        return 4000;
    }
  });
  JoinedRun run{&program, std::get<std::vector<JoinedOp>>(
                              join_ops(program, predicted, repeated(program, measured, 3)))};
  const PassFactors factors = fit_factors({run});
  EXPECT_DOUBLE_EQ(factors.forward, 1.5);
  EXPECT_DOUBLE_EQ(factors.backward, 1.25);
  EXPECT_DOUBLE_EQ(factors.optimizer, 0.5);
  EXPECT_EQ(factors.forward_ops, 6);
  EXPECT_EQ(factors.optimizer_ops, 2);

  ir::Profile profile;
  profile.block_times.resize(2);
  profile.block_times[0].time = {1};
  profile.block_times[1].pass = ir::Pass::backward_weight;
  profile.block_times[1].time = {1};
  profile.optimizers.push_back({"a", ir::Dtype::fp32, {2}, {4}, {}});
  const ir::Profile longer = scaled(profile, factors);
  EXPECT_DOUBLE_EQ(longer.block_times[0].time.value, 1.5);
  EXPECT_DOUBLE_EQ(longer.block_times[1].time.value, 1.25);
  EXPECT_DOUBLE_EQ(longer.optimizers[0].per_parameter.value, 2);
  EXPECT_NE(longer.block_times[0].provenance.source.find("1.5"), std::string::npos);
}

TEST(PassFactors, AreOneWithoutOps) {
  const PassFactors factors = fit_factors({});
  EXPECT_EQ(factors.forward, 1);
  EXPECT_EQ(factors.backward_ops, 0);
}

ir::RunLog recovery_log() {
  ir::RunLog log;
  log.events = {{{1'000'000'000}, "t_fail", ""},      {{1'200'000'000}, "t_detect", ""},
                {{1'700'000'000}, "t_plan", ""},      {{1'710'000'000}, "t_spawn", ""},
                {{2'000'000'000}, "t_comm", ""},      {{2'600'000'000}, "t_load", ""},
                {{3'600'000'000}, "t_first_step", ""}};
  return log;
}

TEST(RecoveryPhases, LieBetweenTheirEvents) {
  const std::vector<MeasuredPhase> phases = recovery_phases(recovery_log());
  ASSERT_EQ(phases.size(), 5U);
  EXPECT_EQ(phases[0].phase, "detect");
  EXPECT_NEAR(phases[0].time.value, 0.2, 1e-12);
  EXPECT_NEAR(phases[1].time.value, 0.5, 1e-12);
  EXPECT_NEAR(phases[2].time.value, 0.3, 1e-12);
  EXPECT_NEAR(phases[3].time.value, 0.6, 1e-12);
  EXPECT_NEAR(phases[4].time.value, 1.0, 1e-12);
}

TEST(RecoveryPhases, WithoutAnInjectedFaultDetectionIsUnknown) {
  ir::RunLog log = recovery_log();
  log.events.erase(log.events.begin());
  for (const MeasuredPhase& phase : recovery_phases(log)) EXPECT_NE(phase.phase, "detect");
}

TEST(RecoveryPhases, FitsTakeMediansAndWhatTransfersLeave) {
  std::vector<MeasuredPhase> one = {{"detect", {0.1}}, {"move_state", {0.5}}};
  std::vector<MeasuredPhase> two = {{"detect", {0.3}}, {"move_state", {0.2}}, {"first_step", {9}}};
  const auto fitted = fit_phases({one, two}, {Seconds{0.1}, Seconds{0.4}}, {});
  ASSERT_EQ(fitted.size(), 2U);
  EXPECT_EQ(fitted[0].phase, "detect");
  EXPECT_NEAR(fitted[0].time.value, 0.2, 1e-12);
  EXPECT_EQ(fitted[0].provenance.samples, 2);
  EXPECT_NEAR(fitted[1].time.value, 0.2, 1e-12);  // median of 0.4 and 0
}

}  // namespace
}  // namespace orrery::calibration::compare_test
