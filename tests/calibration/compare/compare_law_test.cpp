#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "calibration/compare/compare.h"
#include "tests/calibration/compare/support.h"

namespace orrery::calibration::compare_law_test {
namespace {

/// Lengths that are multiples of 100, so that per cents of them are whole nanoseconds.
ir::RunLog random_log(const ir::Program& program) {
  const auto lengths =
      *rc::gen::container<std::vector<int>>(program.ops.size(), rc::gen::inRange(1, 50));
  return timed(program, [&](OpId op) { return 400 * std::int64_t{lengths[op.index()]}; });
}

Comparison compared(const ir::Program& program, const ir::RunLog& predicted,
                    const ir::RunLog& measured, const CompareOptions& options = {}) {
  auto result = compare(program, predicted, measured, options);
  if (const auto* problem = std::get_if<CompareProblem>(&result)) RC_FAIL(*problem);
  return std::get<Comparison>(std::move(result));
}

RC_GTEST_PROP(CompareLaw, ALogAgainstItselfHasNoError, ()) {
  const ir::Program program = two_stage_program(*rc::gen::inRange(1, 6));
  const ir::RunLog log = random_log(program);
  const ir::RunLog measured = repeated(program, log, *rc::gen::inRange(1, 6));
  const Comparison result = compared(program, log, measured);
  RC_ASSERT(std::abs(result.iteration.error()) < 1e-12);
  RC_ASSERT(std::abs(result.transfers.error()) < 1e-12);
  RC_ASSERT(result.transfer_error < 1e-12);
  RC_ASSERT(std::abs(result.op_bias) < 1e-12);
  for (const ComponentRow& row : result.components) RC_ASSERT(std::abs(row.of_iteration) < 1e-12);
  for (const MemoryRow& row : result.memory) RC_ASSERT(row.bytes.error() == 0);
  RC_ASSERT(result.memory.size() == 2U);
}

RC_GTEST_PROP(CompareLaw, EverySpanLongerByAShareGivesThatShare, ()) {
  const ir::Program program = two_stage_program(*rc::gen::inRange(1, 6));
  const ir::RunLog log = random_log(program);
  const int percent = *rc::gen::inRange(1, 300);
  const ir::RunLog predicted = stretched(log, percent, 100);
  const ir::RunLog measured = repeated(program, log, 4);
  const double share = percent / 100.0 - 1;
  const Comparison result = compared(program, predicted, measured);
  RC_ASSERT(std::abs(result.iteration.error() - share) < 1e-9);
  RC_ASSERT(std::abs(result.op_bias - share) < 1e-9);
  RC_ASSERT(std::abs(result.transfers.error() - share) < 1e-9);
  RC_ASSERT(std::abs(result.transfer_error - std::abs(share)) < 1e-9);
  for (const ComponentRow& row : result.components) {
    if (row.seconds.measured == 0) continue;
    RC_ASSERT(std::abs(row.seconds.error() - share) < 1e-9);
  }
}

RC_GTEST_PROP(CompareLaw, PartsOfEveryRankAndStepAddUpToTheStep, ()) {
  const ir::Program program = two_stage_program(*rc::gen::inRange(1, 6));
  const ir::RunLog log = repeated(program, random_log(program), *rc::gen::inRange(1, 5));
  const auto found = logged_steps(program, log);
  RC_ASSERT(std::holds_alternative<std::vector<LoggedStep>>(found));
  const auto& steps = std::get<std::vector<LoggedStep>>(found);
  for (std::size_t k = 0; k < steps.size(); ++k) {
    for (const RankParts& rank : step_parts(program, steps, k)) {
      RC_ASSERT(rank.all.total() == steps[k].end - steps[k].start);
      RC_ASSERT(rank.forward + rank.backward == rank.all.compute);
    }
  }
}

RC_GTEST_PROP(CompareLaw, ComponentsAddUpToTheIterationAndToItsError, ()) {
  const ir::Program program = two_stage_program(*rc::gen::inRange(1, 6));
  const Comparison result =
      compared(program, random_log(program), repeated(program, random_log(program), 5));
  double predicted = 0;
  double measured = 0;
  double error = 0;
  for (const ComponentRow& row : result.components) {
    predicted += row.seconds.predicted;
    measured += row.seconds.measured;
    error += row.of_iteration;
  }
  RC_ASSERT(std::abs(predicted - result.iteration.predicted) < 1e-12);
  RC_ASSERT(std::abs(measured - result.iteration.measured) < 1e-12);
  RC_ASSERT(std::abs(error - result.iteration.error()) < 1e-9);
}

RC_GTEST_PROP(CompareLaw, SharesOfTheErrorAddUpToOne, ()) {
  const ir::Program program = two_stage_program(3);
  const ir::RunLog log = random_log(program);
  const Comparison result =
      compared(program, stretched(log, 3, 2), repeated(program, log, 3), {.worst = 1000});
  double sum = 0;
  for (const OpRow& row : result.worst) sum += row.share;
  RC_ASSERT(std::abs(sum - 1) < 1e-9);
  RC_ASSERT(std::is_sorted(result.worst.begin(), result.worst.end(),
                           [](const OpRow& a, const OpRow& b) { return a.share > b.share; }));
}

}  // namespace
}  // namespace orrery::calibration::compare_law_test
