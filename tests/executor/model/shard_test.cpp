/// Does a rank's share of the model compute what the whole model does? Against a reference in plain
/// loops, for every tensor-parallel degree, precision, recompute mode and cut into stages.
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "executor/model/parameters.h"
#include "models/base/ids.h"
#include "tests/executor/compute/host_tensor.h"
#include "tests/executor/model/shard_runner.h"

namespace orrery::executor::shard_test {
namespace {

using ir::Activation;
using ir::Recompute;

/// ||a - b|| / ||b||.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return std::sqrt(difference / (norm > 0 ? norm : 1));
}

double norm_of(const std::vector<double>& x) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  return std::sqrt(squares);
}

/// The largest distance over the losses and all gradients. A bias of keys shifts all scores of a
/// query alike, so that its gradient is 0: what is left of it counts against the block's largest.
double distance(const reference::Result& a, const reference::Result& b) {
  double largest = distance(a.losses, b.losses);
  for (std::size_t block = 0; block < b.gradients.size(); ++block) {
    double most = 0;
    for (const auto& gradient : b.gradients[block]) most = std::max(most, norm_of(gradient));
    for (std::size_t p = 0; p < b.gradients[block].size(); ++p) {
      const auto& one = a.gradients[block][p];
      const bool none = norm_of(b.gradients[block][p]) < 1e-9 * most;
      largest =
          std::max(largest, none ? norm_of(one) / most : distance(one, b.gradients[block][p]));
    }
  }
  return largest;
}

bool equal_bits(const reference::Result& a, const reference::Result& b) {
  return a.losses == b.losses && a.gradients == b.gradients;
}

struct Setting {
  ir::ProgramHeader header;
  reference::Weights weights;
  Tokens tokens;
  explicit Setting(const ir::ProgramHeader& of, int samples = 3)
      : header(of), weights(random_weights(of, 5)), tokens(random_tokens(of, samples, 6)) {}
  ShardResult shards(const ShardRun& how) const {
    return run_shards(header, weights, {tokens}, how);
  }
};

struct Shape {
  int kv_heads;
  Activation activation;
  int vocabulary;
  bool gpt = false;  ///< LayerNorm, biases, learned positions.
  bool tied = false;
  int experts = 0;
  int top_k = 0;
  double capacity_factor = 1;
  ir::ProgramHeader header() const {
    const ir::ProgramHeader dense = gpt ? small_gpt(8, kv_heads, activation, vocabulary, tied)
                                        : small_header(8, kv_heads, activation, vocabulary);
    return experts > 0 ? with_experts(dense, experts, top_k, capacity_factor) : dense;
  }
};

class ShardOfShape : public ::testing::TestWithParam<Shape> {};

INSTANTIATE_TEST_SUITE_P(
    All, ShardOfShape,
    ::testing::Values(Shape{8, Activation::gelu, 37}, Shape{8, Activation::swiglu, 64},
                      Shape{4, Activation::swiglu, 37}, Shape{2, Activation::gelu, 41},
                      Shape{1, Activation::swiglu, 5}, Shape{8, Activation::gelu, 37, true, true},
                      Shape{8, Activation::relu, 64, true, true},
                      Shape{2, Activation::relu, 41, true, false},
                      Shape{4, Activation::swiglu, 37, true, true},
                      // Dropless, with places for less than all, and with one expert a token.
                      Shape{4, Activation::swiglu, 37, false, false, 4, 2, 2.0},
                      Shape{2, Activation::swiglu, 41, false, false, 4, 2, 0.75},
                      Shape{8, Activation::gelu, 37, true, true, 8, 1, 1.0},
                      Shape{4, Activation::relu, 37, true, false, 2, 2, 0.5}));

TEST_P(ShardOfShape, LossAndGradientsEqualTheReferenceAtEveryDegree) {
  const Setting setting(GetParam().header());
  const reference::Result wanted =
      reference::run(setting.header, setting.weights, setting.tokens.samples, setting.tokens.tokens,
                     setting.tokens.targets, 0.125);
  for (const Precision precision : {Precision::fp64, Precision::fp32}) {
    for (const int degree : {1, 2, 4, 8}) {
      for (const bool sequence : {false, true}) {
        if (sequence && degree == 8) continue;  // There are 7 tokens.
        const ShardResult found = setting.shards(
            {.precision = precision, .degree = degree, .sequence = sequence, .scale = 0.125});
        EXPECT_EQ(found.unequal, "") << "degree " << degree;
        EXPECT_LT(distance(found.whole, wanted), precision == Precision::fp64 ? 1e-12 : 1e-5)
            << "degree " << degree << (sequence ? " in parts of the sequence" : "") << " fp"
            << (precision == Precision::fp64 ? 64 : 32);
      }
    }
  }
}

TEST_P(ShardOfShape, ExpertsDividedAmongGroupsEqualTheReference) {
  const int experts = GetParam().experts;
  if (experts == 0) return;
  const Setting setting(GetParam().header(), 4);
  const reference::Result wanted =
      reference::run(setting.header, setting.weights, setting.tokens.samples, setting.tokens.tokens,
                     setting.tokens.targets, 1);
  for (const int groups : {2, 4}) {
    if (experts % groups != 0) continue;
    for (const int degree : {1, 2, 4}) {
      for (const bool sequence : {false, true}) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
          const ShardResult found = setting.shards({.degree = degree,
                                                    .sequence = sequence,
                                                    .expert_degree = groups,
                                                    .recompute = recompute,
                                                    .split_backward = sequence});
          EXPECT_EQ(found.unequal, "") << groups << " x " << degree;
          EXPECT_EQ(found.kept_at_end, 0U);
          EXPECT_LT(distance(found.whole, wanted), 1e-12) << groups << " x " << degree;
        }
      }
    }
  }
}

TEST_P(ShardOfShape, RecomputeSplitBackwardAndStagesChangeNoBit) {
  const Setting setting(GetParam().header());
  for (const int degree : {1, 2}) {
    const ShardResult plain = setting.shards({.precision = Precision::fp32, .degree = degree});
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      for (const bool split : {false, true}) {
        for (const auto& stages : std::vector<std::vector<std::pair<int, int>>>{
                 {}, {{0, 1}, {2, 3}}, {{0, 0}, {1, 1}, {2, 2}, {3, 3}}}) {
          const ShardResult found = setting.shards({.precision = Precision::fp32,
                                                    .degree = degree,
                                                    .recompute = recompute,
                                                    .split_backward = split,
                                                    .stages = stages});
          // Both ends add to a tied matrix, here in another order.
          const bool order = GetParam().tied && split;
          EXPECT_TRUE(order ? distance(found.whole, plain.whole) < 1e-6
                            : equal_bits(found.whole, plain.whole))
              << "recompute " << static_cast<int>(recompute) << " split " << split << " stages "
              << stages.size() << ": " << distance(found.whole, plain.whole);
          EXPECT_EQ(found.kept_at_end, 0U);
        }
      }
    }
  }
}

TEST(ModelShard, GradientsAccumulateOverMicroBatches) {
  const ir::ProgramHeader header = small_header(4, 2, Activation::swiglu);
  const reference::Weights weights = random_weights(header, 5);
  const std::vector<Tokens> batches = {random_tokens(header, 1, 1), random_tokens(header, 3, 2)};
  const ShardResult found = run_shards(header, weights, batches, {.degree = 2});
  reference::Result wanted =
      reference::run(header, weights, 1, batches[0].tokens, batches[0].targets, 1);
  const reference::Result second =
      reference::run(header, weights, 3, batches[1].tokens, batches[1].targets, 1);
  wanted.losses.insert(wanted.losses.end(), second.losses.begin(), second.losses.end());
  for (std::size_t b = 0; b < wanted.gradients.size(); ++b) {
    for (std::size_t p = 0; p < wanted.gradients[b].size(); ++p) {
      for (std::size_t i = 0; i < wanted.gradients[b][p].size(); ++i) {
        wanted.gradients[b][p][i] += second.gradients[b][p][i];
      }
    }
  }
  EXPECT_LT(distance(found.whole, wanted), 1e-12);
}

double total(const std::vector<double>& losses) {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

/// (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12 h: the error is of the fourth power of h.
TEST(ModelShard, GradientsAreThoseOfCentralDifferences) {
  for (const ir::ProgramHeader& header :
       {small_header(4, 2, Activation::gelu, 13), small_header(4, 2, Activation::swiglu, 13),
        small_gpt(4, 2, Activation::gelu, 13, false),
        with_experts(small_header(4, 2, Activation::swiglu, 13), 4, 2, 2)}) {
    Setting setting(header, 2);
    const ShardResult found = setting.shards({});
    for (std::size_t b = 0; b < setting.weights.size(); ++b) {
      for (std::size_t p = 0; p < setting.weights[b].size(); ++p) {
        const std::vector<double>& gradient = found.whole.gradients[b][p];
        std::vector<double> numeric, analytic;
        for (std::size_t k = 0; k < 5; ++k) {
          const std::size_t i = (k * 7919 + 3) % gradient.size();
          double& weight = setting.weights[b][p][i];
          const double before = weight, h = 1e-3;
          const auto loss = [&](double step) {
            weight = before + step;
            const double value = total(setting.shards({}).whole.losses);
            weight = before;
            return value;
          };
          numeric.push_back((8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h));
          analytic.push_back(gradient[i]);
        }
        const ParameterInfo info = parameters_of(header, {static_cast<std::int32_t>(b)})[p];
        if (info.name == "attention.key.bias") {  // Without rotation it shifts scores alike.
          EXPECT_LT(norm_of(analytic), 1e-12);
          continue;
        }
        EXPECT_LT(distance(analytic, numeric), 1e-6) << "block " << b << " " << info.name;
      }
    }
  }
}

TEST(ModelShard, EverySumOverTheGroupMatters) {
  const auto dense = small_header(8, 4, Activation::swiglu);
  for (const auto& [header, sequence, groups] :
       {std::tuple(dense, false, 1), std::tuple(dense, true, 1),
        std::tuple(with_experts(dense, 4, 2, 1), false, 2)}) {
    const Setting setting(header, 4);
    ShardRun run = {.degree = 2, .sequence = sequence, .expert_degree = groups};
    const ShardResult right = setting.shards(run);
    for (std::size_t skipped = 0; skipped < right.sums.size(); ++skipped) {
      run.skipped_sum = static_cast<int>(skipped);
      const ShardResult wrong = setting.shards(run);
      // Without the largest logit of all, each member's sums of exponentials have another scale.
      EXPECT_GT(distance(wrong.whole, right.whole), 1e-4)
          << "exchange " << skipped << " of the " << right.sums[skipped].pass << " pass";
    }
  }
}

TEST(ModelShard, AloneItCommunicatesNothing) {
  const Setting setting(small_header(8, 4, Activation::swiglu));
  EXPECT_TRUE(setting.shards({.degree = 1}).sums.empty());
}

TEST(ModelShard, RecomputeKeepsLess) {
  const Setting setting(small_header(8, 4, Activation::swiglu));
  const auto kept = [&](Recompute recompute) {
    return setting.shards({.recompute = recompute, .stages = {{0, 0}, {1, 2}, {3, 3}}}).kept;
  };
  const auto none = kept(Recompute::none), selective = kept(Recompute::selective),
             full = kept(Recompute::full);
  const std::size_t rows = 3 * 7;
  EXPECT_EQ(none[0], 0U);
  EXPECT_EQ(none[1] - selective[1], 2 * rows * 8 * sizeof(double));  // Log-sum-exp of 8 heads.
  EXPECT_EQ(full[1], 2 * rows * 20 * sizeof(double));                // The inputs of two layers.
  EXPECT_EQ(none[2], full[2]);
}

ModelShard::HeldBlock at(std::int32_t block, int degree, int position) {
  return {{block}, degree, position};
}

TEST(ModelShard, InitialWeightsDoNotDependOnTheDegree) {
  const ir::ProgramHeader header = small_header(8, 2, Activation::gelu);
  const auto backend = make_cpu_backend(Precision::fp64, "eigen");
  for (std::int32_t b = 0; b < 4; ++b) {
    ModelShard whole(*backend, header, {at(b, 1, 0)});
    whole.initialize();
    for (int position = 0; position < 4; ++position) {
      ModelShard shard(*backend, header, {at(b, 4, position)});
      shard.initialize();
      for (std::size_t p = 0; p < shard.parameters({b}).size(); ++p) {
        const HeldParameter& held = shard.parameters({b})[p];
        const Tensor slice =
            part(whole.parameters({b})[p].weight, as_size(held.slice().begin * held.info.unit),
                 as_size(held.slice().end * held.info.unit));
        EXPECT_EQ(to_numbers(*backend, held.weight), to_numbers(*backend, slice))
            << held.info.name << " of position " << position;
      }
    }
  }
}

TEST(ModelShard, InitialMatricesAreNormalAndOutputsSmaller) {
  ir::ProgramHeader header = small_header(8, 8, Activation::swiglu, 500);
  const auto deviation = [&](std::int32_t block, std::size_t parameter) {
    const ParameterInfo info = parameters_of(header, {block})[parameter];
    const auto values = initial_values(header, {block}, parameter, 0, info.elements());
    double squares = 0;
    for (const double value : values) squares += value * value;
    return std::sqrt(squares / static_cast<double>(values.size()));
  };
  EXPECT_NEAR(deviation(0, 0), 0.02, 5e-4);
  EXPECT_NEAR(deviation(1, 1), 0.02, 2e-3);
  EXPECT_NEAR(deviation(1, 4), 0.01, 1e-3);  // 0.02 / sqrt(2 x 2 layers).
  EXPECT_NEAR(deviation(1, 8), 0.01, 1e-3);
  EXPECT_EQ(deviation(1, 0), 1);
  const auto first = initial_values(header, {1}, 1, 0, 10);
  EXPECT_NE(first, initial_values(header, {2}, 1, 0, 10));
  EXPECT_NE(first, initial_values(header, {1}, 2, 0, 10));
  header.seed = 12;
  EXPECT_NE(first, initial_values(header, {1}, 1, 0, 10));
}

TEST(ModelShard, MomentsExistOnlyForAdam) {
  ir::ProgramHeader header = small_header(8, 8, Activation::gelu);
  const auto backend = make_cpu_backend(Precision::fp32, "eigen");
  ModelShard adam(*backend, header, {at(1, 1, 0)});
  EXPECT_EQ(adam.parameters({1})[0].first_moment.elements, 20U);
  header.optimizer = ir::Optimizer::sgd;
  ModelShard sgd(*backend, header, {at(1, 1, 0)});
  EXPECT_EQ(sgd.parameters({1})[0].first_moment.memory, nullptr);
}

}  // namespace
}  // namespace orrery::executor::shard_test
