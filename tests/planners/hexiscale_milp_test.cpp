#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/cost/hexiscale_model.h"
#include "planners/hexiscale_milp/space.h"
#include "planners/kit/integers.h"
#include "planners/kit/milp.h"
#include "planners/kit/plan_parts.h"
#include "tests/planners/family.h"

namespace orrery::planners::hexiscale_milp_test {
namespace {

#define NEEDS_SOLVER() \
  if (!milp_available()) GTEST_SKIP() << "this build has no MILP solver (ORRERY_WITH_CBC)"

constexpr const char* kName = "hexiscale_milp";

/// The first 48 problems of the family, without those whose GPUs times layers are above 20, so that
/// the test takes seconds (the brute force agrees on all 80).
constexpr int kProblems = 48;
constexpr int kMostGpusTimesLayers = 20;

const Options kToTheEnd = {{"nodes", "100000"}, {"effort", "1e12"}};

bool small_enough(const World& world) {
  return world.cluster.size() * count_layers(world.workload) <= kMostGpusTimesLayers;
}

/// Every plan of HexiScale's space, one by one: chains of tensor-parallel groups inside nodes, all
/// numbers of layers, all shares of the batch; priced by the cost model, memory by check_memory.
class BruteForce {
 public:
  BruteForce(const World& world, bool use_all) : world_(world), use_all_(use_all) {
    // Groups of interchangeable GPUs differ in names only; where there are few, try all names.
    by_name_ = world.cluster.size() <= 3;
  }
  void every_name() { by_name_ = true; }

  std::optional<double> best() {
    used_.assign(world_.cluster.size(), false);
    grow();
    return best_;
  }

 private:
  using Chain = std::vector<std::vector<DeviceId>>;

  /// Adds a group to the last chain, begins a chain, or prices what is there.
  void grow() {
    const bool all = std::all_of(used_.begin(), used_.end(), [](bool u) { return u; });
    if (!chains_.empty() && (all || !use_all_)) price_layouts();
    for (const NodeId node : nodes()) {
      for (const int degree : {1, 2, 4}) {
        std::vector<DeviceId> group;
        pick(world_.cluster.devices_of(node), 0, degree, group);
      }
    }
  }

  std::vector<NodeId> nodes() const {
    std::vector<NodeId> result;
    for (std::size_t n = 0; n < world_.cluster.nodes.size(); ++n) {
      result.emplace_back(static_cast<int>(n));
    }
    return result;
  }

  void pick(const std::vector<DeviceId>& from, std::size_t position, int left,
            std::vector<DeviceId>& group) {
    if (left == 0) {
      place(group);
      return;
    }
    for (std::size_t i = position; i < from.size(); ++i) {
      if (used_[from[i].index()]) continue;
      used_[from[i].index()] = true;
      group.push_back(from[i]);
      pick(from, i + 1, left - 1, group);
      group.pop_back();
      used_[from[i].index()] = false;
      if (!by_name_) break;
    }
  }

  void place(const std::vector<DeviceId>& group) {
    chains_.push_back({group});  // Chains ascend by their first device: their order is a name.
    const bool ordered = chains_.size() < 2 || chains_[chains_.size() - 2].front().front() <
                                                   chains_.back().front().front();
    if (ordered) grow();
    chains_.pop_back();
    if (chains_.empty()) return;
    chains_.back().push_back(group);
    if (static_cast<int>(chains_.back().size()) <= count_layers(world_.workload)) grow();
    chains_.back().pop_back();
  }

  void price_layouts() {
    if (static_cast<std::int64_t>(chains_.size()) > world_.job.global_batch) return;
    layers_.assign(chains_.size(), {});
    choose_layers(0);
  }

  void choose_layers(std::size_t chain) {
    if (chain == chains_.size()) {
      share_batch();
      return;
    }
    for_each_composition(count_layers(world_.workload), static_cast<int>(chains_[chain].size()), 1,
                         [&](const std::vector<int>& layers) {
                           layers_[chain] = layers;
                           choose_layers(chain + 1);
                           return true;
                         });
  }

  ir::Plan plan(const std::vector<int>& batch) const {
    ir::Plan plan;
    plan.schedule = world_.job.allowed.schedules.front();
    for (std::size_t c = 0; c < chains_.size(); ++c) {
      ir::Pipeline pipeline;
      pipeline.micro_batches = batch[c];
      int first = 0;
      for (std::size_t s = 0; s < chains_[c].size(); ++s) {
        ir::Segment segment = segment_of_layers(world_.workload, first, layers_[c][s]);
        first += layers_[c][s];
        ir::Group group;
        group.devices = chains_[c][s];
        group.tensor_parallel = static_cast<int>(group.devices.size());
        segment.groups.push_back(group);
        segment.recompute = strongest_recompute(world_.job);
        pipeline.stages.push_back({{segment}});
      }
      plan.pipelines.push_back(pipeline);
    }
    return plan;
  }

  /// Eq. 9 is linear in the micro-batches, Eq. 4 does not know them: two prices give all.
  void share_batch() {
    const models::HexiscaleModel model(
        world_.cluster, world_.workload,
        [&](DeviceId a, DeviceId b) { return world_.topology.path(a, b); },
        models::HexiscaleOptions::paper());
    const auto one = model.estimate(plan(std::vector<int>(chains_.size(), 1)));
    const auto two = model.estimate(plan(std::vector<int>(chains_.size(), 2)));
    for_each_composition(
        static_cast<int>(world_.job.global_batch), static_cast<int>(chains_.size()), 1,
        [&](const std::vector<int>& batch) {
          double slowest = 0;
          for (std::size_t c = 0; c < batch.size(); ++c) {
            const double first = one.pipelines[c].value;
            slowest = std::max(slowest, first + (batch[c] - 1) * (two.pipelines[c].value - first));
          }
          const double time = slowest + one.data_parallel.value;
          if ((!best_ || time < *best_) && world_.verdict(plan(batch)).fits()) best_ = time;
          return true;
        });
  }

  const World& world_;
  bool use_all_;
  bool by_name_ = false;
  std::vector<char> used_;
  std::vector<Chain> chains_;
  std::vector<std::vector<int>> layers_;
  std::optional<double> best_;
};

void expect_optimum(const World& world, const PlannerResult& result, std::optional<double> best,
                    const std::string& what) {
  EXPECT_TRUE(result.report.complete) << what;
  const auto* plan = std::get_if<ir::Plan>(&result.outcome);
  ASSERT_EQ(plan != nullptr, best.has_value()) << what;
  if (plan == nullptr) return;
  EXPECT_NEAR(result.report.estimate->value, *best, 1e-9 * *best) << what;
  EXPECT_NEAR(world.paper_estimate(*plan).value, *best, 1e-9 * *best) << what;
  EXPECT_EQ(world.defects(*plan), "") << what;
  EXPECT_TRUE(world.verdict(*plan).fits()) << what;
}

TEST(HexiscaleMilp, EqualsBruteForceOnTheFamily) {
  NEEDS_SOLVER();
  int feasible = 0;
  int large = 0;
  int split = 0;
  for (int number = 0; number < kProblems; ++number) {
    const auto world = tiny_world(static_cast<std::uint64_t>(number));
    if (!small_enough(*world)) continue;
    if (world->cluster.size() > 4) ++large;
    const std::optional<double> best = BruteForce(*world, false).best();
    const PlannerResult result = run_planner(kName, world->input(), kToTheEnd);
    expect_optimum(*world, result, best, "problem " + std::to_string(number));
    if (!best) continue;
    ++feasible;
    if (std::get<ir::Plan>(result.outcome).pipelines.size() > 1) ++split;
  }
  EXPECT_GE(feasible, 30);
  EXPECT_GE(large, 4) << "problems of 5 and 6 GPUs";
  EXPECT_GE(split, 1) << "optima with several pipelines";
}

/// The space of the two-phase algorithm, which leaves no device out. The heuristic never wins; how
/// far it is from the optimum is measured.
TEST(HexiscaleMilp, TheHeuristicIsNeverBetterAndItsGapIsKnown) {
  NEEDS_SOLVER();
  int problems = 0;
  int missed = 0;
  double sum = 0;
  double most = 0;
  for (int number = 0; number < kProblems; ++number) {
    const auto world = tiny_world(static_cast<std::uint64_t>(number));
    if (!small_enough(*world)) continue;
    const PlannerResult exact =
        run_planner(kName, world->input(),
                    {{"nodes", "100000"}, {"effort", "1e12"}, {"idle_devices", "forbidden"}});
    if (world->cluster.size() <= 4) {
      expect_optimum(*world, exact, BruteForce(*world, true).best(),
                     "problem " + std::to_string(number));
    }
    const PlannerResult heuristic =
        run_planner("hexiscale", world->input(), {{"evaluate_top", "1"}});
    const auto* found = std::get_if<ir::Plan>(&heuristic.outcome);
    if (!std::holds_alternative<ir::Plan>(exact.outcome)) {
      EXPECT_EQ(found, nullptr) << number;
      continue;
    }
    if (found == nullptr) {
      ++missed;
      continue;
    }
    const double ratio = world->paper_estimate(*found) / *exact.report.estimate;
    EXPECT_GE(ratio, 1 - 1e-9) << number;
    ++problems;
    sum += ratio - 1;
    most = std::max(most, ratio - 1);
  }
  // Shown by: planners_hexiscale_milp_test --gtest_filter='*TheHeuristic*'
  std::printf("hexiscale: %d problems, mean gap %.6f, largest %.6f, %d without a plan\n", problems,
              sum / problems, most, missed);
  EXPECT_EQ(problems, 36);
  EXPECT_EQ(missed, 0);
  EXPECT_NEAR(sum / problems, 0.030127, 1e-6);
  EXPECT_NEAR(most, 0.608359, 1e-6);
}

/// A node with two NVLink pairs: its GPUs are not interchangeable.
TEST(HexiscaleMilp, TellsGpusOfOneNodeApart) {
  NEEDS_SOLVER();
  models::Cluster cluster = make_cluster({{"X", 120, 16, 4, 8, 1}, {"Y", 60, 16, 1, 8, 1}}, 2);
  models::LinkClass fast = cluster.links.begin()->second;
  fast.name = "fast";
  fast.bandwidth = 200_GBps;
  cluster.links[fast.name] = fast;
  cluster.nodes.front().domains = {{{0, 2}, "fast"}, {{1, 3}, "fast"}};
  models::seal(cluster);
  const World world(std::move(cluster), small_model(3), 5, 512);
  BruteForce reference(world, false);
  reference.every_name();
  expect_optimum(world, run_planner(kName, world.input(), kToTheEnd), reference.best(),
                 "NVLink pairs");
}

TEST(HexiscaleMilp, CountsMicroBatchesInFlightUnderGpipeToo) {
  NEEDS_SOLVER();
  int feasible = 0;
  for (const double gib : {1.8, 2.1, 2.4, 2.7, 3.0}) {
    World world(make_cluster({{"X", 120, gib, 2, 25, 1}, {"Y", 60, gib, 1, 25, 1}}, 2),
                small_model(4), 6, 512);
    world.job.allowed.schedules = {ir::ScheduleKind::gpipe};
    world.job.allowed.recompute = {ir::Recompute::none};
    const PlannerResult result = run_planner(kName, world.input(), kToTheEnd);
    expect_optimum(world, result, BruteForce(world, false).best(), std::to_string(gib) + " GiB");
    if (std::holds_alternative<ir::Plan>(result.outcome)) ++feasible;
    EXPECT_EQ(result.report.rejected_by_memory, 0) << "the program's own memory is the verdict's";
  }
  EXPECT_GE(feasible, 2);
}

/// "no plan is faster than 0.0123 s" in the notes.
std::optional<double> stated_bound(const SearchReport& report) {
  for (const std::string& note : report.notes) {
    const auto place = note.find("no plan is faster than ");
    double value = 0;
    if (place != std::string::npos &&
        std::sscanf(note.c_str() + place, "no plan is faster than %lf", &value) == 1) {
      return value;
    }
  }
  return std::nullopt;
}

TEST(HexiscaleMilp, ABudgetEndsTheSearchWithAPlanAndAValidBound) {
  NEEDS_SOLVER();
  const auto world = tiny_world(40);
  const double best = run_planner(kName, world->input(), kToTheEnd).report.estimate->value;
  for (const int budget : {1, 2, 3, 5}) {
    PlannerInput input = world->input();
    input.work_budget = budget;
    const PlannerResult result = run_planner(kName, input);
    EXPECT_EQ(result.report.work, budget);
    EXPECT_FALSE(result.report.complete) << budget;
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << budget;
    EXPECT_GE(result.report.estimate->value, best * (1 - 1e-9)) << budget;
    const auto bound = stated_bound(result.report);
    ASSERT_TRUE(bound.has_value()) << budget;
    EXPECT_LE(*bound, best * (1 + 1e-5)) << budget;
    EXPECT_GT(*bound, 0) << budget;
  }
}

TEST(HexiscaleMilp, AFinishedSearchHasNoGap) {
  NEEDS_SOLVER();
  const PlannerResult result = run_planner(kName, tiny_world(1)->input());
  EXPECT_TRUE(result.report.complete);
  const auto bound = stated_bound(result.report);
  ASSERT_TRUE(bound.has_value());
  EXPECT_NEAR(*bound, result.report.estimate->value, 1e-5 * *bound);
}

TEST(HexiscaleMilp, BegunWithTheHeuristicsPlanItIsNeverSlowerAndTheBoundHolds) {
  NEEDS_SOLVER();
  int slower = 0;
  for (const int number : {1, 30}) {
    const auto world = tiny_world(static_cast<std::uint64_t>(number));
    const PlannerResult chain = run_planner(kName, world->input(), kToTheEnd);
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(chain.outcome)) << number;
    const double best = chain.report.estimate->value;
    const PlannerResult heuristic =
        run_planner("hexiscale", world->input(), {{"evaluate_top", "1"}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(heuristic.outcome)) << number;
    const double begun = heuristic.report.estimate->value;
    slower += begun > best * (1 + 1e-6) ? 1 : 0;
    Options options = kToTheEnd;
    options.emplace_back("start", "hexiscale");
    const PlannerResult all = run_planner(kName, world->input(), options);
    EXPECT_NEAR(all.report.estimate->value, best, 1e-5 * best) << number;
    // No program is small enough: the plan is the heuristic's, and the bound is a bound.
    const PlannerResult none =
        run_planner(kName, world->input(), {{"start", "hexiscale"}, {"variables", "1"}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(none.outcome)) << number;
    EXPECT_NEAR(none.report.estimate->value, begun, 1e-9 * begun) << number;
    EXPECT_FALSE(none.report.complete) << number;
    EXPECT_EQ(none.report.work, 0) << number;
    const auto bound = stated_bound(none.report);
    ASSERT_TRUE(bound.has_value()) << number;
    EXPECT_LE(*bound, best * (1 + 1e-5)) << number;
  }
  EXPECT_GT(slower, 0) << "the heuristic finds all optima: nothing is tested";
}

TEST(HexiscaleMilp, EqualInputGivesEqualPlans) {
  NEEDS_SOLVER();
  const auto world = tiny_world(30);
  const PlannerResult first = run_planner(kName, world->input());
  const PlannerResult second = run_planner(kName, world->input(7));
  EXPECT_EQ(std::get<ir::Plan>(first.outcome), std::get<ir::Plan>(second.outcome));
  EXPECT_EQ(first.report.work, second.report.work);
  EXPECT_EQ(first.report.notes, second.report.notes);
}

TEST(HexiscaleMilp, GivesUpOnLargeClustersAndSaysHowLargeTheProgramIs) {
  NEEDS_SOLVER();
  const World world(mixed_cluster(240), llama_30b(), 1024);
  const PlannerResult result = run_planner(kName, world.input());
  EXPECT_FALSE(result.report.complete);
  EXPECT_EQ(result.report.work, 0);
  const auto& no = std::get<models::Infeasible>(result.outcome);
  EXPECT_EQ(no.constraint, "size of the program");
  EXPECT_NE(no.witness.find("variables for 1 pipeline"), std::string::npos) << no.witness;
}

TEST(HexiscaleMilp, OptionsNarrowTheSearch) {
  NEEDS_SOLVER();
  const auto world = tiny_world(30);
  for (const int pipelines : {1, 2}) {
    const PlannerResult result =
        run_planner(kName, world->input(), {{"pipelines", std::to_string(pipelines)}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << pipelines;
    EXPECT_EQ(std::get<ir::Plan>(result.outcome).pipelines.size(), as_size(pipelines));
  }
  const PlannerResult many = run_planner(kName, world->input(), {{"pipelines", "100"}});
  EXPECT_EQ(std::get<models::Infeasible>(many.outcome).constraint, "device memory");
  const PlannerResult odd = run_planner(kName, world->input(), {{"micro_batch_size", "5"}});
  EXPECT_EQ(std::get<models::Infeasible>(odd.outcome).constraint, "micro-batch size");
}

/// 32 GPUs that NVLink joins in pairs: millions of groups of 16 that differ by their links.
TEST(HexiscaleMilp, GivesUpOnNodesWithTooManyKindsOfGroups) {
  models::Cluster cluster = worlds::make_cluster(worlds::ClusterShape{.gpus = 32});
  std::vector<models::LinkDomain>& domains = cluster.nodes.front().domains;
  const std::string link = domains.front().link;
  domains.clear();
  for (int first = 0; first < 32; first += 2) domains.push_back({{first, first + 1}, link});
  models::seal(cluster);
  const World world(std::move(cluster), small_model(4), 16, 1024);
  const PlannerInput input = world.input();
  const HexiscaleSettings settings;
  const HexiscaleCosts costs(input, settings);
  EXPECT_TRUE(HexiscaleMilpSpace(input, settings, costs).too_many_kinds());
  NEEDS_SOLVER();
  const PlannerResult result = run_planner(kName, input);
  EXPECT_FALSE(result.report.complete);
  const auto& no = std::get<models::Infeasible>(result.outcome);
  EXPECT_EQ(no.constraint, "size of the program");
  EXPECT_NE(no.witness.find("kinds of tensor-parallel groups"), std::string::npos) << no.witness;
}

}  // namespace
}  // namespace orrery::planners::hexiscale_milp_test
