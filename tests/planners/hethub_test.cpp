#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "models/base/ids.h"
#include "models/config/diagnostics.h"
#include "models/spec/library.h"
#include "planners/hethub/predictor.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/stage_costs.h"
#include "tests/planners/family.h"
#include "tests/planners/support.h"

namespace orrery::planners::hethub_test {
namespace {

/// 1F1B written down pass by pass: the end of a pass is the later of the end of the pass before it
/// on its stage and the arrival of its input, plus its own time.
class SlowPredictor {
 public:
  SlowPredictor(std::vector<PredictedStage> stages, int micro_batches)
      : stages_(std::move(stages)), micro_batches_(micro_batches) {
    const int count = static_cast<int>(stages_.size());
    for (int s = 0; s < count; ++s) {
      const int ahead = std::min(micro_batches, count - 1 - s);
      std::vector<Pass> order;
      for (int i = 0; i < ahead; ++i) order.push_back({true, i});
      for (int i = ahead; i < micro_batches; ++i) {
        order.push_back({true, i});
        order.push_back({false, i - ahead});
      }
      for (int i = micro_batches - ahead; i < micro_batches; ++i) order.push_back({false, i});
      orders_.push_back(order);
    }
  }
  double run() {
    double end = 0;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      end = std::max(end, finish(s, orders_[s].back()) + stages_[s].update.value);
    }
    return end;
  }

 private:
  struct Pass {
    bool forward;
    int micro_batch;
    auto operator<=>(const Pass&) const = default;
  };
  double finish(std::size_t s, Pass pass) {
    const auto key = std::make_pair(s, pass);
    if (const auto known = finish_.find(key); known != finish_.end()) return known->second;
    const auto place = std::find(orders_[s].begin(), orders_[s].end(), pass);
    double start = place == orders_[s].begin() ? 0 : finish(s, *std::prev(place));
    if (pass.forward && s > 0) start = std::max(start, arrival(s, pass));
    if (!pass.forward && s + 1 < stages_.size()) start = std::max(start, arrival(s, pass));
    const Seconds own = pass.forward ? stages_[s].forward : stages_[s].backward;
    return finish_[key] = start + own.value;
  }
  /// At stage s.
  double arrival(std::size_t s, Pass pass) {
    const auto key = std::make_pair(s, pass);
    if (const auto known = arrival_.find(key); known != arrival_.end()) return known->second;
    double start = finish(pass.forward ? s - 1 : s + 1, pass);
    if (pass.micro_batch > 0) {
      start = std::max(start, arrival(s, {pass.forward, pass.micro_batch - 1}));
    }
    const Seconds hop = pass.forward ? stages_[s - 1].forward_hop : stages_[s].backward_hop;
    return arrival_[key] = start + hop.value;
  }

  std::vector<PredictedStage> stages_;
  int micro_batches_;
  std::vector<std::vector<Pass>> orders_;
  std::map<std::pair<std::size_t, Pass>, double> finish_;
  std::map<std::pair<std::size_t, Pass>, double> arrival_;
};

std::vector<PredictedStage> equal_stages(int count, Seconds forward, Seconds backward) {
  return std::vector<PredictedStage>(count, PredictedStage{forward, backward, {}, {}, {}});
}

TEST(HethubPredictor, EqualStagesTakeMicroBatchesPlusStagesMinusOne) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int m = 1; m <= 9; ++m) {
      EXPECT_DOUBLE_EQ(predict_iteration(equal_stages(stages, 1_s, 2_s), m).value,
                       3 * (m + stages - 1));
    }
  }
}

TEST(HethubPredictor, HopsAreHiddenWhereComputationIsLonger) {
  // Two stages, hops of a tenth: only the first micro-batch's way there and back shows.
  auto stages = equal_stages(2, 1_s, 1_s);
  const Seconds alone = predict_iteration(stages, 50);
  stages[0].forward_hop = stages[0].backward_hop = Seconds{0.1};
  EXPECT_LT(predict_iteration(stages, 50).value, alone.value * 1.12);
  // Hops of three seconds bound the rate: one in each direction at a time.
  stages[0].forward_hop = stages[0].backward_hop = Seconds{3};
  EXPECT_GT(predict_iteration(stages, 50).value, 150);
}

rc::Gen<std::vector<PredictedStage>> any_stages() {
  const auto time = rc::gen::map(rc::gen::inRange(0, 40), [](int t) { return Seconds{0.25 * t}; });
  return rc::gen::map(rc::gen::container<std::vector<std::vector<Seconds>>>(
                          rc::gen::container<std::vector<Seconds>>(5, time)),
                      [](const std::vector<std::vector<Seconds>>& rows) {
                        std::vector<PredictedStage> stages = {{1_s, 2_s, {}, {}, {}}};
                        for (const auto& row : rows) {
                          if (stages.size() < 6)
                            stages.push_back({row[0], row[1], row[2], row[3], row[4]});
                        }
                        return stages;
                      });
}

RC_GTEST_PROP(HethubPredictor, EqualsThePassByPassReference, ()) {
  const auto stages = *any_stages();
  const int m = *rc::gen::inRange(1, 12);
  const double fast = predict_iteration(stages, m).value;
  const double slow = SlowPredictor(stages, m).run();
  RC_ASSERT(std::abs(fast - slow) <= 1e-9 * slow);
  RC_ASSERT(predict_at_least(stages, m).value <= fast * (1 + 1e-12));
}

/// All orders of stages with backward twice the forward and free hops.
struct OrderCensus {
  int cases = 0;
  int best = 0;          // Descending is among the best orders.
  double worst_gap = 0;  // Of descending over the best order.
  int never_slower = 0;  // Descending is no slower than ascending.
};

OrderCensus census() {
  OrderCensus result;
  for (int code = 0; code < 256; ++code) {
    std::vector<int> times;
    for (int s = 0, rest = code; s < 4; ++s, rest /= 4) times.push_back(1 + rest % 4);
    if (!std::is_sorted(times.begin(), times.end())) continue;
    for (const int m : {1, 2, 4, 8, 16}) {
      const auto time_of = [&](const std::vector<int>& order) {
        std::vector<PredictedStage> stages;
        for (const int t : order)
          stages.push_back({Seconds{1.0 * t}, Seconds{2.0 * t}, {}, {}, {}});
        return predict_iteration(stages, m).value;
      };
      std::vector<int> order = times;
      double best = kNever;
      do best = std::min(best, time_of(order));
      while (std::next_permutation(order.begin(), order.end()));
      const double descending = time_of({times.rbegin(), times.rend()});
      ++result.cases;
      result.best += descending <= best;
      result.never_slower += descending <= time_of(times);
      result.worst_gap = std::max(result.worst_gap, descending / best - 1);
    }
  }
  return result;
}

// --------------------------------------------------------------------------------------------
// Brute force over the tree.

struct Slot {
  int type;
  int index;  // Among the places of its type.
  int layers;
};

class BruteForce {
 public:
  explicit BruteForce(const World& world)
      : world_(world),
        input_(world.input()),
        costs_(input_),
        layers_(count_layers(world.workload)) {}

  Best run() {
    for (tensor_ = 1; tensor_ <= 4; tensor_ *= 2) {
      collect_groups();
      for (replicas_ = 1; replicas_ <= 6; ++replicas_) {
        if (world_.job.global_batch % replicas_ != 0) continue;
        for (const ir::Recompute recompute : world_.job.allowed.recompute) {
          recompute_ = recompute;
          spread(0, layers_, {});
        }
      }
    }
    return best_;
  }

  /// The paper's splits at given degrees: layers by GPU type.
  double estimate_of(int tensor, int replicas, ir::Recompute recompute,
                     const std::vector<int>& layers) {
    tensor_ = tensor;
    replicas_ = replicas;
    recompute_ = recompute;
    collect_groups();
    return estimate(arrange(layers));
  }

 private:
  void collect_groups() {
    groups_.assign(world_.cluster.gpu_types.size(), {});
    for (std::size_t node = 0; node < world_.cluster.nodes.size(); ++node) {
      const auto devices = world_.cluster.devices_of(NodeId{static_cast<int>(node)});
      for (std::size_t i = 0; i + as_size(tensor_) <= devices.size(); i += tensor_) {
        const auto begin = devices.begin() + static_cast<std::ptrdiff_t>(i);
        groups_[world_.cluster.device(*begin).gpu_type].emplace_back(begin, begin + tensor_);
      }
    }
  }

  void spread(std::size_t type, int left, std::vector<int> layers) {
    if (type == groups_.size()) {
      if (left == 0) judge(layers);
      return;
    }
    const bool usable = static_cast<int>(groups_[type].size()) >= replicas_;
    layers.push_back(0);
    for (int own = 0; own <= (usable ? left : 0); ++own) {
      layers.back() = own;
      spread(type + 1, left - own, layers);
    }
  }

  StageShape shape(int first, int layers) const {
    StageShape result;
    result.first = first;
    result.layers = layers;
    result.tensor_parallel = tensor_;
    result.recompute = recompute_;
    result.replicas = replicas_;
    return result;
  }

  const std::vector<DeviceId>& group(const Slot& slot, int replica) const {
    return groups_[slot.type][slot.index * replicas_ + replica];
  }

  /// Layers in the middle of the model where there are enough, else wherever they are cheapest.
  double layers_time(int type, int layers) const {
    double least = kNever;
    for (const auto& members : groups_[type]) {
      for (int first = 0; first + layers <= layers_; ++first) {
        least = std::min(least, costs_.passes(members, shape(first, layers)).both().value);
      }
    }
    return least;
  }

  std::vector<Slot> arrange(const std::vector<int>& layers) const {
    std::vector<Slot> slots;
    for (std::size_t type = 0; type < layers.size(); ++type) {
      const int places = static_cast<int>(groups_[type].size()) / replicas_;
      std::vector<int> stages(places, 0);
      for (int i = 0; i < layers[type]; ++i) ++stages[i % places];
      for (int i = 0; i < places; ++i) {
        const int own = stages[i];
        if (own > 0) slots.push_back({static_cast<int>(type), i, own});
      }
    }
    std::stable_sort(slots.begin(), slots.end(), [&](const Slot& a, const Slot& b) {
      return layers_time(a.type, a.layers) > layers_time(b.type, b.layers);
    });
    return slots;
  }

  double estimate(const std::vector<Slot>& slots) const {
    std::vector<PredictedStage> stages;
    int first = 0;
    for (std::size_t s = 0; s < slots.size(); ++s) {
      PredictedStage stage;
      const StageShape what = shape(first, slots[s].layers);
      for (int r = 0; r < replicas_; ++r) {
        const auto time = costs_.passes(group(slots[s], r), what);
        stage.forward = std::max(stage.forward, time.forward);
        stage.backward = std::max(stage.backward, time.backward);
      }
      for (int member = 0; member < tensor_; ++member) {
        std::vector<DeviceId> ring;
        for (int r = 0; r < replicas_; ++r) {
          ring.push_back(group(slots[s], r)[member]);
        }
        stage.update = std::max(
            stage.update,
            costs_.all_reduce(ring, (1.0 / tensor_) * costs_.gradients(first, what.layers)));
      }
      stage.update += costs_.optimizer(slots[s].type, what);
      first += slots[s].layers;
      for (int r = 0; r < replicas_ && s + 1 < slots.size(); ++r) {
        const auto& from = group(slots[s], r);
        const auto& to = group(slots[s + 1], r);
        const auto way = ir::ActivationTransfer::leader_broadcast;
        stage.forward_hop = std::max(stage.forward_hop, costs_.hop(from, to, first, 1, way));
        stage.backward_hop = std::max(stage.backward_hop, costs_.hop(to, from, first, 1, way));
      }
      stages.push_back(stage);
    }
    return SlowPredictor(stages, static_cast<int>(world_.job.global_batch) / replicas_).run();
  }

  ir::Plan build(const std::vector<Slot>& slots) const {
    ir::Plan plan;
    plan.communication.activation_transfer = ir::ActivationTransfer::leader_broadcast;
    for (int r = 0; r < replicas_; ++r) {
      ir::Pipeline chain;
      chain.micro_batches = static_cast<int>(world_.job.global_batch) / replicas_;
      int first = 0;
      for (const Slot& slot : slots) {
        ir::Segment segment;
        segment.first_block = BlockId{first == 0 ? 0 : first + 1};
        first += slot.layers;
        segment.last_block = BlockId{first == layers_ ? layers_ + 1 : first};
        segment.groups = {{group(slot, r), tensor_, ir::SequenceParallelism::none, 1, 1}};
        segment.recompute = recompute_;
        chain.stages.push_back({{segment}});
      }
      plan.pipelines.push_back(chain);
    }
    return plan;
  }

  void judge(const std::vector<int>& layers) {
    const std::vector<Slot> slots = arrange(layers);
    const ir::Plan plan = build(slots);
    EXPECT_EQ(world_.defects(plan), "");
    best_.offer(estimate(slots), world_.verdict(plan).fits());
  }

  const World& world_;
  PlannerInput input_;
  StageCosts costs_;
  int layers_;
  int tensor_ = 1;
  int replicas_ = 1;
  ir::Recompute recompute_ = ir::Recompute::none;
  std::vector<std::vector<std::vector<DeviceId>>> groups_;
  Best best_;
};

TEST(Hethub, EqualsBruteForceOverItsTree) {
  int feasible = 0;
  int forbidden = 0;
  for (std::uint64_t number = 0; number < 300; ++number) {
    const auto world = tiny_world(number);
    const Best best = BruteForce(*world).run();
    const PlannerResult result = run_planner("hethub", world->input());
    const auto* plan = std::get_if<ir::Plan>(&result.outcome);
    ASSERT_EQ(plan != nullptr, best.time < kNever) << number;
    forbidden += best.rejected > 0;
    if (plan == nullptr) {
      EXPECT_EQ(std::get<models::Infeasible>(result.outcome).constraint, "device memory");
      continue;
    }
    ++feasible;
    EXPECT_NEAR(result.report.estimate->value, best.time, 1e-9 * best.time) << number;
    EXPECT_EQ(world->defects(*plan), "") << number;
    EXPECT_TRUE(world->verdict(*plan).fits()) << number;
    EXPECT_LE(result.report.plans_examined, best.examined) << number;
  }
  EXPECT_GE(feasible, 250);
  EXPECT_GE(forbidden, 75);
}

TEST(Hethub, AllPlansAreRankedWhereTheEvaluatorJudgesAll) {
  const auto world = tiny_world(3);
  const Best best = BruteForce(*world).run();
  const PlannerResult result = run_planner("hethub", world->input(), {{"evaluate_top", "0"}});
  EXPECT_EQ(result.report.plans_examined, best.examined);
}

TEST(Hethub, PutsTheSlowestStageFirst) {
  const World world(make_cluster({{"Fast", 300, 80, 2, 200, 1}, {"Slow", 150, 80, 2, 200, 1}}, 12),
                    small_model(22), 32, 1024);
  const PlannerResult result =
      run_planner("hethub", world.input(), {{"tensor_parallel", "1"}, {"data_parallel", "1"}});
  const auto& plan = std::get<ir::Plan>(result.outcome);
  const PlannerInput input = world.input();
  const StageCosts costs(input);
  double before = kNever;
  for (const ir::Stage& stage : plan.pipelines.front().stages) {
    StageShape shape;
    shape.first = 1;  // In the middle, without embedding and head.
    shape.layers = stage.segments[0].last_block.value - stage.segments[0].first_block.value + 1;
    if (stage.segments[0].first_block.value == 0) --shape.layers;
    if (stage.segments[0].last_block.value == world.workload.size() - 1) --shape.layers;
    shape.recompute = stage.segments[0].recompute;
    const int type = world.cluster.device(ir::devices_of(stage).front()).gpu_type;
    const double time = costs.compute(type, shape).both().value;
    EXPECT_LE(time, before * (1 + 1e-12));
    before = time;
  }
  EXPECT_EQ(plan.pipelines.front().stages.size(), 4U);
}

TEST(Hethub, DescendingIsNeverSlowerThanAscendingAndMostlyBest) {
  const OrderCensus all = census();
  EXPECT_EQ(all.never_slower, all.cases);
  // The paper says that the descending order minimizes the time [3.3.2, rule 3]; in 30 of 175 cases
  // another one is up to 4.2 % shorter.
  EXPECT_EQ(all.cases, 175);
  EXPECT_EQ(all.best, 145);
  EXPECT_NEAR(all.worst_gap, 0.0417, 5e-5);
}

TEST(Hethub, EvenLayersDifferByAtMostOneAndAreNoFaster) {
  const World world(make_cluster({{"Fast", 300, 80, 2, 200, 1}, {"Slow", 100, 80, 2, 200, 1}}, 12),
                    small_model(22), 32, 1024);
  const PlannerInput input = world.input();
  const PlannerResult even = run_planner(
      "hethub", input, {{"tensor_parallel", "1"}, {"data_parallel", "1"}, {"layers", "even"}});
  const PlannerResult free =
      run_planner("hethub", input, {{"tensor_parallel", "1"}, {"data_parallel", "1"}});
  const auto& plan = std::get<ir::Plan>(even.outcome);
  ASSERT_EQ(plan.pipelines.front().stages.size(), 4U);
  for (const ir::Stage& stage : plan.pipelines.front().stages) {
    int layers = stage.segments[0].last_block.value - stage.segments[0].first_block.value + 1;
    if (stage.segments[0].first_block.value == 0) --layers;
    if (stage.segments[0].last_block.value == world.workload.size() - 1) --layers;
    EXPECT_GE(layers, 5);
    EXPECT_LE(layers, 6);
  }
  EXPECT_LT(free.report.estimate->value, even.report.estimate->value);
}

TEST(Hethub, ATighterStageBoundNeverFindsABetterPlan) {
  const World world(make_cluster({{"A", 300, 24, 4, 200, 1}, {"B", 80, 16, 4, 100, 1}}, 2),
                    small_model(14), 24, 1024);
  double last = 0;
  for (const char* bound : {"0", "4", "1.5", "1"}) {
    const PlannerResult result = run_planner("hethub", world.input(), {{"stage_bound", bound}});
    ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome)) << bound;
    EXPECT_GE(result.report.estimate->value, last * (1 - 1e-12)) << bound;
    last = result.report.estimate->value;
  }
  const PlannerEntry* entry = find_planner("hethub");
  EXPECT_FALSE(entry->check({{"stage_bound", "0.5"}}).empty());
}

TEST(Hethub, RdmaBetweenVendorsIsNoSlowerThanHostStaging) {
  models::Cluster cluster = make_cluster({{"A", 300, 80, 4, 200, 1}, {"B", 80, 80, 4, 100, 1}}, 25);
  cluster.gpu_types[1].vendor = "other";
  cluster.host_staging = {{"nvidia", "other", 0.5_GBps, 50.0_us}};
  models::seal(cluster);
  const World world(cluster, small_model(14), 24, 1024);
  const auto staged = run_planner("hethub", world.input());
  const auto rdma = run_planner("hethub", world.input(), {{"communicator", "rdma"}});
  ASSERT_TRUE(staged.report.estimate && rdma.report.estimate);
  EXPECT_LT(rdma.report.estimate->value, staged.report.estimate->value);
  EXPECT_EQ(world.defects(std::get<ir::Plan>(rdma.outcome)), "");
}

// --------------------------------------------------------------------------------------------
// The paper's pair 1.

TEST(HethubPaper, Pair1Of28To4IsBeatenUnderTheHomogeneousRates) {
  config::Diagnostics problems;
  const models::Library library = models::load_library("models/library", problems);
  const models::Cluster cluster = models::load_cluster("hethub_pair1", library, {}, problems);
  const ir::ModelShape shape = models::load_model("llama2_7b", library, {}, problems);
  World world(cluster, shape, 1024, 1024);  // Table 1.
  world.job.allowed.recompute = {ir::Recompute::none};
  world.job.allowed.max_micro_batch_size = 1;
  const PlannerResult result =
      run_planner("hethub", world.input(), {{"tensor_parallel", "2"}, {"data_parallel", "4"}});
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  std::printf("found: %s\n", result.report.chosen.c_str());

  const auto rate = [&](double seconds) { return 1024.0 * 1024 / 16 / seconds; };
  BruteForce by_hand(world);
  const auto split = [&](int amd, int other) {
    return by_hand.estimate_of(2, 4, ir::Recompute::none, {amd, other});
  };
  const double found = result.report.estimate->value;
  double least = kNever;
  int best = 0;
  for (int amd = 1; amd < 32; ++amd) {
    if (split(amd, 32 - amd) < least) {
      least = split(amd, 32 - amd);
      best = amd;
    }
  }
  EXPECT_NEAR(found, least, 1e-9 * least);
  EXPECT_EQ(ir::devices_of(std::get<ir::Plan>(result.outcome)).size(), 16U);
  // The rates of the homogeneous runs ask for 22:10; 28:4 loses under them.
  EXPECT_EQ(best, 22);
  EXPECT_LT(found, split(28, 4));
  std::printf("tokens/s per GPU: found %d:%d %.0f, 28:4 %.0f (paper 985), 16:16 %.0f (paper 748)\n",
              best, 32 - best, rate(found), rate(split(28, 4)), rate(split(16, 16)));
  // What 28:4 and 16:16 can reach at the printed homogeneous rates, were all else free: the paper's
  // measurements are above both, so that no stage model from these rates explains them.
  EXPECT_LT(8 * 1478.0 * 32 / 28 / 16, 985);
  EXPECT_LT(8 * 673.0 * 32 / 16 / 16, 748);
  EXPECT_LT(rate(split(28, 4)), 8 * 1478.0 * 32 / 28 / 16);
}

}  // namespace
}  // namespace orrery::planners::hethub_test
