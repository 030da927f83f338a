/// Does find_defect() accept good programs and name what is wrong with bad ones?
#include <gtest/gtest.h>

#include <functional>

#include "models/ir/program.h"
#include "tests/models/ir/programs.h"

namespace orrery::ir::program_check_test {
namespace {

// pipelined_program(2, 2, 2): ranks 0 and 1 form pipeline 0, ranks 2 and 3 form pipeline 1.
// Rank 0: F0 F1 B1 B0 step (0-4), send recv send recv (5-8), all-reduce (9).
// Rank 1: F0 F1 B1 B0 step (10-14), recv send recv send (15-18), all-reduce (19).
struct Case {
  const char* name;
  const char* expected;
  std::function<void(Program&)> damage;
};

const std::vector<Case>& cases() {
  static const std::vector<Case> kCases = {
      {"RankWithoutDevice", "rank 1 has no device", [](Program& p) { p.ranks[1].device = {}; }},
      {"RankInNoPipeline", "rank 0 is in pipeline 7 of 2",
       [](Program& p) { p.ranks[0].pipeline = 7; }},
      {"SegmentBeyondTheModel", "segment 0 covers blocks 0 to 9 of 4",
       [](Program& p) { p.segments[0].last_block = {9}; }},
      {"DeviceTwiceInAGroup", "group 0 has a device twice",
       [](Program& p) { p.groups[0].devices.push_back({0}); }},
      {"ShapeWithoutGroup", "collective shape 0 has a part with no group",
       [](Program& p) { p.collective_shapes[0].parts[0].group = 5; }},
      {"RegionBeyondTheModel", "region set 2 leaves the model",
       [](Program& p) { p.region_sets[2][0].last_block = {4}; }},
      {"StreamsNotRising", "stream_begin does not rise",
       [](Program& p) { std::swap(p.stream_begin[1], p.stream_begin[2]); }},
      {"StreamsOfTooFewRanks", "stream_begin has 12 entries for 4 ranks",
       [](Program& p) { p.stream_begin.pop_back(); }},
      {"OpAmongThoseOfAnotherRank", "op 0 (forward of rank 1, micro-batch 0) is among the ops",
       [](Program& p) { p.ops[0].rank = {1}; }},
      {"UnknownKind", "op 3 has a kind, stream",
       [](Program& p) { p.ops[3].kind = static_cast<OpKind>(50); }},
      {"BuffersOutOfRange", "op 0 (forward of rank 0, micro-batch 0) refers to an entry",
       [](Program& p) { p.ops[0].buffers = 99; }},
      {"MicroBatchOutOfRange", "is not of one of 2 micro-batches",
       [](Program& p) { p.ops[0].micro_batch = {2}; }},
      {"NegativeBytes", "has a wrong size", [](Program& p) { p.ops[9].bytes = Bytes{-1}; }},
      {"SendWithoutMatch", "op 5 (send of rank 0, micro-batch 0) has no match",
       [](Program& p) { p.ops[5].match = kNone; }},
      {"MatchNotMutual", "do not match each other", [](Program& p) { p.ops[5].match = 17; }},
      {"DifferentTransfers", "have different transfers",
       [](Program& p) { p.ops[5].transfers = p.ops[6].transfers; }},
      {"TransferOfAForeignDevice", "which its ranks 0 and 1 do not stand for",
       [](Program& p) { p.transfer_sets[0][0].source = {3}; }},
      {"CollectiveMemberOfAnother", "which does not refer back",
       [](Program& p) { p.ops[9].match = 1; }},
      {"CollectiveMissing", "has no collective", [](Program& p) { p.ops[9].match = 2; }},
      {"CollectiveWithoutMembers", "collective 1 has no members",
       [](Program& p) { p.collectives[1].members.member_count = 0; }},
      {"CollectiveBeyondTheMembers", "collective 1 has no members",
       [](Program& p) { p.collectives[1].members.member_count = UINT32_MAX; }},
      {"CollectiveThatOmitsAMember", "collective 0 has device 2, which no member stands for",
       [](Program& p) { p.collectives[0].members.member_count = 1; }},
      {"MemberOutsideItsGroup", "collective 0 has no device of op 29",
       [](Program& p) { p.groups[0].devices.pop_back(); }},
      {"DependencyOnNothing", "depends on op 999", [](Program& p) { p.dependencies[0] = {999}; }},
      {"DependenciesNotRising", "dependency_begin does not rise",
       [](Program& p) { p.dependency_begin[4] = 1000; }},
      {"BufferNeverFreed", "rank 0 never frees a buffer (activations) of micro-batch 1",
       [](Program& p) { p.ops[2].buffers = kNone; }},
      {"BufferNeverAllocated", "op 2 (backward of rank 0, micro-batch 1) frees a buffer",
       [](Program& p) { p.ops[1].buffers = kNone; }},
      {"BufferFreedTwice", "op 4 (optimizer_step of rank 0, micro-batch 0) frees a buffer",
       [](Program& p) {
         p.ops[4].micro_batch = {0};
         p.ops[4].buffers = p.ops[3].buffers;
       }},
      {"FreesMoreThanItAllocates", "more or fewer bytes of a buffer (activations)",
       [](Program& p) { p.buffer_sets[1][0].bytes = Bytes{101}; }},
      {"ResidentBufferFreed", "rank 2 has a resident buffer that is not there",
       [](Program& p) { p.resident[2][0].action = BufferEffect::Action::free; }},
      // The first forward of rank 1 waits for its backward: a cycle through its own stream.
      {"CycleThroughAStream", "a cycle: ",
       [](Program& p) {
         const auto at = p.dependency_begin[10];
         ASSERT_EQ(p.dependencies[at].value, 15);  // It waited for what it receives.
         p.dependencies[at] = {13};
       }},
      // The gradient all-reduce of rank 0 waits for the optimizer step, which waits for it.
      {"CycleOfTwo", "waits for op 4 (optimizer_step of rank 0) waits for",
       [](Program& p) { p.dependencies[p.dependency_begin[9]] = {4}; }},
  };
  return kCases;
}

TEST(FindDefect, AcceptsGoodPrograms) {
  EXPECT_EQ(find_defect(Program{}), "stream_begin has 0 entries for 0 ranks");
  EXPECT_EQ(find_defect(op_group_program()), "");
  for (const int pipelines : {1, 3}) {
    for (const int stages : {1, 2, 4}) {
      EXPECT_EQ(find_defect(pipelined_program(pipelines, stages, 3)), "")
          << pipelines << " x " << stages;
    }
  }
}

TEST(FindDefect, NamesEachDefect) {
  for (const Case& c : cases()) {
    Program program = pipelined_program(2, 2, 2);
    ASSERT_EQ(program.ops.size(), 40U);
    c.damage(program);
    const std::string defect = find_defect(program);
    EXPECT_NE(defect.find(c.expected), std::string::npos) << c.name << ": \"" << defect << "\"";
  }
}

TEST(FindDefect, NamesDefectsOfTeams) {
  const auto after = [](auto damage) {
    Program program = op_group_program();
    damage(program);
    return find_defect(program);
  };
  EXPECT_EQ(
      after([](Program& p) { p.ops[1].match = kNone; }),
      "op_group 0 has member op 1 (forward of rank 1, micro-batch 0), which does not refer back");
  EXPECT_EQ(after([](Program& p) { p.ops[1].kind = OpKind::backward; }),
            "op_group 0: op 0 (forward of rank 0, micro-batch 0) and op 1 (backward of rank 1, "
            "micro-batch 0) do not run the same");
  EXPECT_EQ(after([](Program& p) { p.op_groups[0].member_count = 1; }),
            "ops refer to op_groups that do not have them as members");
  EXPECT_EQ(
      after([](Program& p) {
        p.groups[0].devices = {{0}, {5}};
      }),
      "op 1 (forward of rank 1, micro-batch 0) has inner collectives without its own devices");
  EXPECT_EQ(after([](Program& p) { p.inner_sets[0][0].kind = CollectiveKind::all_to_all; }),
            "inner set 0 tells 0 pairs of an all-to-all among 2");
}

/// Two ranks that each receive before they send what the other waits for, by dependencies: only the
/// joining of a send and its recv to one node makes that a cycle.
TEST(FindDefect, FindsCyclesThroughTransfers) {
  Program program = pipelined_program(1, 2, 1);
  ASSERT_EQ(find_defect(program), "");
  // Rank 0: F B step (0-2), send recv (3, 4), all-reduce (5). Rank 1: 6-8, recv send (9, 10).
  ASSERT_EQ(program.ops[3].kind, OpKind::send);
  const auto at = program.dependency_begin[3];
  program.dependencies[at] = {4};  // Rank 0 sends activations once it has received gradients.
  const std::string defect = find_defect(program);
  EXPECT_NE(defect.find("a cycle: "), std::string::npos) << defect;
  EXPECT_NE(defect.find("op 3 (send of rank 0, micro-batch 0)"), std::string::npos) << defect;
}

}  // namespace
}  // namespace orrery::ir::program_check_test
