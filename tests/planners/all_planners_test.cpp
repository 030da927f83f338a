// Every planner of the catalog on the clusters of the papers and on odd inputs: a plan that is
// valid and fits in memory, or a reason in words; never a crash, and the same plan twice.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/spec/library.h"
#include "planners/catalog.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::all_planners_test {
namespace {

/// Planners whose full search takes longer than a test may, with what shortens it.
Options quick(const std::string& name) {
  if (name == "exhaustive") return {{"most_plans", "1000"}, {"most_structures", "5000"}};
  if (name == "hexiscale") return {{"rounds", "2"}};
  if (name == "hexiscale_milp") return {{"nodes", "2"}, {"variables", "60"}};
  if (name == "orrery") return {{"budget", "20"}, {"seeds", "own"}};
  return {};
}

/// Searches whose every step is long, with the budget that they get on the large clusters.
std::int64_t large_budget(const std::string& name) {
  if (name == "metis") return 2000;
  return 0;
}

PlannerResult run(const PlannerEntry& entry, const PlannerInput& input) {
  return run_planner(entry.name, input, quick(entry.name));
}

/// Planners without a plan, with the constraint that they name: "whale (device memory), ...".
class WithoutPlan {
 public:
  void add(const PlannerEntry& entry, const PlannerResult& result) {
    const auto* no = std::get_if<models::Infeasible>(&result.outcome);
    if (no == nullptr) return;
    text_ += fmt::format("{}{} ({})", text_.empty() ? "" : ", ", entry.name, no->constraint);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Every planner has a valid plan but those of `without`.
void expect_answers(const World& world, const std::string& what, const std::string& without,
                    const std::function<void(PlannerInput&)>& change = {}) {
  WithoutPlan found;
  for (const PlannerEntry* entry : catalog()) {
    PlannerInput input = world.input();
    if (change) change(input);
    const PlannerResult result = run(*entry, input);
    EXPECT_EQ(complaint(world, input, result), "") << entry->name << " on " << what;
    found.add(*entry, result);
  }
  EXPECT_EQ(found.text(), without) << what;
}

void expect_none(const World& world, const std::string& what) {
  for (const PlannerEntry* entry : catalog()) {
    const PlannerResult result = run(*entry, world.input());
    EXPECT_EQ(complaint(world, world.input(), result), "") << entry->name << " on " << what;
    EXPECT_TRUE(std::holds_alternative<models::Infeasible>(result.outcome))
        << entry->name << " has a plan for " << what;
  }
}

/// A planner that may choose more must not be worse by its own estimate, without a judge. With
/// use_all=auto a plan over all devices, where there is one, comes before any estimate.
TEST(Freedom, IsNeverWorseByThePlannersOwnEstimate) {
  const std::vector<ir::Recompute> full = {ir::Recompute::full};
  const std::vector<ir::Recompute> both = {ir::Recompute::none, ir::Recompute::full};
  struct Job {
    std::vector<int> zero;
    std::vector<ir::Recompute> recompute;
  };
  const std::pair<Job, Job> cases[] = {{{{0}, full}, {{0, 1, 2, 3}, full}},
                                       {{{0}, full}, {{0}, both}}};
  for (const PlannerEntry* entry : catalog()) {
    const std::string name = entry->name;
    Options options = quick(name);
    if (name == "exhaustive") options = {{"most_plans", "100000000"}};
    if (name == "hexiscale_milp") continue;  // A budget of nodes is no search.
    if (name == "orrery") continue;          // The judge decides, not its estimate.
    options.emplace_back("evaluate_top", "1");
    for (const OptionInfo& option : entry->options()) {
      if (option.name == "use_all") options.emplace_back("use_all", "no");
    }
    int compared = 0;
    for (std::uint64_t number = 0; number < 40; ++number) {
      const auto world = tiny_world(number);
      if (world->cluster.size() > 4) continue;
      for (const auto& [narrow, wide] : cases) {
        const auto estimate = [&](const Job& job) {
          world->job.allowed.zero_stages = job.zero;
          world->job.allowed.recompute = job.recompute;
          return run_planner(entry->name, world->input(), options);
        };
        const PlannerResult before = estimate(narrow);
        if (plan_of(before) == nullptr) continue;
        const PlannerResult after = estimate(wide);
        ASSERT_NE(plan_of(after), nullptr) << name << " loses its plan on problem " << number;
        EXPECT_LE(estimate_of(after), (1 + 1e-9) * estimate_of(before))
            << name << ", problem " << number << ", ZeRO of " << wide.zero.size()
            << ", recompute of " << wide.recompute.size();
        ++compared;
      }
    }
    EXPECT_GT(compared, name == "fsdp" ? -1 : 20) << name;  // fsdp needs ZeRO-3.
  }
}

const models::Library& library() {
  static const models::Library kAll = [] {
    config::Diagnostics diagnostics;
    models::Library read = models::load_library(models::default_library_root(), diagnostics);
    diagnostics.raise();
    return read;
  }();
  return kAll;
}

void expect_answers_on(const char* cluster, const char* model, std::int64_t batch,
                       std::int64_t sequence, const std::string& without) {
  config::Diagnostics diagnostics;
  const models::Cluster loaded = models::load_cluster(cluster, library(), {}, diagnostics);
  const ir::ModelShape shape = models::load_model(model, library(), {}, diagnostics);
  diagnostics.raise();
  const World world(loaded, shape, batch, sequence);
  WithoutPlan found;
  for (const PlannerEntry* entry : catalog()) {
    PlannerInput input = world.input();
    input.work_budget = large_budget(entry->name);
    const PlannerResult result = run(*entry, input);
    EXPECT_EQ(complaint(world, input, result), "") << entry->name << " on " << cluster;
    found.add(*entry, result);
  }
  EXPECT_EQ(found.text(), without) << cluster;
}

TEST(AllPlanners, AnswerOnTheCluster240OfHexiscale) {
  expect_answers_on("hexiscale_240", "llama_30b", 1024, 4096,
                    "deepspeed (device memory), fsdp (ZeRO stage), exhaustive (size of the "
                    "search), hexiscale_milp (size of the program)");
}

TEST(AllPlanners, AnswerOnTheClusterOfHetu) {
  expect_answers_on("hetu", "hetu_32b", 64, 4096,
                    "deepspeed (device memory), fsdp (ZeRO stage), exhaustive (size of the "
                    "search), hexiscale_milp (size of the program)");
}

TEST(AllPlanners, AnswerOnOneGpu) {
  expect_answers(World(make_cluster({{"X", 100, 24, 1, 100, 1}}, 5), small_model(4), 4, 512),
                 "one GPU", "fsdp (ZeRO stage)");
}

TEST(AllPlanners, AnswerOnThreeGpusOfThreeTypes) {
  const std::vector<Machines> three = {
      {"X", 300, 80, 1, 100, 1}, {"Y", 80, 24, 1, 100, 1}, {"Z", 150, 3, 1, 100, 1}};
  expect_answers(World(make_cluster(three, 5), small_model(6), 8, 512), "three types",
                 "fsdp (ZeRO stage)");
}

TEST(AllPlanners, UseOnlyTheDevicesThatTheyAreGiven) {
  const World world(make_cluster({{"X", 300, 24, 4, 100, 1}, {"Y", 80, 24, 2, 100, 1}}, 5),
                    small_model(6), 8, 512);
  expect_answers(world, "devices 1, 3 and 4 of 6", "fsdp (ZeRO stage)", [](PlannerInput& input) {
    input.devices = {DeviceId{1}, DeviceId{3}, DeviceId{4}};
  });
  expect_answers(
      world, "no device",
      "megatron_grid (symmetric grid), autohet (micro-batch size), hexiscale (number of "
      "devices), galvatron (job), amp (job), hetu (tensor-parallel groups), deepspeed "
      "(equal batches), fsdp (ZeRO stage), exhaustive (devices), hexiscale_milp (number "
      "of devices), hethub (three-level tree), alpa (input), piper (input), whale "
      "(annotations), metis (profile), varuna (number of devices), orrery (number of devices)",
      [](PlannerInput& input) { input.devices.clear(); });
}

TEST(AllPlanners, AnswerForOddBatchesAndLayers) {
  const auto cluster = [] {
    return make_cluster({{"X", 300, 24, 2, 100, 2}, {"Y", 80, 24, 2, 100, 1}}, 5);
  };
  expect_answers(World(cluster(), small_model(6), 7, 512), "a batch of 7",
                 "fsdp (ZeRO stage), hexiscale_milp (size of the program)");
  expect_answers(World(cluster(), small_model(6), 1, 512), "a batch of 1",
                 "fsdp (ZeRO stage), hexiscale_milp (size of the program)");
  expect_answers(
      World(cluster(), small_model(1), 8, 512), "one layer",
      "hexiscale (layers of stages), galvatron (even pipeline), amp (symmetric grid), fsdp "
      "(ZeRO stage)");
  expect_answers(World(cluster(), small_model(7), 9, 512), "seven layers",
                 "fsdp (ZeRO stage), hexiscale_milp (size of the program)");
  expect_answers(World(make_cluster({{"X", 300, 24, 3, 200, 1}, {"Y", 80, 16, 1, 100, 3}}, 2),
                       small_model(7), 13, 1024),
                 "a batch of 13 on nodes of three and of one",
                 "fsdp (ZeRO stage), hexiscale_milp (size of the program)");
}

TEST(AllPlanners, HavePlansForOddClustersInEveryMode) {
  const std::vector<std::pair<const char*, Options>> modes = {
      {"alpa", {{"submeshes", "small_power_of_two"}}},
      {"alpa", {{"submeshes", "all"}}},
      {"amp", {{"mode", "fixed"}}},
      {"amp", {{"mode", "as_published"}}},
      {"autohet", {{"group_memory", "sum"}}},
      {"autohet", {{"tensor_links", "nvlink"}, {"power", "peak"}}},
      {"galvatron", {{"mode", "fixed"}}},
      {"galvatron", {{"mode", "as_published"}}},
      {"hetu", {}},
      {"metis", {}},
      {"piper", {{"memory", "paper"}}},
      {"piper", {{"memory", "plan"}}},
      {"varuna", {}},
  };
  for (const int gpus : {1, 2, 3, 5, 6}) {
    World world(make_cluster({{"A", 300, 80, gpus, 200, 1}, {"B", 80, 80, gpus, 16, 2}}, 5),
                small_model(19), 30, 512);
    world.job.allowed.recompute = {ir::Recompute::selective};
    for (const auto& [planner, mode] : modes) {
      const PlannerResult result = run_planner(planner, world.input(), mode);
      std::string where = std::string(planner) + " on nodes of " + std::to_string(gpus);
      for (const auto& [name, value] : mode) where += " " + name + "=" + value;
      EXPECT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << where;
      EXPECT_EQ(complaint(world, world.input(), result), "") << where;
    }
  }
}

TEST(AllPlanners, AnswerOnNodesOfOneGpu) {
  expect_answers(World(make_cluster({{"X", 300, 24, 1, 100, 3}, {"Y", 80, 24, 1, 100, 2}}, 5),
                       small_model(6), 8, 512),
                 "nodes of one GPU", "fsdp (ZeRO stage), hexiscale_milp (size of the program)");
}

TEST(AllPlanners, SayWhyNothingFits) {
  expect_none(World(make_cluster({{"X", 300, 2, 4, 100, 2}}, 5), llama2_13b(), 8, 512),
              "13 billion parameters on 16 GiB");
  expect_none(World(make_cluster({{"X", 300, 0, 2, 100, 1}}, 5), small_model(2), 4, 512),
              "no memory at all");
}

TEST(AllPlanners, KeepToWhatTheJobAllows) {
  const auto make = [] {
    return std::make_unique<World>(
        make_cluster({{"X", 300, 24, 2, 100, 1}, {"Y", 80, 24, 2, 100, 1}}, 5), small_model(4), 8,
        512);
  };
  auto world = make();
  world->job.allowed.max_micro_batch_size = 0;
  expect_none(*world, "micro-batches of no sample");
  world = make();
  world->job.allowed.schedules = {ir::ScheduleKind::interleaved_one_f_one_b};
  expect_answers(
      *world, "virtual stages only",
      "megatron_grid (symmetric grid), autohet (schedule), hexiscale (schedule), galvatron (job), "
      "amp (job), hetu (pipelines), deepspeed (schedule), fsdp (ZeRO stage), exhaustive "
      "(schedule), hexiscale_milp (schedule), hethub (schedule), alpa (schedule), piper "
      "(schedule), whale (annotations), metis (schedules), varuna (schedule)");
  world = make();
  world->job.allowed.schedules = {ir::ScheduleKind::gpipe};
  expect_answers(*world, "GPipe only", "fsdp (ZeRO stage), hethub (schedule)");
  world = make();
  world->job.allowed.recompute = {ir::Recompute::selective};
  expect_answers(*world, "selective recompute only", "fsdp (ZeRO stage)");
  world = make();
  world->job.allowed.recompute = {ir::Recompute::experts};
  expect_answers(*world, "recompute of experts only", "fsdp (ZeRO stage), orrery (recompute)");
  const std::vector<std::pair<int, std::string>> stages = {
      {1, "fsdp (ZeRO stage)"},
      {2, "hetu (ZeRO stage), fsdp (ZeRO stage)"},
      {3, "hetu (ZeRO stage)"}};
  for (const auto& [stage, without] : stages) {
    world = make();
    world->job.allowed.zero_stages = {stage};
    expect_answers(*world, fmt::format("ZeRO-{} only", stage), without);
  }
  world = make();
  world->job.allowed.max_tensor_parallel = 1;
  world->job.allowed.max_micro_batch_size = 1;
  expect_answers(*world, "no tensor parallelism, micro-batches of one", "fsdp (ZeRO stage)");
}

TEST(AllPlanners, AmpAndGalvatronDoNotSeeWhichNodeIsFast) {
  const auto world = [](double first, double last) {
    return World(make_cluster({{"A", first, 32, 4, 20, 1}, {"B", last, 32, 4, 20, 1}}, 2),
                 small_model(12), 16, 1024);
  };
  const World fast_first = world(300, 60);
  const World fast_last = world(60, 300);
  for (const char* planner : {"amp", "galvatron"}) {
    const PlannerResult a = run_planner(planner, fast_first.input());
    const PlannerResult b = run_planner(planner, fast_last.input());
    EXPECT_NEAR(a.report.estimate->value, b.report.estimate->value, 1e-12) << planner;
    EXPECT_EQ(std::get<ir::Plan>(a.outcome).pipelines, std::get<ir::Plan>(b.outcome).pipelines);
  }
}

TEST(AllPlanners, ReturnTheSamePlanTwice) {
  const World world(make_cluster({{"X", 300, 8, 4, 100, 1}, {"Y", 80, 24, 2, 100, 1}}, 5),
                    small_model(6), 12, 512);
  for (const PlannerEntry* entry : catalog()) {
    const PlannerResult one = run(*entry, world.input(7));
    const PlannerResult two = run(*entry, world.input(7));
    ASSERT_EQ(one.outcome.index(), two.outcome.index()) << entry->name;
    EXPECT_EQ(one.report.work, two.report.work) << entry->name;
    if (const auto* plan = std::get_if<ir::Plan>(&one.outcome)) {
      EXPECT_EQ(*plan, std::get<ir::Plan>(two.outcome)) << entry->name;
    }
  }
}

TEST(AllPlanners, StopExactlyAtTheirBudget) {
  const World world(make_cluster({{"X", 300, 24, 4, 100, 1}, {"Y", 80, 24, 2, 100, 1}}, 5),
                    small_model(6), 12, 512);
  for (const PlannerEntry* entry : catalog()) {
    const PlannerResult all = run(*entry, world.input());
    for (const std::int64_t budget : {std::int64_t{1}, all.report.work / 2, all.report.work}) {
      if (budget < 1) continue;
      PlannerInput input = world.input();
      input.work_budget = budget;
      const PlannerResult some = run(*entry, input);
      EXPECT_LE(some.report.work, budget) << entry->name;
      if (budget < all.report.work) {
        EXPECT_EQ(some.report.work, budget) << entry->name;
        EXPECT_FALSE(some.report.complete) << entry->name << " with a budget of " << budget;
      }
      EXPECT_EQ(complaint(world, input, some), "") << entry->name << " with " << budget;
    }
  }
}

TEST(AllPlanners, EndWhenTheyAreCanceledBeforeTheStart) {
  World world(mixed_cluster(240), llama_30b(), 1024);
  world.job.allowed.zero_stages = {0, 3};  // So that none has its answer without a search.
  const std::atomic<bool> canceled = true;
  for (const PlannerEntry* entry : catalog()) {
    PlannerInput input = world.input();
    input.canceled = &canceled;
    const PlannerResult result = run_planner(entry->name, input);
    EXPECT_FALSE(result.report.complete) << entry->name;
    EXPECT_EQ(complaint(world, input, result), "") << entry->name;
  }
}

}  // namespace
}  // namespace orrery::planners::all_planners_test
