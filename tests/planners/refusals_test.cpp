// What planners say where there is no plan: the constraint and a witness, each for its own reason.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/planners/support.h"

namespace orrery::planners::refusals_test {
namespace {

struct Given {
  std::vector<Machines> machines;
  ir::ModelShape shape;
  std::int64_t batch;
  void (*change)(models::Job&) = [](models::Job&) {};
  std::int64_t sequence = 512;
};

struct Refusal {
  const char* planner;
  Given given;
  Options options;
  const char* constraint;
  const char* witness = "";  ///< A part of it.
};

/// 13 billion parameters on four GPUs with this much memory in GiB.
Given too_small(double gib) {
  return {{{"Tiny", 100, gib, 4, 100, 1}}, llama2_13b(), 16, [](models::Job&) {}, 4096};
}
/// One node that has a plan, but for `change`.
Given fits(void (*change)(models::Job&)) {
  return {{{"X", 100, 24, 4, 100, 1}}, small_model(6), 8, change};
}
void nothing(models::Job&) {}
void only_interleaved(models::Job& job) {
  job.allowed.schedules = {ir::ScheduleKind::interleaved_one_f_one_b};
}
void only_gpipe(models::Job& job) { job.allowed.schedules = {ir::ScheduleKind::gpipe}; }
void no_zero_stage(models::Job& job) { job.allowed.zero_stages = {}; }
void zero_three(models::Job& job) { job.allowed.zero_stages = {3}; }
void below_zero_three(models::Job& job) { job.allowed.zero_stages = {0, 1, 2}; }
void no_recompute(models::Job& job) { job.allowed.recompute.clear(); }
void no_sample(models::Job& job) { job.allowed.max_micro_batch_size = 0; }
void batch_of_seven(models::Job& job) { job.global_batch = 7; }

const std::vector<Refusal>& refusals() {
  static const Given kLittle = {{{"X", 300, 1, 4, 200, 1}}, small_model(8), 8};
  static const Given kSeven = {{{"X", 100, 80, 7, 10, 1}}, small_model(5), 3};
  static const Given kNoMemory = {{{"A", 100, 0, 2, 200, 1}}, small_model(7), 13};
  static const Given kTight = {
      {{"Tight", 100, 25, 8, 100, 1}}, llama2_13b(), 16, [](models::Job&) {}, 4096};
  static const Given kMany = {{{"X", 300, 80, 8, 200, 65}}, small_model(3), 4};
  static const std::vector<Refusal> kAll = {
      {"alpa", kLittle, {}, "device memory", "X has 0.25 GiB"},
      {"alpa", kLittle, {{"micro_batches", "3"}}, "", "3 micro-batches do not divide a batch of 8"},
      {"alpa", fits(no_zero_stage), {}, "job"},
      {"alpa", fits(only_interleaved), {}, "schedule"},
      {"amp", kSeven, {{"mode", "fixed"}}, "symmetric grid", "all 7 GPUs"},
      {"amp", kSeven, {{"mode", "as_published"}}, "symmetric grid", "all 7 GPUs"},
      {"autohet", kNoMemory, {}, ""},
      {"autohet", kNoMemory, {{"group_memory", "sum"}}, ""},
      {"autohet", kSeven, {{"micro_batch_size", "2"}}, ""},
      {"deepspeed", fits(nothing), {{"zero_stage", "3"}}, "ZeRO stage"},
      {"deepspeed", fits(nothing), {{"recompute", "selective"}}, "recompute"},
      {"deepspeed", fits(nothing), {{"sequence_degree", "2"}}, "not expressible"},
      {"deepspeed", fits(nothing), {{"data_parallel", "3"}}, "not expressible"},
      {"deepspeed", fits(batch_of_seven), {{"use_all", "yes"}}, "equal batches"},
      {"exhaustive", fits(no_sample), {}, "micro-batch size"},
      {"exhaustive", fits(no_recompute), {}, "recompute"},
      {"exhaustive", fits(only_interleaved), {}, "schedule"},
      {"exhaustive", fits(no_zero_stage), {}, "ZeRO"},
      {"exhaustive", {{{"X", 300, 0.8, 2, 200, 1}}, small_model(3), 4}, {}, "device memory"},
      {"exhaustive", kMany, {}, "size of the search"},
      {"fsdp",
       fits(below_zero_three),
       {},
       "ZeRO stage",
       "3 needs a job that allows it; this one allows 0, 1, 2"},
      {"galvatron", too_small(4), {}, "device memory", "GiB on the smallest GPU"},
      {"hethub", too_small(1), {}, "device memory", "Tiny has 1.0 GiB"},
      {"hethub", fits(only_gpipe), {}, "schedule"},
      {"hethub", fits(nothing), {{"tensor_parallel", "3"}}, ""},
      {"hetu", too_small(1), {}, "device memory"},
      {"hetu", fits(zero_three), {}, "ZeRO stage"},
      {"hexiscale", too_small(4), {}, "", "the 4 devices have 16.0 GiB"},
      // The states fit, but not with activations and whole layers.
      {"hexiscale", kTight, {}, "", "8 devices"},
      {"megatron_grid", too_small(4), {}, "device memory", "Tiny has 4.0 GiB"},
      {"piper", kLittle, {}, "device memory", "X has 0.25 GiB"},
      {"piper", kLittle, {{"micro_batch_size", "3"}}, "micro-batches"},
      {"piper", fits(no_zero_stage), {}, "job"},
      {"piper", fits(only_interleaved), {}, "schedule"},
      {"varuna", kLittle, {}, "device memory", "GiB, the smallest GPU, X, has"},
      {"whale", too_small(0.5), {}, "device memory", "Tiny has 0.5 GiB"},
  };
  return kAll;
}

TEST(Refusals, NameTheConstraintAndAWitness) {
  for (const Refusal& row : refusals()) {
    World world(make_cluster(row.given.machines, 5), row.given.shape, row.given.batch,
                row.given.sequence);
    row.given.change(world.job);
    const PlannerResult result = run_planner(row.planner, world.input(), row.options);
    const auto* no = std::get_if<models::Infeasible>(&result.outcome);
    std::string where = std::string(row.planner) + " (" + row.constraint + ")";
    for (const auto& [name, value] : row.options) where += " " + name + "=" + value;
    ASSERT_NE(no, nullptr) << where;
    if (*row.constraint != '\0') {
      EXPECT_EQ(no->constraint, row.constraint) << where;
    }
    EXPECT_NE(no->witness, "") << where;
    EXPECT_NE(no->witness.find(row.witness), std::string::npos) << where << ": " << no->witness;
  }
}

TEST(Refusals, CountEveryPlanThatMemoryRejects) {
  const Given small = too_small(4);
  const World world(make_cluster(small.machines, 5), small.shape, small.batch, small.sequence);
  for (const char* planner : {"galvatron", "megatron_grid"}) {
    const SearchReport report = run_planner(planner, world.input()).report;
    EXPECT_GT(report.plans_examined, 0) << planner;
    EXPECT_EQ(report.rejected_by_memory, report.plans_examined) << planner;
  }
}

}  // namespace
}  // namespace orrery::planners::refusals_test
