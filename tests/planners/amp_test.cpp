// AMP: its partition against enumeration, its search against brute force on the tiny family, its
// published predictions, and the defects of the public code.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "models/base/rng.h"
#include "models/cost/memory.h"
#include "planners/amp/cost.h"
#include "planners/amp/published.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/stage_costs.h"
#include "tests/planners/family.h"

namespace orrery::planners::amp_test {
namespace {

AmpChain random_chain(Rng& rng) {
  AmpChain chain;
  const auto items = static_cast<int>(rng.integer(1, 8));
  const auto stages = static_cast<int>(rng.integer(1, items));
  chain.micro_batches = static_cast<int>(rng.integer(1, 6));
  const bool few_values = rng.bernoulli(0.5);  // Many ties.
  for (int i = 0; i < items; ++i) {
    chain.time.push_back(few_values ? static_cast<double>(rng.integer(1, 2)) : rng.uniform());
  }
  for (int s = 0; s + 1 < stages; ++s) {
    std::vector<double>& cut = chain.cut.emplace_back();
    for (int i = 0; i + 1 < items; ++i) cut.push_back(few_values ? 0.25 : rng.uniform());
  }
  return chain;
}

/// Boundaries of every way to give the items to the stages.
std::vector<std::vector<int>> all_splits(int items, int stages) {
  std::vector<std::vector<int>> result;
  for_each_composition(items, stages, 1, [&](const std::vector<int>& sizes) {
    std::vector<int>& boundaries = result.emplace_back(1, 0);
    for (const int size : sizes) boundaries.push_back(boundaries.back() + size);
    return true;
  });
  return result;
}

double cost_by_hand(const AmpChain& chain, const std::vector<int>& boundaries) {
  double sum = 0, longest = 0, cuts = 0;
  for (std::size_t s = 0; s + 1 < boundaries.size(); ++s) {
    double stage = 0;
    for (int i = boundaries[s]; i < boundaries[s + 1]; ++i) stage += chain.time[i];
    sum += stage;
    longest = std::max(longest, stage);
    if (s > 0) cuts += chain.cut[s - 1][boundaries[s] - 1];
  }
  return (chain.micro_batches - 1) * longest + sum + cuts;
}

TEST(AmpSplit, EqualsEnumeration) {
  Rng rng(1);
  for (int n = 0; n < 400; ++n) {
    const AmpChain chain = random_chain(rng);
    double least = kNever;
    for (const auto& split : all_splits(chain.items(), chain.stages())) {
      EXPECT_NEAR(amp_pipeline_cost(chain, split), cost_by_hand(chain, split), 1e-12);
      least = std::min(least, cost_by_hand(chain, split));
    }
    const auto found = amp_split(chain);
    ASSERT_TRUE(found.has_value());
    EXPECT_NEAR(found->cost, least, 1e-9) << n;
    EXPECT_NEAR(cost_by_hand(chain, found->boundaries), found->cost, 1e-12);
  }
}

TEST(AmpSplit, NothingForMoreStagesThanItems) {
  AmpChain chain;
  chain.time = {1};
  chain.cut = {{}};
  EXPECT_FALSE(amp_split(chain).has_value());
  EXPECT_FALSE(amp_split_published(chain).has_value());
}

TEST(AmpSplit, OfEqualCostTheEvenOneWins) {
  AmpChain chain;
  chain.time.assign(7, 1.0);
  chain.cut.assign(2, std::vector<double>(6, 0.5));
  for (const int micro_batches : {1, 4}) {
    chain.micro_batches = micro_batches;
    EXPECT_EQ(amp_split(chain)->boundaries, (std::vector<int>{0, 3, 5, 7}));
  }
}

/// src/pipe.py, rule by rule and without memory: (cost, boundaries after the first) of the items up
/// to `end` with `cuts` cuts, the longest stage after them being `longest`.
std::pair<double, std::vector<int>> published_by_hand(const AmpChain& chain, int end, int cuts,
                                                      double longest) {
  const auto sum = [&](int first, int last) {
    double total = 0;
    for (int i = first; i <= last; ++i) total += chain.time[i];
    return total;
  };
  const double rounds = chain.micro_batches - 1;
  if (cuts == 0) return {rounds * std::max(0.0, sum(0, end) - longest), {}};
  std::pair<double, std::vector<int>> best{kNever, {}};
  for (int cut = cuts - 1; cut < end; ++cut) {
    const double last = sum(cut + 1, end);
    auto [cost, boundaries] = published_by_hand(chain, cut, cuts - 1, std::max(last, longest));
    cost += rounds * std::max(0.0, last - longest);
    if (cost + chain.cut[cuts - 1][cut] < best.first) {
      boundaries.push_back(cut + 1);
      best = {cost, boundaries};  // What the cut costs is forgotten.
    }
  }
  return best;
}

TEST(AmpSplitPublished, FollowsThePublicCode) {
  Rng rng(2);
  int worse = 0;
  for (int n = 0; n < 300; ++n) {
    const AmpChain chain = random_chain(rng);
    std::vector<int> wanted = {0};
    const auto by_hand = published_by_hand(chain, chain.items() - 1, chain.stages() - 1, 0);
    wanted.insert(wanted.end(), by_hand.second.begin(), by_hand.second.end());
    wanted.push_back(chain.items());
    const auto found = amp_split_published(chain);
    EXPECT_EQ(found->boundaries, wanted) << n;
    EXPECT_NEAR(found->cost, cost_by_hand(chain, wanted), 1e-12);
    const double exact = amp_split(chain)->cost;
    EXPECT_GE(found->cost, exact - 1e-9);
    if (found->cost > exact + 1e-9) ++worse;
  }
  EXPECT_GT(worse, 0);  // Forgetting the cuts costs something.
}

TEST(AmpRing, ThePublicCodeSeesTheLastLinkOnly) {
  EXPECT_DOUBLE_EQ(amp_ring({4, 1, 2}, 6, false), 2.0 * 2 / 3 * 6 / 1);
  EXPECT_DOUBLE_EQ(amp_ring({4, 1, 2}, 6, true), 2.0 * 2 / 3 * 6 / 2);
  EXPECT_EQ(amp_ring({4}, 6, false), 0);
  EXPECT_EQ(amp_ring({}, 6, true), 0);
}

// --------------------------------------------------------------------------------------------
// Published predictions: DachengLi1/AMP, src/results/het_cluster_results.txt (facts: micro-batch
// size, degrees, layer boundaries, predicted seconds). GPT-2 of 24 layers, 1,024 wide, sequence
// 1,024, vocabulary 52,256, global batch 32 on 4 nodes of 4 GPUs; three nodes with 10 Gb/s outside
// and 170 inside, one with 50 and 50 (src/het_cluster.py). The profiled layer times are not stored
// as text, so embedding, layer and head are solved from three rows of each degree (they are three
// numbers, as the code's other items take no time); the other rows test the cost model.

struct Row {
  int micro_batch_size;
  int tensor, replicas, stages;
  std::vector<int> boundaries;  // Over embedding, nothing, 24 layers, nothing x 2, head, nothing.
  double predicted;
};

constexpr int kItems = 30;
constexpr double kHidden = 1024, kSequence = 1024, kVocabulary = 52256;

/// In elements of 32 bits per second.
double link(int a, int b) {
  const double outside[] = {10e9 / 32, 10e9 / 32, 10e9 / 32, 50e9 / 32};
  const double inside[] = {170e9 / 32, 170e9 / 32, 170e9 / 32, 50e9 / 32};
  const int x = a / 4, y = b / 4;
  return x == y ? inside[x] : std::min(outside[x], outside[y]);
}

int rank(const Row& row, int stage, int replica, int member) {
  return (stage * row.replicas + replica) * row.tensor + member;
}

double published_ring(const Row& row) {
  double slowest = 0;
  for (int s = 0; s < row.stages; ++s) {
    double elements = 0;
    bool counted = false;  // Embedding and head count once.
    for (int i = row.boundaries[s]; i < row.boundaries[s + 1]; ++i) {
      if (i >= 2 && i < 26) elements += 12 * kHidden * kHidden / row.tensor;
      if ((i == 0 || i == 28) && !std::exchange(counted, true)) {
        elements += kHidden * kVocabulary / row.tensor;
      }
    }
    for (int m = 0; m < row.tensor && row.replicas > 1; ++m) {
      std::vector<double> ring;
      for (int r = 0; r < row.replicas; ++r) {
        ring.push_back(link(rank(row, s, r, m), rank(row, s, (r + 1) % row.replicas, m)));
      }
      slowest = std::max(slowest, amp_ring(ring, elements, true));
    }
  }
  return slowest;
}

/// Item times for one sample.
AmpChain published_chain(const Row& row, double embedding, double layer, double head) {
  AmpChain chain;
  chain.micro_batches = 32 / row.replicas / row.micro_batch_size;
  chain.time.assign(kItems, 0);
  for (int i = 2; i < 26; ++i) chain.time[i] = row.micro_batch_size * layer;
  chain.time[0] = row.micro_batch_size * embedding;
  chain.time[28] = row.micro_batch_size * head;
  for (int s = 0; s + 1 < row.stages; ++s) {
    double seconds = 0;
    for (int r = 0; r < row.replicas; ++r) {
      double slowest = kNever;
      for (int m = 0; m < row.tensor; ++m) {
        slowest = std::min(slowest, link(rank(row, s, r, m), rank(row, s + 1, r, m)));
      }
      seconds += row.micro_batch_size * kSequence * kHidden / slowest / row.replicas;
    }
    chain.cut.emplace_back(kItems - 1, seconds);
  }
  return chain;
}

double predict(const Row& row, double embedding, double layer, double head) {
  return amp_pipeline_cost(published_chain(row, embedding, layer, head), row.boundaries) +
         published_ring(row);
}

/// `one`, `two`, `four` have as many stages and several micro-batches. The last stage, with the
/// head and 24 / stages layers, is the longest of the latter two, which is checked.
void expect_published(const Row& one, const Row& two, const Row& four,
                      const std::vector<Row>& others) {
  const auto left = [](const Row& row) {  // Without what does not depend on layer times.
    return row.predicted - predict(row, 0, 0, 0);
  };
  const auto batches = [](const Row& row) { return 32.0 / row.replicas / row.micro_batch_size; };
  const double all = left(one) / batches(one);  // embedding + 24 layers + head
  const auto last = [&](const Row& row) { return (left(row) - all) / (batches(row) - 1); };
  const double layer = (last(two) - last(four)) / (12 - 6);
  const double head = last(two) - 12 * layer;
  const double embedding = all - 24 * layer - head;
  ASSERT_GT(layer, head);
  ASSERT_GT(head, embedding);
  ASSERT_GT(embedding, 0);
  for (const Row& row : others) {
    EXPECT_NEAR(predict(row, embedding, layer, head), row.predicted, 2e-4 * row.predicted)
        << row.micro_batch_size << " " << row.tensor << " " << row.replicas;
    if (row.micro_batch_size * row.replicas == 32) continue;  // Not partitioned: one micro-batch.
    const AmpChain chain = published_chain(row, embedding, layer, head);
    EXPECT_EQ(amp_split_published(chain)->boundaries, row.boundaries);
    EXPECT_NEAR(amp_split(chain)->cost, amp_pipeline_cost(chain, row.boundaries), 1e-9);
  }
}

TEST(AmpPaper, PredictionsOfThePublicCodeAreReproducedForTwoWayTensorParallelism) {
  const std::vector<int> four = {0, 8, 14, 20, 30}, two = {0, 14, 30}, one = {0, 30};
  expect_published({1, 2, 8, 1, one, 2.5985}, {1, 2, 4, 2, two, 2.3042}, {1, 2, 2, 4, four, 2.0038},
                   {{2, 2, 2, 4, four, 2.3112},
                    {2, 2, 4, 2, two, 2.5070},
                    {4, 2, 8, 1, one, 2.5985},
                    {4, 2, 4, 2, two, 2.9126},
                    {4, 2, 2, 4, four, 2.9260},
                    {8, 2, 4, 2, two, 3.7238},
                    {8, 2, 2, 4, four, 4.1555},
                    {16, 2, 2, 4, four, 6.6146}});
}

TEST(AmpPaper, PredictionsOfThePublicCodeAreReproducedForFourWayTensorParallelism) {
  const std::vector<int> four = {0, 8, 14, 20, 30}, two = {0, 14, 30}, one = {0, 30};
  expect_published({1, 4, 4, 1, one, 3.2456}, {1, 4, 2, 2, two, 3.1678}, {1, 4, 1, 4, four, 3.1853},
                   {{2, 4, 2, 2, two, 3.3470},
                    {2, 4, 1, 4, four, 3.4567},
                    {4, 4, 2, 2, two, 3.7053},
                    {4, 4, 1, 4, four, 3.9994},
                    {8, 4, 4, 1, one, 3.2456},
                    {8, 4, 2, 2, two, 4.4220},
                    {8, 4, 1, 4, four, 5.0850},
                    {16, 4, 2, 2, two, 5.8554},
                    {16, 4, 1, 4, four, 7.2561},
                    {32, 4, 1, 4, four, 11.5983}});
}

// --------------------------------------------------------------------------------------------
// The search, in mode fixed.

/// Written again, as plainly as possible, from the formulas at the top of amp.cpp.
class BruteForce {
 public:
  explicit BruteForce(const World& world)
      : world_(world),
        input_(world.input()),
        costs_(input_),
        layers_(count_layers(world.workload)) {
    std::map<NodeId, int> counts;
    for (const models::Device& d : world.cluster.devices) ++counts[d.node];
    int common = 0;
    for (const auto& [node, count] : counts) common = std::gcd(common, count);
    for (const int tensor : tensor_degrees(world.workload, world.job, common)) {
      if (common % tensor == 0) try_degree(tensor);
    }
  }

  std::optional<double> best;
  int plans = 0;

 private:
  DeviceId device(int tensor, int replicas, int stage, int replica, int member) const {
    return DeviceId{(stage * replicas + replica) * tensor + member};
  }
  double bandwidth(DeviceId a, DeviceId b) const {
    return world_.topology.path(a, b).bandwidth.value;
  }

  void try_degree(int tensor) {
    const int groups = world_.cluster.size() / tensor;
    for (int replicas = 1; replicas <= groups; ++replicas) {
      if (groups % replicas != 0 || world_.job.global_batch % replicas != 0) continue;
      if (groups / replicas > layers_) continue;
      for (int size = 1; size <= world_.job.allowed.max_micro_batch_size; ++size) {
        if (world_.job.global_batch / replicas % size == 0) {
          try_grid(tensor, replicas, groups / replicas, size);
        }
      }
    }
  }

  std::vector<double> times(int tensor, int size) {
    std::vector<double> result;
    for (int l = 0; l < layers_; ++l) {
      double sum = 0;
      for (int d = 0; d < world_.cluster.size(); ++d) {
        StageShape shape;
        shape.first = l;
        shape.tensor_parallel = tensor;
        shape.samples = size;
        std::vector<DeviceId> group;
        for (int m = 0; m < tensor; ++m) group.push_back(DeviceId{d / tensor * tensor + m});
        const int type = world_.cluster.device(DeviceId{d}).gpu_type;
        sum += costs_.compute(type, shape).forward.value +
               costs_.tensor_parallel(group, shape).forward.value;
      }
      result.push_back(3 * sum / world_.cluster.size());
    }
    return result;
  }

  struct Value {
    double cost, longest, squares;
    std::vector<int> boundaries;
  };
  /// The tie rules of amp_split.
  static bool better(const Value& a, const Value& b) {
    const auto less = [](double x, double y) { return x < y * (1 - 1e-11); };
    if (less(a.cost, b.cost) || less(b.cost, a.cost)) return a.cost < b.cost;
    if (less(a.longest, b.longest) || less(b.longest, a.longest)) return a.longest < b.longest;
    if (less(a.squares, b.squares) || less(b.squares, a.squares)) return a.squares < b.squares;
    return std::lexicographical_compare(b.boundaries.rbegin(), b.boundaries.rend(),
                                        a.boundaries.rbegin(), a.boundaries.rend());
  }

  void try_grid(int tensor, int replicas, int stages, int size) {
    ++plans;
    AmpChain chain;
    chain.time = times(tensor, size);
    chain.micro_batches = static_cast<int>(world_.job.global_batch) / replicas / size;
    for (int s = 0; s + 1 < stages; ++s) {
      double seconds = 0;
      for (int r = 0; r < replicas; ++r) {
        double slowest = kNever;
        for (int m = 0; m < tensor; ++m) {
          slowest = std::min(slowest, bandwidth(device(tensor, replicas, s, r, m),
                                                device(tensor, replicas, s + 1, r, m)));
        }
        seconds += 1 / slowest / replicas;
      }
      std::vector<double>& cut = chain.cut.emplace_back();
      for (int l = 1; l < layers_; ++l) {
        cut.push_back(size * costs_.activation(l).value * seconds);
      }
    }
    std::optional<Value> least;
    for (const std::vector<int>& split : all_splits(layers_, stages)) {
      Value value{cost_by_hand(chain, split), 0, 0, split};
      for (int s = 0; s < stages; ++s) {
        double stage = 0;
        for (int l = split[s]; l < split[s + 1]; ++l) stage += chain.time[l];
        value.longest = std::max(value.longest, stage);
        value.squares += stage * stage;
      }
      if (!least || better(value, *least)) least = value;
    }
    const double cost = least->cost + gradients(tensor, replicas, stages, least->boundaries);
    if (fits(tensor, replicas, stages, size, least->boundaries) && (!best || cost < *best)) {
      best = cost;
    }
  }

  double gradients(int tensor, int replicas, int stages, const std::vector<int>& split) const {
    double slowest = 0;
    for (int s = 0; s < stages; ++s) {
      for (int m = 0; m < tensor; ++m) {
        double narrow = kNever;
        for (int r = 0; r < replicas && replicas > 1; ++r) {
          narrow = std::min(narrow, bandwidth(device(tensor, replicas, s, r, m),
                                              device(tensor, replicas, s, (r + 1) % replicas, m)));
        }
        const double bytes = costs_.gradients(split[s], split[s + 1] - split[s]).value / tensor;
        slowest = std::max(slowest, 2.0 * (replicas - 1) / replicas * bytes / narrow);
      }
    }
    return slowest;
  }

  bool fits(int tensor, int replicas, int stages, int size, const std::vector<int>& split) const {
    for (const ir::Recompute recompute : {ir::Recompute::none, ir::Recompute::full}) {
      ir::Plan plan;
      for (int r = 0; r < replicas; ++r) {
        ir::Pipeline chain;
        chain.micro_batch_size = size;
        chain.micro_batches = static_cast<int>(world_.job.global_batch) / replicas / size;
        for (int s = 0; s < stages; ++s) {
          std::vector<DeviceId> devices;
          for (int m = 0; m < tensor; ++m) devices.push_back(device(tensor, replicas, s, r, m));
          chain.stages.push_back(stage_of_layers(world_.workload, split[s], split[s + 1] - split[s],
                                                 tensor_groups(devices, tensor, size), recompute,
                                                 0));
        }
        plan.pipelines.push_back(chain);
      }
      if (world_.verdict(plan).fits()) return true;
    }
    return false;
  }

  const World& world_;
  PlannerInput input_;
  StageCosts costs_;
  int layers_;
};

TEST(Amp, EqualsBruteForceOnTheTinyFamily) {
  int feasible = 0;
  int infeasible = 0;
  for (std::uint64_t n = 0; n < 80; ++n) {
    const auto world = tiny_world(n);
    const BruteForce wanted(*world);
    const PlannerResult result = run_planner("amp", world->input());
    EXPECT_EQ(result.report.plans_examined, wanted.plans) << n;
    ASSERT_EQ(plan_of(result) != nullptr, wanted.best.has_value()) << n;
    EXPECT_EQ(complaint(*world, world->input(), result), "") << n;
    ++(plan_of(result) != nullptr ? feasible : infeasible);
    if (wanted.best) {
      EXPECT_NEAR(estimate_of(result), *wanted.best, 1e-9 * *wanted.best) << n;
    }
  }
  EXPECT_GT(feasible, 50);
  EXPECT_GT(infeasible, 0);
}

/// 12 fast GPUs and 4 slow ones, as in AMP's heterogeneous cluster.
World three_to_one(double fast, double slow) {
  return {make_cluster({{"V100", fast, 32, 4, 20, 3}, {"T4", slow, 32, 4, 6, 1}}, 2),
          small_model(24), 32, 1024};
}

Seconds estimate_of(const World& world, const Options& options = {}) {
  const PlannerResult result = run_planner("amp", world.input(), options);
  EXPECT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  return *result.report.estimate;
}

TEST(Amp, ThePublishedWeightsAreTheCountsOfThePublishedCluster) {
  const World world = three_to_one(120, 60);
  EXPECT_NEAR(estimate_of(world).value, estimate_of(world, {{"average", "as_published"}}).value,
              1e-12);
  const World half(make_cluster({{"V100", 120, 32, 4, 20, 2}, {"T4", 60, 32, 4, 6, 2}}, 2),
                   small_model(24), 32, 1024);
  EXPECT_LT(estimate_of(half, {{"average", "as_published"}}), estimate_of(half));
}

TEST(Amp, ThePublishedModeCountsFourBytesAnElement) {
  // One device: no communication, and one sample takes as long in both modes.
  World one(make_cluster({{"X", 100, 80, 1, 10, 1}}, 1), small_model(6), 4, 512);
  one.job.allowed.max_micro_batch_size = 1;
  EXPECT_NEAR(estimate_of(one).value, estimate_of(one, {{"mode", "as_published"}}).value, 1e-12);
  // Two replicas only: the ring carries twice the bytes of bf16 gradients, and the head is missing.
  World two(make_cluster({{"X", 100, 80, 2, 10, 1}}, 1), small_model(1), 4, 512);
  two.job.allowed.max_micro_batch_size = 1;
  two.job.allowed.max_tensor_parallel = 1;
  const double elements = static_cast<double>(models::parameters(two.workload));
  const double head = static_cast<double>(models::parameters(two.workload.blocks.back()));
  EXPECT_NEAR(estimate_of(two, {{"mode", "as_published"}}).value - estimate_of(two).value,
              (4 * (elements - head) - 2 * elements) / 10e9, 1e-12);
}

TEST(Amp, FallsToTheNextPlanThatFitsAndSaysSo) {
  const World world(make_cluster({{"X", 100, 48, 4, 100, 2}}, 5), llama2_13b(), 16);
  const PlannerResult result = run_planner("amp", world.input());
  ASSERT_TRUE(std::holds_alternative<ir::Plan>(result.outcome));
  EXPECT_GT(result.report.rejected_by_memory, 0);
  bool said = false;
  for (const std::string& note : result.report.notes) {
    said = said || note.find("AMP has no memory model") != std::string::npos;
  }
  EXPECT_TRUE(said);
}

TEST(Amp, NodesOfDifferentSizesAreCutIntoEqualOnes) {
  // Metis 5.2: 1 + 1 + 2 GPUs are seen as four nodes of one.
  const World world(make_cluster({{"A", 100, 80, 1, 10, 2}, {"B", 100, 80, 2, 10, 1}}, 1),
                    small_model(8), 8, 512);
  const PlannerResult result = run_planner("amp", world.input());
  const auto& plan = std::get<ir::Plan>(result.outcome);
  EXPECT_EQ(ir::devices_of(plan).size(), 4U);
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      EXPECT_EQ(stage.segments.front().groups.front().tensor_parallel, 1);
    }
  }
  EXPECT_EQ(result.report.notes.front(), "3 nodes are seen as 4 of 1 GPUs each");
}

}  // namespace
}  // namespace orrery::planners::amp_test
