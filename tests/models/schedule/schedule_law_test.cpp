/// Do the schedules run to their end, in the right order, in the memory and with the bubble that
/// their papers state? Each is played on stages of equal speed without communication.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "models/base/ids.h"
#include "models/schedule/schedule.h"

namespace orrery::models::schedule_law_test {
namespace {

/// Seconds of a pass through one chunk, by ir::OpKind.
using Durations = std::array<double, 4>;

/// End of the last pass when each stage runs its passes in order as soon as what they need is
/// there; nothing if they wait for each other for ever.
std::optional<double> play(const ScheduleEntry& schedule, int stages, int micro_batches, int chunks,
                           const Durations& durations) {
  std::vector<std::vector<StagePass>> passes;
  std::size_t left = 0;
  for (int s = 0; s < stages; ++s) {
    passes.push_back(schedule.passes({stages, s, micro_batches, chunks}));
    left += passes.back().size();
  }
  // (forward?, micro-batch, stage of the chain of all chunks) -> end.
  std::map<std::tuple<bool, int, int>, double> ends;
  std::vector<std::size_t> next(passes.size(), 0);
  std::vector<double> free(passes.size(), 0);
  for (bool moved = true; moved && left > 0;) {
    moved = false;
    for (std::size_t s = 0; s < passes.size(); ++s) {
      while (next[s] < passes[s].size()) {
        const StagePass& pass = passes[s][next[s]];
        const int at =
            schedule.stage_at(pass.chunk, static_cast<int>(s), stages) + pass.chunk * stages;
        // Where micro-batches pass one chunk only, that is their chain.
        const int begin = schedule.both_ways ? pass.chunk * stages : 0;
        const int end_of_chain = schedule.both_ways ? begin + stages : stages * chunks;
        std::vector<std::tuple<bool, int, int>> needs;
        if (pass.kind == ir::OpKind::forward) {
          if (at > begin) needs.push_back({true, pass.micro_batch, at - 1});
        } else {
          needs.push_back({true, pass.micro_batch, at});
          if (pass.kind == ir::OpKind::backward_weight) {
            needs.push_back({false, pass.micro_batch, at});
          } else if (at + 1 < end_of_chain) {
            needs.push_back({false, pass.micro_batch, at + 1});
          }
        }
        double start = free[s];
        bool ready = true;
        for (const auto& need : needs) {
          const auto end = ends.find(need);
          ready = ready && end != ends.end();
          if (ready) start = std::max(start, end->second);
        }
        if (!ready) break;
        free[s] = start + durations[index_of(pass.kind)];
        if (pass.kind != ir::OpKind::backward_weight) {
          ends[{pass.kind == ir::OpKind::forward, pass.micro_batch, at}] = free[s];
        }
        ++next[s];
        --left;
        moved = true;
      }
    }
  }
  if (left > 0) return std::nullopt;
  return *std::max_element(free.begin(), free.end());
}

std::vector<int> chunk_counts(const ScheduleEntry& schedule) {
  if (schedule.folds_back) return {2};
  return schedule.uses_chunks ? std::vector<int>{2, 3, 4} : std::vector<int>{1};
}

TEST(Schedules, EndForAnyNumberOfStagesAndMicroBatches) {
  for (const ScheduleEntry* schedule : schedules()) {
    for (const int chunks : chunk_counts(*schedule)) {
      for (int stages = 1; stages <= 7; ++stages) {
        for (int micro_batches = 1; micro_batches <= 3 * stages + 1; ++micro_batches) {
          EXPECT_TRUE(play(*schedule, stages, micro_batches, chunks, {1, 2, 1, 1}))
              << schedule->name() << " " << stages << " stages, " << micro_batches
              << " micro-batches, " << chunks << " chunks";
        }
      }
    }
  }
}

TEST(Schedules, RunEachPassOnceAndBackwardInMicroBatchOrder) {
  for (const ScheduleEntry* schedule : schedules()) {
    for (const int chunks : chunk_counts(*schedule)) {
      for (const int micro_batches : {1, 5, 8}) {
        for (int stage = 0; stage < 4; ++stage) {
          std::set<StagePass> seen;
          std::map<std::pair<ir::OpKind, int>, int> last;
          for (const StagePass& pass : schedule->passes({4, stage, micro_batches, chunks})) {
            EXPECT_TRUE(seen.insert(pass).second) << schedule->name();
            EXPECT_TRUE(schedule->visits(pass.micro_batch, pass.chunk)) << schedule->name();
            const int step = schedule->both_ways ? 2 : 1;
            const auto [place, added] =
                last.try_emplace({pass.kind, pass.chunk}, step == 2 ? pass.chunk - step : -1);
            EXPECT_EQ(pass.micro_batch, place->second + step) << schedule->name();
            place->second = pass.micro_batch;
          }
          const bool splits = schedule->splits_backward();
          const int visited = schedule->both_ways ? 1 : chunks;
          EXPECT_EQ(seen.size(), as_size(micro_batches * visited * (splits ? 3 : 2)))
              << schedule->name();
        }
      }
    }
  }
}

TEST(Schedules, HoldNoMoreThanTheySay) {
  for (const ScheduleEntry* schedule : schedules()) {
    for (const int chunks : chunk_counts(*schedule)) {
      for (int stages = 1; stages <= 6; ++stages) {
        for (int micro_batches = 1; micro_batches <= 14; ++micro_batches) {
          for (int stage = 0; stage < stages; ++stage) {
            const ScheduleQuery query = {stages, stage, micro_batches, chunks};
            int held = 0;
            int peak = 0;
            int waiting = 0;
            int postponed = 0;
            for (const StagePass& pass : schedule->passes(query)) {
              if (pass.kind == ir::OpKind::forward) peak = std::max(peak, ++held);
              if (pass.kind == ir::OpKind::backward_input)
                postponed = std::max(postponed, ++waiting);
              if (pass.kind == ir::OpKind::backward_weight) --waiting;
              if (pass.kind == ir::OpKind::backward || pass.kind == ir::OpKind::backward_weight)
                --held;
            }
            if (schedule->splits_backward()) {
              EXPECT_EQ(schedule->weights_postponed(query), postponed) << schedule->name();
            }
            EXPECT_EQ(schedule->in_flight(query), peak) << schedule->name() << " stage " << stage;
            EXPECT_EQ(held, 0) << schedule->name();
          }
        }
      }
    }
  }
}

TEST(Interleaved, WarmUpIsThePapersWhereTheStagesDivideTheMicroBatches) {
  const ScheduleEntry& schedule = schedule_entry(ir::ScheduleKind::interleaved_one_f_one_b);
  for (const int chunks : {2, 3}) {
    for (int stage = 0; stage < 4; ++stage) {
      EXPECT_EQ(schedule.in_flight({4, stage, 8, chunks}),
                std::min(8 * chunks, 2 * (4 - stage - 1) + (chunks - 1) * 4 + 1));
    }
  }
}

/// Bubble over ideal time, with a backward pass of twice the forward's time.
double bubble(const ScheduleEntry& schedule, int stages, int micro_batches, int chunks) {
  const double ideal = 3.0 * micro_batches * chunks;
  return *play(schedule, stages, micro_batches, chunks, {1, 2, 1, 1}) / ideal - 1;
}

/// (p - 1) / (m v), v chunks per stage. [Narayanan et al. 2021, 2.2.1 and 2.2.2]
double bubble_over_ideal(int stages, int micro_batches, int chunks = 1) {
  return static_cast<double>(stages - 1) / (micro_batches * chunks);
}

TEST(Bubble, OfGpipeAnd1F1BIsThePapers) {
  for (const auto kind : {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b}) {
    for (const int stages : {2, 4, 8}) {
      EXPECT_NEAR(bubble(schedule_entry(kind), stages, 16, 1), bubble_over_ideal(stages, 16),
                  1e-12);
    }
  }
}

TEST(Bubble, OfInterleavingIsDividedByTheChunks) {
  for (const int stages : {2, 4, 8}) {
    for (const int chunks : {2, 4}) {
      EXPECT_NEAR(
          bubble(schedule_entry(ir::ScheduleKind::interleaved_one_f_one_b), stages, 16, chunks),
          bubble_over_ideal(stages, 16, chunks), 1e-12);
    }
  }
}

TEST(Bubble, OfZeroBubbleIsStagesTimesForwardPlusInputMinusWeights) {
  // [Qi et al., Table 2: ZB-H1, (p - 1)(T_F + T_B - T_W)] for T_W <= T_F.
  for (const int stages : {1, 2, 4, 8}) {
    for (const Durations& times : {Durations{1, 0, 1, 1}, {2, 0, 2, 1}, {1, 0, 1.2, 0.8}}) {
      const double forward = times[0];
      const double input = times[2];
      const double weights = times[3];
      const double busy = 20 * (forward + input + weights);
      EXPECT_NEAR(*play(schedule_entry(ir::ScheduleKind::zero_bubble), stages, 20, 1, times) - busy,
                  (stages - 1) * (forward + input - weights), 1e-9)
          << stages << " stages";
    }
  }
}

TEST(Bubble, OfZeroBubbleIsAThirdOf1F1BsForEqualHalves) {
  const double split =
      *play(schedule_entry(ir::ScheduleKind::zero_bubble), 8, 32, 1, {1, 0, 1, 1}) - 96;
  const double whole =
      *play(schedule_entry(ir::ScheduleKind::one_f_one_b), 8, 32, 1, {1, 2, 0, 0}) - 96;
  EXPECT_NEAR(split, whole / 3, 1e-9);
}

TEST(Bubble, OfZbVIsTheFillAloneForAsManyMicroBatchesAsStages) {
  // In passes of half a stage; the last stage starts p - 1 of them late. [Qi et al., NeurIPS 2024]
  const ScheduleEntry& schedule = schedule_entry(ir::ScheduleKind::zb_v);
  const Durations equal = {1, 0, 1, 1};
  for (int stages = 1; stages <= 16; ++stages) {
    EXPECT_NEAR(*play(schedule, stages, stages, 2, equal), 6 * stages + stages - 1, 1e-9);
    for (const int micro_batches : {2 * stages, 3 * stages, 4 * stages + 1, 8 * stages}) {
      const double bubble = *play(schedule, stages, micro_batches, 2, equal) - 6 * micro_batches;
      EXPECT_GE(bubble, stages - 1);
      EXPECT_LE(bubble, std::max(stages, 27 * (stages - 1) / 16 + 1)) << stages << " stages";
    }
  }
}

TEST(Bubble, OfDualPipeIsHalfThePapersForPassesThatAreNotPaired) {
  // [DeepSeek-V3 2024, Table 2: (p / 2 - 1)(F&B + B - 3 W)], of which half is left where what a
  // pass makes does not wait for the end of a pair.
  const ScheduleEntry& schedule = schedule_entry(ir::ScheduleKind::dual_pipe);
  for (int stages = 2; stages <= 16; stages += 2) {
    for (const int micro_batches : {2 * stages, 2 * stages + 2, 5 * stages}) {
      const double bubble =
          *play(schedule, stages, micro_batches, 2, {1, 0, 1, 1}) - 3.0 * micro_batches;
      const double papers = (stages / 2 - 1) * (3 + 2 - 3);
      EXPECT_NEAR(bubble, papers / 2, 1e-9) << stages << " stages";
      const std::vector<StageTime> times(as_size(stages), {{2}, {4}, {2}});
      EXPECT_NEAR(schedule.pipeline_time(times, micro_batches, 2).value - 3.0 * micro_batches,
                  bubble, 1e-9);
    }
  }
}

TEST(InFlight, OfDualPipeIsOneMoreThanStagesOnEveryStage) {
  const ScheduleEntry& schedule = schedule_entry(ir::ScheduleKind::dual_pipe);
  for (const int stages : {2, 4, 8, 16}) {
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_EQ(schedule.in_flight({stages, stage, 2 * stages, 2}), stages + 1);
      EXPECT_EQ(schedule.in_flight({stages, stage, 6 * stages, 2}), stages + 1);
    }
  }
}

TEST(InFlight, OfZbVIsAtMostWhat1F1BHoldsOnItsFirstStage) {
  const ScheduleEntry& schedule = schedule_entry(ir::ScheduleKind::zb_v);
  for (int stages = 1; stages <= 9; ++stages) {
    for (int stage = 0; stage < stages; ++stage) {
      EXPECT_LE(schedule.in_flight({stages, stage, 5 * stages, 2}), 2 * stages);
    }
  }
}

}  // namespace
}  // namespace orrery::models::schedule_law_test
