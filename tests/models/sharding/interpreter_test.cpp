#include "tests/models/sharding/interpreter.h"

#include <gtest/gtest.h>

#include "tests/models/sharding/layouts.h"

namespace orrery::models::interpreter_test {
namespace {

const Layout kFrom = partial(2, {0, 1});
const Summands kSummands{{0, {1, 2}}, {1, {10, 20}}};

std::string run(const std::vector<Step>& steps, const Layout& to) {
  Buffers buffers = materialize(kFrom, kSummands);
  if (auto problem = execute(steps, buffers)) return *problem;
  return compare(to, kSummands, buffers).value_or("right");
}

Step all_reduce(std::vector<Slice> slices) {
  return {StepKind::all_reduce, std::move(slices), {0, 1}, {}};
}

TEST(Interpreter, SumsOneCopyOfEachSummand) {
  EXPECT_EQ(run({all_reduce({{0, 2}})}, replicated(2, {0, 1})), "right");
}

TEST(Interpreter, SeesAMissingReduction) {
  EXPECT_EQ(run({all_reduce({{0, 1}})}, replicated(2, {0, 1})),
            "owner 0, element 1: has 2, needs 22");
}

TEST(Interpreter, SeesASecondReduction) {
  EXPECT_EQ(run({all_reduce({{0, 2}}), all_reduce({{1, 2}})}, replicated(2, {0, 1})),
            "owner 0, element 1: has 44, needs 22");
}

TEST(Interpreter, SeesAReadOfWhatIsNotThere) {
  const Step send{StepKind::send_receive, {{0, 1}}, {2, 0}, {}, 2, 0};
  EXPECT_EQ(run({send}, kFrom), "step 0 (send_receive): owner 2 does not hold element 0");
  EXPECT_EQ(run({}, replicated(2, {2})), "owner 2 does not hold element 0");
}

TEST(Interpreter, DropsWhatAMemberScattered) {
  const Step scatter{StepKind::reduce_scatter, {{0, 2}}, {0, 1}, {{{0, 1}}, {{1, 2}}}};
  EXPECT_EQ(run({scatter}, split(2, {0, 1})), "right");
  EXPECT_EQ(run({scatter, all_reduce({{0, 1}})}, split(2, {0, 1})),
            "step 1 (all_reduce): owner 1 does not hold element 0");
}

TEST(Interpreter, KeepsSummandsApart) {
  EXPECT_EQ(run({}, kFrom), "right");
  EXPECT_EQ(run({}, partial(2, {1, 0})), "owner 1, element 0: has 10, needs 1");
}

TEST(Interpreter, RefusesMalformedSteps) {
  const auto refusal = [](Step step) { return run({step}, kFrom); };
  EXPECT_EQ(refusal(all_reduce({})), "step 0 (all_reduce): it moves nothing");
  EXPECT_EQ(refusal(all_reduce({{1, 2}, {0, 1}})),
            "step 0 (all_reduce): its slices are not sorted");
  EXPECT_EQ(refusal(all_reduce({{0, 2}, {1, 2}})), "step 0 (all_reduce): its slices overlap");
  EXPECT_EQ(refusal({StepKind::all_reduce, {{0, 2}}, {0}, {}}),
            "step 0 (all_reduce): its group has fewer than two members");
  EXPECT_EQ(refusal({StepKind::all_reduce, {{0, 2}}, {0, 0}, {}}),
            "step 0 (all_reduce): its group names an owner twice");
  EXPECT_EQ(refusal({StepKind::reduce_scatter, {{0, 2}}, {0, 1}, {{{0, 1}}, {}}}),
            "step 0 (reduce_scatter): its parts do not tile its slices");
  EXPECT_EQ(refusal({StepKind::all_gather, {{0, 2}}, {0, 1}, {}}),
            "step 0 (all_gather): its parts are miscounted");
  EXPECT_EQ(refusal({StepKind::broadcast, {{0, 2}}, {0, 1}, {}}),
            "step 0 (broadcast): its source is wrong");
  EXPECT_EQ(refusal({StepKind::send_receive, {{0, 2}}, {0, 1}, {}, 0, 2}),
            "step 0 (send_receive): its destination is wrong");
}

}  // namespace
}  // namespace orrery::models::interpreter_test
