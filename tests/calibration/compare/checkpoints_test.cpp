#include "calibration/compare/checkpoints.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "calibration/compare/compare.h"
#include "tests/calibration/compare/support.h"

namespace orrery::calibration::checkpoints_test {
namespace {

constexpr double kMebibyte = 0x1p20;

std::string problem_of(const std::string& detail) {
  const auto parsed = parse_checkpoint(detail);
  const auto* problem = std::get_if<std::string>(&parsed);
  return problem == nullptr ? "" : *problem;
}

TEST(ParseCheckpoint, ReadsWhatTheExecutorWrites) {
  const auto one = std::get<LoggedCheckpoint>(
      parse_checkpoint("rank=3 iteration=20 bytes=1048576 seconds=0.25"));
  EXPECT_EQ(one.rank.value, 3);
  EXPECT_EQ(one.iteration, 20);
  EXPECT_EQ(one.bytes.value, kMebibyte);
  EXPECT_EQ(one.held.value, 0.25);
  const std::string small = fmt::format("rank=0 iteration=1 bytes=0 seconds={:.9g}", 1.25e-7);
  EXPECT_EQ(std::get<LoggedCheckpoint>(parse_checkpoint(small)).held.value, 1.25e-7);
}

TEST(ParseCheckpoint, RefusesEveryOtherText) {
  for (const char* detail :
       {"", "local step 4", "rank=0", "rank=0 iteration=1 bytes=2",
        "rank=0 iteration=1 bytes=2 seconds=", "rank=0 iteration=1 bytes=2 seconds=1 ",
        "rank=0 iteration=1 bytes=2 seconds=1 more=2", "rank=-1 iteration=1 bytes=2 seconds=1",
        "rank=0 iteration=-1 bytes=2 seconds=1", "rank=0 iteration=1 bytes=-2 seconds=1",
        "rank=0 iteration=1 bytes=2 seconds=-1", "rank=0 iteration=1 bytes=2 seconds=nan",
        "rank=0 iteration=1 bytes=2 seconds=inf", "rank=0 iteration=1 bytes=2 seconds=1e300",
        "rank=0 iteration=1 bytes=2.5 seconds=1", "rank=99999999999 iteration=1 bytes=2 seconds=1",
        "iteration=1 rank=0 bytes=2 seconds=1", "rank=0  iteration=1 bytes=2 seconds=1",
        "rank 0: rank=0 iteration=1 bytes=2 seconds=1"}) {
    EXPECT_NE(problem_of(detail), "") << detail;
    EXPECT_NE(problem_of(detail).find("rank=R iteration=I bytes=B seconds=S"), std::string::npos);
  }
}

/// An event of a rank that was held for this long after a step.
ir::LogEvent event(int rank, int iteration, double bytes, double seconds) {
  return {{},
          "checkpoint",
          fmt::format("rank={} iteration={} bytes={:.0f} seconds={:.9g}", rank, iteration, bytes,
                      seconds)};
}

TEST(LoggedCheckpoints, PartsOfARankAddUpAndOthersAreProblems) {
  const ir::Program program = two_stage_program(1);
  ir::RunLog log;
  log.events = {event(1, 4, 10, 0.5), event(0, 4, 20, 0.25), event(1, 2, 30, 1),
                event(1, 4, 5, 0.25), event(2, 4, 1, 1),     {{}, "checkpoint", "local step 4"},
                {{}, "loaded", "x"}};
  const LoggedCheckpoints found = logged_checkpoints(program, log);
  ASSERT_EQ(found.written.size(), 3U);
  EXPECT_EQ(found.written[0].iteration, 2);
  EXPECT_EQ(found.written[1].rank.value, 0);
  EXPECT_EQ(found.written[2].bytes.value, 15);
  EXPECT_EQ(found.written[2].held.value, 0.75);
  ASSERT_EQ(found.problems.size(), 2U);
  EXPECT_NE(found.problems[0].find("the program has 2 ranks"), std::string::npos);
  EXPECT_NE(found.problems[1].find("local step 4"), std::string::npos);
}

/// Two devices on one node that declares its storage.
models::Cluster one_node() {
  models::Cluster cluster;
  models::Node node;
  node.gpu_types = {0, 0};
  node.nvme_write = {2 * kMebibyte};
  node.host_memory_bandwidth = {100 * kMebibyte};
  cluster.nodes = {node};
  for (int d = 0; d < 2; ++d) {
    models::Device device;
    device.id = {d};
    device.node = {0};
    cluster.devices.push_back(device);
  }
  return cluster;
}

ir::Profile measured_storage() {
  ir::Profile profile;
  profile.storage = {{"nvme", true, {0.01}, {10 * kMebibyte}, {}},
                     {"nvme", false, {9}, {1}, {}},
                     {"host_memory", true, {0.5}, {1000 * kMebibyte}, {}}};
  return profile;
}

CheckpointPrice price(const models::Cluster& cluster, const ir::Profile& profile) {
  return std::get<CheckpointPrice>(
      price_checkpoint(Bytes{10 * kMebibyte}, 3, {ir::Location::nvme}, {0}, cluster, profile));
}

TEST(PriceCheckpoint, TheProfileComesBeforeTheClusterAndEachFileHasItsLatency) {
  const CheckpointPrice declared = price(one_node(), {});
  EXPECT_DOUBLE_EQ(declared.copy.value, 0.1);
  EXPECT_DOUBLE_EQ(declared.write.value, 5);
  const CheckpointPrice measured = price(one_node(), measured_storage());
  EXPECT_DOUBLE_EQ(measured.copy.value, 0.51);
  EXPECT_DOUBLE_EQ(measured.write.value, 3 * 0.01 + 1);
  EXPECT_EQ(measured.sources.back(), "profile: writing to nvme");
}

TEST(PriceCheckpoint, TwoPlacesShareTheBytes) {
  models::Cluster cluster = one_node();
  cluster.storage = models::ObjectStorage{{5 * kMebibyte}, {}, {0.5}};
  const auto both = std::get<CheckpointPrice>(price_checkpoint(
      Bytes{10 * kMebibyte}, 1, {ir::Location::nvme, ir::Location::cloud}, {1}, cluster, {}));
  EXPECT_DOUBLE_EQ(both.copy.value, 0.05);
  EXPECT_DOUBLE_EQ(both.write.value, 2.5 + 0.5 + 1);
}

TEST(PriceCheckpoint, SaysWhatHasNoPrice) {
  models::Cluster bare = one_node();
  bare.nodes[0].nvme_write = {};
  bare.nodes[0].host_memory_bandwidth = {};
  const auto none = price_checkpoint(Bytes{1}, 1, {ir::Location::nvme}, {0}, bare, {});
  EXPECT_NE(std::get<std::string>(none).find("nvme"), std::string::npos);
  const auto copied = price_checkpoint(Bytes{1}, 1, {}, {0}, bare, {});
  EXPECT_EQ(std::get<CheckpointPrice>(copied).copy.value, 0);
  EXPECT_NE(std::get<CheckpointPrice>(copied).sources.front().find("no price"), std::string::npos);
}

TEST(CompareCheckpoints, ALaterOneAlsoWaitsForTheWriteBeforeIt) {
  const ir::Program program = two_stage_program(1);  // two blocks a rank
  ir::RunLog log;
  log.events = {event(0, 2, 10 * kMebibyte, 0.5), event(0, 4, 10 * kMebibyte, 2)};
  const CheckpointComparison found = compare_checkpoints(program, log, {ir::Location::nvme},
                                                         one_node(), measured_storage(), {0.2});
  EXPECT_EQ(found.checkpoints, 2);
  EXPECT_EQ(found.parts, 2);
  EXPECT_DOUBLE_EQ(found.measured, 1.25);
  EXPECT_DOUBLE_EQ(found.longest, 2);
  // Copies of 0.51 s; the first write takes 1.02 s, of which two steps of 0.2 s pass.
  ASSERT_TRUE(found.predicted);
  EXPECT_NEAR(*found.predicted, 0.5 * (0.51 + 0.51 + 1.02 - 0.4), 1e-12);
  EXPECT_EQ(found.problem, "");
  const CheckpointComparison slow =
      compare_checkpoints(program, log, {ir::Location::nvme}, one_node(), measured_storage(), {10});
  EXPECT_DOUBLE_EQ(*slow.predicted, 0.51);  // the write has ended long before
}

TEST(CompareCheckpoints, PredictNothingWithoutAPlace) {
  const ir::Program program = two_stage_program(1);
  ir::RunLog log;
  const CheckpointComparison none = compare_checkpoints(program, log, {}, one_node(), {}, {1});
  EXPECT_EQ(none.parts, 0);
  EXPECT_EQ(none.problem, "");
  log.events = {event(0, 2, 10, 0.5)};
  const CheckpointComparison lost = compare_checkpoints(program, log, {}, one_node(), {}, {1});
  EXPECT_FALSE(lost.predicted);
  EXPECT_NE(lost.problem.find("where checkpoints were written"), std::string::npos);
  EXPECT_DOUBLE_EQ(lost.measured, 0.5);
}

/// Six steps, with a pause of all ranks after each step that `pauses` says (nanoseconds).
ir::RunLog paused(const ir::Program& program, const ir::RunLog& log, std::int64_t pause,
                  const std::function<bool(std::int64_t)>& pauses) {
  ir::RunLog out = repeated(program, log, 6);
  std::vector<std::int64_t> shift = {0};
  for (const ir::IterationMark& mark : out.iterations) {
    const bool here = pauses(mark.iteration);
    if (here) {
      for (int r = 0; r < 2; ++r) {
        out.events.push_back(
            event(r, static_cast<int>(mark.iteration), 1, 1e-9 * static_cast<double>(pause)));
      }
    }
    shift.push_back(shift.back() + (here ? pause : 0));
  }
  const auto move = [](Instant& at, std::int64_t by) { at = {at.nanoseconds + by}; };
  for (std::size_t i = 0; i < out.spans.size(); ++i) {
    move(out.spans[i].start, shift[i % 6]);
    move(out.spans[i].end, shift[i % 6]);
  }
  for (std::size_t k = 0; k < out.iterations.size(); ++k) {
    move(out.iterations[k].start, shift[k]);
    move(out.iterations[k].end, shift[k]);
  }
  return out;
}

TEST(CheckpointsBetweenSteps, StepsAfterOneDoNotCountWhereOthersAreLeft) {
  const ir::Program program = two_stage_program(2);
  const ir::RunLog log = timed(program, [](OpId) { return 1000; });
  const ir::RunLog measured =
      paused(program, log, 700, [](std::int64_t step) { return step % 2 == 0; });
  const auto found = std::get<Comparison>(compare(program, log, measured, {.warm_up = 0}));
  EXPECT_NEAR(found.iteration.error(), 0, 1e-12);
  EXPECT_EQ(found.steps, 3);
  EXPECT_GT(found.held, 0);
}

TEST(CheckpointsBetweenSteps, AreInNoIterationWhereEveryStepHasOne) {
  const ir::Program program = two_stage_program(2);
  const ir::RunLog log = timed(program, [](OpId) { return 1000; });
  const ir::RunLog measured = paused(program, log, 700, [](std::int64_t) { return true; });
  const auto found = std::get<Comparison>(compare(program, log, measured, {.warm_up = 1}));
  const double length = 1e-9 * static_cast<double>(log.iterations.front().end.nanoseconds);
  // The rank that ends last is held for 700 ns; the other one ends earlier and goes on earlier.
  EXPECT_NEAR(found.longest_step, length, 1e-12);
  EXPECT_NEAR(found.held, 5 * 700e-9, 1e-12);
  double sum = 0;
  for (const ComponentRow& row : found.components) sum += row.seconds.measured;
  EXPECT_NEAR(sum, found.iteration.measured, 1e-12);
}

TEST(CheckpointsBetweenSteps, WithoutAnEventThePauseIsPartOfTheStep) {
  const ir::Program program = two_stage_program(2);
  const ir::RunLog log = timed(program, [](OpId) { return 1000; });
  ir::RunLog measured = paused(program, log, 700, [](std::int64_t) { return true; });
  measured.events.clear();
  const auto found = std::get<Comparison>(compare(program, log, measured, {.warm_up = 1}));
  EXPECT_LT(found.iteration.error(), -0.01);
  EXPECT_EQ(found.held, 0);
}

}  // namespace
}  // namespace orrery::calibration::checkpoints_test
