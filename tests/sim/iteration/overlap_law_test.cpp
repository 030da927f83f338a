/// What is hidden beside compute, and what does compute lose to it? As much as the profile says of
/// the time in which both ran.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

#include "models/ir/op_traits.h"
#include "models/lower/lower.h"
#include "tests/sim/iteration/support.h"

namespace orrery::sim::overlap_law_test {
namespace {

struct Busy {
  std::int64_t start = 0, end = 0;
};

/// Nanoseconds of `busy`, which do not overlap, that also lie in one of `beside`.
std::int64_t common(const std::vector<Busy>& busy, std::vector<Busy> beside) {
  std::sort(beside.begin(), beside.end(),
            [](const Busy& a, const Busy& b) { return a.start < b.start; });
  std::int64_t sum = 0;
  for (const Busy& own : busy) {
    std::int64_t from = own.start;
    for (const Busy& other : beside) {
      from = std::max(from, other.start);
      const std::int64_t until = std::min(own.end, other.end);
      if (until <= from) continue;
      sum += until - from;
      from = until;
    }
  }
  return sum;
}

class OverlapLoss : public ::testing::Test {
 protected:
  OverlapLoss() {
    ClusterShape nodes;
    nodes.nodes = 4;
    nodes.nic = BytesPerSecond{2e9};
    cluster_ = make_cluster(nodes);
    shape_.pipelines = 4;
    shape_.stages = 2;
    shape_.overlap = true;
  }

  ir::Program program() const {
    ir::Plan plan = make_plan(shape_, workload_.size());
    plan.communication.bucket = Bytes{1};
    return models::lower(plan, cluster_, workload_, make_job(), {.collapsed = collapsed_});
  }

  ir::Profile profile(double share) const {
    ir::Profile profile;
    for (const models::GpuType& gpu : cluster_.gpu_types) {
      profile.overlap_losses.push_back({gpu.name, share, {}});
    }
    return profile;
  }

  Outcome run(double share) const {
    return simulate(cluster_, workload_, program(), options_, profile(share));
  }

  /// Nanoseconds that each rank computed, without its inner collectives, and of them those beside
  /// collectives.
  struct Told {
    std::vector<std::int64_t> computed, beside;
  };
  Told told(const Outcome& outcome) const {
    const ir::Program lowered = program();
    std::vector<std::vector<Busy>> compute(lowered.ranks.size()), collectives(compute.size());
    std::istringstream lines(outcome.spans);
    std::int64_t op = 0, start = 0, end = 0, inner = 0;
    for (std::string rank, bytes; lines >> rank >> op >> start >> end >> inner >> bytes;) {
      const ir::Op& of = lowered.ops[as_size(op)];
      if (ir::is_compute(of.kind)) compute[of.rank.index()].push_back({start, end - inner});
      if (of.stream == ir::Stream::collective) collectives[of.rank.index()].push_back({start, end});
    }
    Told told;
    for (std::size_t rank = 0; rank < compute.size(); ++rank) {
      std::int64_t sum = 0;
      for (const Busy& busy : compute[rank]) sum += busy.end - busy.start;
      told.computed.push_back(sum);
      told.beside.push_back(common(compute[rank], collectives[rank]));
    }
    return told;
  }

  models::Cluster cluster_;
  models::Workload workload_ = make_workload(8);
  PlanShape shape_;
  IterationOptions options_;
  bool collapsed_ = true;
};

TEST_F(OverlapLoss, IsTheShareOfTheTimeInWhichBothRan) {
  constexpr double kShare = 0.3;
  std::int64_t beside = 0;
  for (const auto schedule :
       {ir::ScheduleKind::gpipe, ir::ScheduleKind::one_f_one_b, ir::ScheduleKind::zero_bubble}) {
    shape_.schedule = schedule;
    const Outcome free = run(0);
    const Outcome slowed = run(kShare);
    EXPECT_GT(slowed.iteration_time, free.iteration_time);
    const Told before = told(free);
    const Told after = told(slowed);
    for (std::size_t rank = 0; rank < before.computed.size(); ++rank) {
      const double expected = static_cast<double>(before.computed[rank]) +
                              kShare * static_cast<double>(after.beside[rank]);
      EXPECT_NEAR(static_cast<double>(after.computed[rank]), expected, 100) << "rank " << rank;
      beside += after.beside[rank];
    }
  }
  EXPECT_GT(beside, 1'000'000) << "nothing was hidden: nothing was tested";
}

TEST_F(OverlapLoss, HoldsForPassesWithCollectivesOfTheirOwn) {
  constexpr double kShare = 0.3;
  shape_.pipelines = 2;
  shape_.tensor_parallel = 2;
  for (const InnerMode mode :
       {InnerMode::closed_form, InnerMode::aggregated, InnerMode::per_block}) {
    collapsed_ = mode == InnerMode::closed_form;
    options_.inner = mode;
    const Told before = told(run(0));
    const Outcome slowed = run(kShare);
    const Told after = told(slowed);
    for (std::size_t rank = 0; rank < before.computed.size(); ++rank) {
      EXPECT_GT(after.computed[rank], before.computed[rank]);
      EXPECT_LE(static_cast<double>(after.computed[rank]),
                static_cast<double>(before.computed[rank]) / (1 - kShare));
    }
  }
}

TEST_F(OverlapLoss, IsNothingWhereNothingIsHidden) {
  shape_.overlap = false;
  EXPECT_EQ(run(0.5).iteration_time, run(0).iteration_time);
}

/// Iteration times, and bytes of all links, of a plan whose tensor-parallel collectives passes
/// hide.
class Hidden : public OverlapLoss {
 protected:
  Hidden() {
    shape_.pipelines = 1;
    shape_.tensor_parallel = 2;
    shape_.overlap = false;
  }
  Outcome run(double exposed, bool overlaps = true) const {
    models::Job job = make_job();
    if (overlaps) job.hidden_collectives = {ir::Purpose::tensor_parallel};
    ir::Profile profile;
    for (const models::GpuType& gpu : cluster_.gpu_types) {
      profile.exposed_collectives.push_back({gpu.name, ir::Purpose::tensor_parallel, exposed, {}});
    }
    return simulate(cluster_, workload_, job, program(), options_, profile);
  }
};

TEST_F(Hidden, CollectivesTakeTheirExposedShare) {
  for (const InnerMode mode :
       {InnerMode::closed_form, InnerMode::aggregated, InnerMode::per_block}) {
    options_.inner = mode;
    collapsed_ = mode == InnerMode::closed_form;
    const Outcome all = run(1), half = run(0.5), none = run(0), not_asked = run(0, false);
    EXPECT_EQ(all.iteration_time, not_asked.iteration_time);
    EXPECT_EQ(all.spans, not_asked.spans);
    EXPECT_LT(none.iteration_time, half.iteration_time);
    EXPECT_NEAR(half.iteration_time, (all.iteration_time + none.iteration_time) / 2,
                4e-3 * all.iteration_time)
        << "up to a path's latency in each pass";
    for (const Outcome& hidden : {half, none}) {
      ASSERT_EQ(hidden.links.size(), all.links.size());
      for (std::size_t i = 0; i < all.links.size(); ++i) {
        EXPECT_EQ(hidden.links[i].first, all.links[i].first);
        EXPECT_NEAR(hidden.links[i].second, all.links[i].second, 1e-9 * all.links[i].second)
            << "links carry the same";
      }
      std::int64_t computed = 0, before = 0;
      for (const std::int64_t of : told(hidden).computed) computed += of;
      for (const std::int64_t of : told(all).computed) before += of;
      EXPECT_NEAR(static_cast<double>(computed), static_cast<double>(before), 100)
          << "what is hidden takes nothing from compute";
    }
  }
}

TEST_F(Hidden, CollectivesThatAreLongerThanThePassComeOutAsLongAsTheyAre) {
  cluster_.links.begin()->second.bandwidth = BytesPerSecond{1e6};
  for (auto& [name, link] : cluster_.links) link.bandwidth = BytesPerSecond{1e6};
  models::seal(cluster_);
  const Outcome none = run(0), all = run(1);
  std::int64_t computed = 0;
  for (const std::int64_t of : told(all).computed) computed = std::max(computed, of);
  EXPECT_GT(none.iteration_time, 2e-9 * static_cast<double>(computed));
  EXPECT_LT(none.iteration_time, all.iteration_time);
}

// Iterations that follow each other at once hide the end of one behind the start of the next.
TEST_F(OverlapLoss, AlsoSlowsTheNextIterationOfAStaggeredProgram) {
  ir::Plan plan = make_plan(shape_, workload_.size());
  plan.communication.bucket = Bytes{1};
  plan.optimizer = ir::OptimizerStart::staggered;
  const ir::Program staggered =
      models::lower(plan, cluster_, workload_, make_job(), {.collapsed = true});
  const double free = simulate(cluster_, workload_, staggered).iteration_time;
  const double slowed = simulate(cluster_, workload_, staggered, {}, profile(0.3)).iteration_time;
  EXPECT_GT(slowed, free);
  EXPECT_LT(slowed, free / 0.7);
}

/// Replicas of one stage with ZeRO-1. Parameters are gathered after the optimizer, or in front of
/// the next iteration's forward passes, block by block.
class Gathers : public OverlapLoss {
 protected:
  Gathers() {
    shape_.stages = 1;
    shape_.micro_batches = 2;
  }
  ir::Program gathering(bool first) const {
    ir::Plan plan = make_plan(shape_, workload_.size());
    plan.communication.bucket = Bytes{1};
    plan.communication.parameter_overlap = first;
    for (ir::Pipeline& pipeline : plan.pipelines) {
      for (ir::Stage& stage : pipeline.stages) stage.segments.front().zero.stage = 1;
    }
    return models::lower(plan, cluster_, workload_, make_job(), {.collapsed = collapsed_});
  }
};

TEST_F(Gathers, InFrontOfPassesCostWhatThesePassesWaitForThem) {
  for (const double bandwidth : {0.2e9, 2e9, 20e9}) {
    ClusterShape nodes;
    nodes.nodes = 4;
    nodes.nic = BytesPerSecond{bandwidth};
    cluster_ = make_cluster(nodes);
    const ir::Program program = gathering(true);
    const Outcome after = simulate(cluster_, workload_, gathering(false));
    const Outcome before = simulate(cluster_, workload_, program);
    std::vector<Busy> gathers, passes;  // Of the first rank, in the order of its streams.
    std::istringstream lines(before.spans);
    std::int64_t op = 0, start = 0, end = 0, inner = 0;
    std::map<std::int64_t, Busy> spans;
    for (std::string rank, bytes; lines >> rank >> op >> start >> end >> inner >> bytes;) {
      spans[op] = {start, end};
    }
    for (const auto& [id, span] : spans) {
      const ir::Op& of = program.ops[as_size(id)];
      if (of.rank.value != 0) continue;
      if (of.purpose == ir::Purpose::zero) gathers.push_back(span);
      const bool opens = of.kind == ir::OpKind::forward && of.micro_batch.value == 0;
      if (opens) passes.push_back(span);
    }
    ASSERT_EQ(gathers.size(), as_size(workload_.size()));
    ASSERT_EQ(passes.size(), gathers.size());
    std::int64_t gathered = 0, passed = 0, begins = 0, all = 0;
    for (std::size_t i = 0; i < passes.size(); ++i) {
      gathered += gathers[i].end - gathers[i].start;
      EXPECT_NEAR(static_cast<double>(gathers[i].end), static_cast<double>(gathered), 100);
      begins = std::max(passed, gathered);
      EXPECT_NEAR(static_cast<double>(passes[i].start), static_cast<double>(begins), 100)
          << "block " << i;
      passed = begins + passes[i].end - passes[i].start;
      all += passes[i].end - passes[i].start;
    }
    EXPECT_NEAR(after.iteration_time - before.iteration_time,
                1e-9 * static_cast<double>(gathered + all - passed), 1e-6);
    EXPECT_GT(gathered + all, passed);
  }
}

TEST_F(Gathers, InFrontOfPassesCarryTheSameBytesAndKeepTheSameMemory) {
  for (const int stages : {1, 2}) {
    shape_.stages = stages;
    const Outcome after = simulate(cluster_, workload_, gathering(false));
    const Outcome before = simulate(cluster_, workload_, gathering(true));
    EXPECT_LT(before.iteration_time, after.iteration_time);
    EXPECT_EQ(before.peak_memory, after.peak_memory);
    ASSERT_EQ(before.links.size(), after.links.size());
    for (std::size_t i = 0; i < after.links.size(); ++i) {
      EXPECT_EQ(before.links[i].first, after.links[i].first);
      EXPECT_NEAR(before.links[i].second, after.links[i].second, 1e-9 * after.links[i].second);
    }
  }
}

}  // namespace
}  // namespace orrery::sim::overlap_law_test
