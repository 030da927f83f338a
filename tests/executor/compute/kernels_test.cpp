/// Does every kernel of the CPU back end compute its formula? Against plain loops in double, for
/// both precisions and both matrix libraries, at sizes that no vector width divides.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>

#include "executor/compute/cpu_gemm.h"
#include "models/base/ids.h"
#include "tests/executor/compute/host_tensor.h"
#include "tests/executor/compute/plain_kernels.h"

namespace orrery::executor::kernels_test {
namespace {

using plain::Numbers;

struct Case {
  Precision precision;
  std::string library;
};

void PrintTo(const Case& it, std::ostream* out) {
  *out << it.library << (it.precision == Precision::fp32 ? "_fp32" : "_fp64");
}

class CpuKernel : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { backend_ = make_cpu_backend(GetParam().precision, GetParam().library); }

  Tensor tensor(const Numbers& numbers, bool wide = false) {
    return to_tensor(*backend_, numbers, wide);
  }
  Tensor fresh(std::size_t elements, bool wide = false) {
    Tensor made = backend_->allocate(elements, wide);
    backend_->fill(made, std::numeric_limits<double>::quiet_NaN());
    return made;
  }

  /// Largest difference relative to the largest number.
  void expect_near(const Tensor& found, const Numbers& wanted, const char* what) {
    const Numbers numbers = to_numbers(*backend_, found);
    ASSERT_EQ(numbers.size(), wanted.size()) << what;
    const double tolerance = GetParam().precision == Precision::fp32 ? 2e-6 : 2e-14;
    double largest = 0.1;  // Inputs are about 1; sums may cancel to 0.
    for (const double number : wanted) largest = std::max(largest, std::abs(number));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(numbers[i], wanted[i], tolerance * largest) << what << " at " << i;
    }
  }

  std::unique_ptr<Backend> backend_;
};

std::vector<Case> cases() {
  std::vector<Case> all = {{Precision::fp32, "eigen"}, {Precision::fp64, "eigen"}};
  if (has_openblas()) {
    all.push_back({Precision::fp32, "openblas"});
    all.push_back({Precision::fp64, "openblas"});
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuKernel, ::testing::ValuesIn(cases()),
                         ::testing::PrintToStringParamName());

TEST_P(CpuKernel, GemmIsTheProductForEveryOrderOfOperands) {
  const int sizes[][3] = {{1, 1, 1},   {1, 1, 40},   {3, 5, 7},    {1, 33, 17}, {29, 1, 31},
                          {37, 41, 1}, {64, 48, 80}, {5, 130, 67}, {7, 0, 3},   {4, 9, 0}};
  std::uint64_t seed = 1;
  for (const auto& [m, n, k] : sizes) {
    for (const int order : {0, 1, 2, 3}) {
      for (const double beta : {0.0, 1.0, -0.5}) {
        const bool ta = order % 2 != 0, tb = order / 2 != 0;
        const auto count = [](int x, int y) { return as_size(x * y); };
        const Numbers a = random_numbers(count(m, k), ++seed),
                      b = random_numbers(count(k, n), ++seed);
        const Numbers c = random_numbers(count(m, n), ++seed);
        const Tensor result = beta == 0 ? fresh(c.size()) : tensor(c);
        backend_->gemm(ta, tb, m, n, k, 1.5, tensor(a), tensor(b), beta, result);
        expect_near(result, plain::gemm(ta, tb, m, n, k, 1.5, a, b, beta, c), "c");
      }
    }
  }
}

TEST_P(CpuKernel, EqualProductsHaveEqualBitsWhereverTheyLie) {
  const int m = 45, n = 51, k = 77;
  const Numbers a = random_numbers(m * k, 1), b = random_numbers(k * n, 2);
  const Tensor first = fresh(m * n);
  backend_->gemm(false, true, m, n, k, 1, tensor(a), tensor(b), 0, first);
  for (const std::size_t shift : {1U, 3U, 8U}) {
    const Tensor big_a = backend_->allocate(a.size() + shift, false);
    const Tensor moved = part(big_a, shift, big_a.elements);
    backend_->copy(tensor(a), moved);
    const Tensor big_c = backend_->allocate(m * n + shift, false);
    const Tensor again = part(big_c, shift, big_c.elements);
    backend_->gemm(false, true, m, n, k, 1, moved, tensor(b), 0, again);
    EXPECT_EQ(to_numbers(*backend_, first), to_numbers(*backend_, again)) << "shift " << shift;
  }
}

TEST_P(CpuKernel, NormDividesByTheRootMeanSquare) {
  const int rows = 5, width = 37;
  const Numbers x = random_numbers(rows * width, 1, 3), gain = random_numbers(width, 2);
  const Numbers dy = random_numbers(rows * width, 3);
  const Tensor y = fresh(x.size()), inverse = fresh(rows, true);
  backend_->rms_norm(tensor(x), tensor(gain), rows, width, y, inverse);
  expect_near(y, plain::rms_norm(x, gain, rows, width), "y");
  expect_near(inverse, plain::inverse_rms(x, rows, width), "inverse");

  plain::NormGradients wanted = plain::rms_norm_backward(dy, x, gain, rows, width);
  const Numbers before = random_numbers(x.size(), 4), gain_before = random_numbers(width, 5);
  const Tensor dx = tensor(before), d_gain = tensor(gain_before, true), dx_alone = tensor(before);
  backend_->rms_norm_backward(tensor(dy), tensor(x), tensor(gain), inverse, rows, width, dx,
                              d_gain);
  for (std::size_t i = 0; i < before.size(); ++i) wanted.dx[i] += before[i];
  for (std::size_t i = 0; i < gain_before.size(); ++i) wanted.d_gain[i] += gain_before[i];
  expect_near(dx, wanted.dx, "dx");
  expect_near(d_gain, wanted.d_gain, "d_gain");
  backend_->rms_norm_backward(tensor(dy), tensor(x), tensor(gain), inverse, rows, width, dx_alone,
                              {});
  EXPECT_EQ(to_numbers(*backend_, dx), to_numbers(*backend_, dx_alone));
}

TEST_P(CpuKernel, RowsAreScaledAndMultiplied) {
  const int rows = 5, width = 37;
  const Numbers x = random_numbers(rows * width, 1), other = random_numbers(rows * width, 2);
  const Numbers factors = random_numbers(rows, 3);
  Numbers scaled = x, products(rows, 0.0);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t i = r * width; i < (r + 1) * width; ++i) {
      scaled[i] *= factors[r];
      products[r] += x[i] * other[i];
    }
  }
  const Tensor y = fresh(x.size()), in_place = tensor(x), found = fresh(rows, true);
  backend_->scale_rows(tensor(x), tensor(factors, true), rows, width, y);
  backend_->scale_rows(in_place, tensor(factors, true), rows, width, in_place);
  backend_->dot_rows(tensor(x), tensor(other), rows, width, found);
  expect_near(y, scaled, "scaled");
  EXPECT_EQ(to_numbers(*backend_, y), to_numbers(*backend_, in_place));
  expect_near(found, products, "products");
}

TEST_P(CpuKernel, RowsAreCenteredSummedAndAddedTo) {
  const int rows = 5, width = 37;
  const Numbers x = random_numbers(rows * width, 1), row = random_numbers(width, 2);
  Numbers centered = x, added = x, sums = row;
  for (std::size_t r = 0; r < rows; ++r) {
    double mean = 0;
    for (std::size_t i = 0; i < width; ++i) mean += x[r * width + i] / width;
    for (std::size_t i = 0; i < width; ++i) {
      centered[r * width + i] -= mean;
      added[r * width + i] += row[i];
      sums[i] += x[r * width + i];
    }
  }
  const Tensor y = fresh(x.size()), in_place = tensor(x), to = tensor(x), sum = tensor(row, true);
  backend_->center(tensor(x), rows, width, y);
  backend_->center(in_place, rows, width, in_place);
  backend_->add_row(tensor(row), rows, width, to);
  backend_->sum_rows(tensor(x), rows, width, sum);
  expect_near(y, centered, "centered");
  EXPECT_EQ(to_numbers(*backend_, y), to_numbers(*backend_, in_place));
  expect_near(to, added, "added");
  expect_near(sum, sums, "sums");
}

TEST_P(CpuKernel, ReluKeepsWhatIsPositive) {
  const Numbers x = {-2, -0.5, 0, 0.25, 3}, dy = {1, 2, 3, 4, 5};
  const Tensor y = fresh(x.size()), dx = fresh(x.size());
  backend_->relu(tensor(x), y);
  EXPECT_EQ(to_numbers(*backend_, y), (Numbers{0, 0, 0, 0.25, 3}));
  backend_->relu_backward(tensor(dy), y, dx);
  EXPECT_EQ(to_numbers(*backend_, dx), (Numbers{0, 0, 0, 4, 5}));
}

TEST_P(CpuKernel, RotationTurnsPairsAndItsInverseTurnsThemBack) {
  const int tokens = 7, rows = 14, heads = 3, dim = 10;
  const Numbers x = random_numbers(rows * heads * dim, 1);
  const Tensor turned = tensor(x);
  backend_->rotate(turned, rows, tokens, heads, dim, false);
  expect_near(turned, plain::rotate(x, rows, tokens, heads, dim, false), "rotated");
  backend_->rotate(turned, rows, tokens, heads, dim, true);
  expect_near(turned, x, "turned back");
}

std::vector<AttentionShape> attention_shapes() {
  std::vector<AttentionShape> all(6);
  all[0] = {2, 9, 4, 4, 6, 1, 0, 0, true};
  all[1] = {1, 70, 4, 2, 5, 2, 0, 0, true};   // More than one block of query rows.
  all[2] = {2, 131, 2, 1, 8, 4, 2, 0, true};  // The second half of one group.
  all[3] = {1, 13, 3, 2, 4, 4, 3, 0, true};   // From the last head of one group into the next.
  all[4] = {1, 66, 2, 2, 16, 1, 6, 6, false};
  all[5] = {3, 1, 2, 2, 4, 1, 0, 0, true};
  return all;
}

TEST_P(CpuKernel, AttentionIsSoftmaxOfScores) {
  for (const AttentionShape& s : attention_shapes()) {
    const std::size_t rows = s.samples * s.tokens;
    const std::size_t width = as_size(s.heads * s.head_dim);
    const std::size_t kv_width = as_size(s.kv_heads * s.head_dim);
    const Numbers q = random_numbers(rows * width, 1), k = random_numbers(rows * kv_width, 2);
    const Numbers v = random_numbers(rows * kv_width, 3), d_o = random_numbers(rows * width, 4);
    const Tensor o = fresh(q.size());
    const Tensor log_sum = fresh(rows * as_size(s.heads), true);
    backend_->attention(s, tensor(q), tensor(k), tensor(v), o, log_sum);
    const plain::Attention wanted = plain::attention(s, q, k, v);
    expect_near(o, wanted.o, "o");
    expect_near(log_sum, wanted.log_sum, "log_sum");
    const Tensor dq = fresh(q.size()), dk = fresh(k.size()), dv = fresh(v.size());
    backend_->attention_backward(s, tensor(d_o), tensor(q), tensor(k), tensor(v), o, log_sum, dq,
                                 dk, dv);
    const plain::AttentionGradients gradients = plain::attention_backward(s, d_o, q, k, v);
    expect_near(dq, gradients.dq, "dq");
    expect_near(dk, gradients.dk, "dk");
    expect_near(dv, gradients.dv, "dv");
  }
}

TEST_P(CpuKernel, AttentionOfHugeScoresStaysFinite) {
  const AttentionShape s = {1, 20, 1, 1, 4, 1, 0, 0, true};
  const Numbers q = random_numbers(80, 1, 1e3), k = random_numbers(80, 2, 1e3);
  const Numbers v = random_numbers(80, 3);
  const Tensor o = fresh(80), log_sum = fresh(20, true);
  backend_->attention(s, tensor(q), tensor(k), tensor(v), o, log_sum);
  for (const double number : to_numbers(*backend_, o)) EXPECT_TRUE(std::isfinite(number));
}

TEST_P(CpuKernel, ASampleAloneHasTheSameAttentionAsBesideOthers) {
  AttentionShape s = {3, 70, 2, 1, 8, 2, 0, 0, true};
  const Numbers q = random_numbers(3 * 70 * 16, 1), k = random_numbers(3 * 70 * 8, 2);
  const Numbers v = random_numbers(3 * 70 * 8, 3);
  const Tensor o = fresh(q.size()), log_sum = fresh(3 * 70 * 2, true);
  backend_->attention(s, tensor(q), tensor(k), tensor(v), o, log_sum);
  s.samples = 1;
  const Tensor alone = fresh(70 * 16), log_sum_alone = fresh(70 * 2, true);
  backend_->attention(s, part(tensor(q), 1120, 2240), part(tensor(k), 560, 1120),
                      part(tensor(v), 560, 1120), alone, log_sum_alone);
  EXPECT_EQ(to_numbers(*backend_, part(o, 1120, 2240)), to_numbers(*backend_, alone));
}

TEST_P(CpuKernel, ActivationsAndTheirSlopes) {
  Numbers x = random_numbers(203, 1, 3);
  x[0] = 0;
  x[1] = 60;
  x[2] = -60;
  const Numbers up = random_numbers(203, 2), dy = random_numbers(203, 3);
  Numbers y(203), slope(203), product(203), d_gate(203), d_up(203);
  for (std::size_t i = 0; i < 203; ++i) {
    y[i] = plain::gelu(x[i]);
    slope[i] = dy[i] * plain::gelu_slope(x[i]);
    product[i] = plain::silu(x[i]) * up[i];
    d_gate[i] = dy[i] * up[i] * plain::silu_slope(x[i]);
    d_up[i] = dy[i] * plain::silu(x[i]);
  }
  const Tensor result = fresh(203), second = fresh(203);
  backend_->gelu(tensor(x), result);
  expect_near(result, y, "gelu");
  backend_->gelu_backward(tensor(dy), tensor(x), result);
  expect_near(result, slope, "gelu'");
  backend_->swiglu(tensor(x), tensor(up), result);
  expect_near(result, product, "swiglu");
  backend_->swiglu_backward(tensor(dy), tensor(x), tensor(up), result, second);
  expect_near(result, d_gate, "d_gate");
  expect_near(second, d_up, "d_up");
}

TEST_P(CpuKernel, EmbeddingTakesRowsOfItsSliceAndAddsThemBack) {
  const std::vector<std::int32_t> tokens = {4, 9, 5, 4, 0, 6, 7};
  const int first = 4, count = 3, width = 11;
  const Numbers table = random_numbers(count * width, 1);
  const Numbers dy = random_numbers(tokens.size() * width, 2);
  Numbers y, d_table = random_numbers(table.size(), 3);
  const Tensor gradient = tensor(d_table, true);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    const bool here = tokens[t] >= first && tokens[t] < first + count;
    for (int i = 0; i < width; ++i) {
      const std::size_t place = (tokens[t] - first) * width + i;
      y.push_back(here ? table[place] : 0);
      if (here) d_table[place] += dy[t * width + i];
    }
  }
  const Tensor result = fresh(y.size());
  backend_->embed(tokens, tensor(table), first, count, width, result);
  EXPECT_EQ(to_numbers(*backend_, result), y);
  backend_->embed_backward(tokens, tensor(dy), first, count, width, gradient);
  expect_near(gradient, d_table, "d_table");
}

/// Two slices, as two ranks would have them, and one empty one.
TEST_P(CpuKernel, CrossEntropyOfSlicesIsThatOfTheWholeVocabulary) {
  const int rows = 3, whole = 21, cut = 13;
  const std::vector<std::int32_t> targets = {2, 13, 20};
  const Numbers logits = random_numbers(rows * whole, 1, 4);
  struct Slice {
    int first, count;
    Tensor logits, maximum, sums, target_logits;
  };
  std::vector<Slice> slices = {
      {0, cut, {}, {}, {}, {}}, {cut, whole - cut, {}, {}, {}, {}}, {whole, 0, {}, {}, {}, {}}};
  Numbers maximum(rows, -1e30), sums(rows, 0), target_logits(rows, 0);
  for (Slice& slice : slices) {
    Numbers own;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < slice.count; ++i) {
        own.push_back(logits[as_size(row * whole + slice.first + i)]);
      }
    }
    slice.logits = tensor(own);
    slice.maximum = fresh(rows, true);
    backend_->row_maximum(slice.logits, rows, slice.count, slice.maximum);
    const Numbers found = to_numbers(*backend_, slice.maximum);
    for (std::size_t r = 0; r < rows; ++r) maximum[r] = std::max(maximum[r], found[r]);
  }
  for (Slice& slice : slices) {
    slice.sums = fresh(rows, true);
    slice.target_logits = fresh(rows, true);
    backend_->row_sums(slice.logits, targets, slice.first, slice.count, tensor(maximum, true),
                       slice.sums, slice.target_logits);
    const Numbers found = to_numbers(*backend_, slice.sums);
    const Numbers own = to_numbers(*backend_, slice.target_logits);
    for (std::size_t r = 0; r < rows; ++r) {
      sums[r] += found[r];
      target_logits[r] += own[r];
    }
  }
  const Numbers wanted = plain::cross_entropy_backward(logits, targets, whole, 0.25);
  for (std::size_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::size_t i = 0; i < whole; ++i) sum += std::exp(logits[r * whole + i]);
    const std::size_t target = targets[r];
    EXPECT_NEAR(maximum[r] + std::log(sums[r]) - target_logits[r],
                std::log(sum) - logits[r * whole + target], 1e-5);
  }
  for (const Slice& slice : slices) {
    backend_->cross_entropy_backward(slice.logits, targets, slice.first, slice.count,
                                     tensor(maximum, true), tensor(sums, true), 0.25);
    Numbers own;
    for (int row = 0; row < rows; ++row) {
      for (int i = 0; i < slice.count; ++i) {
        own.push_back(wanted[as_size(row * whole + slice.first + i)]);
      }
    }
    expect_near(slice.logits, own, "d_logits");
  }
}

TEST_P(CpuKernel, AdamFollowsItsDefinition) {
  const AdamStep step = {.learning_rate = 0.01, .weight_decay = 0.1, .step = 3};
  const Numbers g = random_numbers(19, 1), w = random_numbers(19, 2), m = random_numbers(19, 3);
  Numbers v = random_numbers(19, 4), wanted_w, wanted_m, wanted_v;
  for (double& number : v) number *= number;
  for (std::size_t i = 0; i < g.size(); ++i) {
    wanted_m.push_back(0.9 * m[i] + 0.1 * g[i]);
    wanted_v.push_back(0.95 * v[i] + 0.05 * g[i] * g[i]);
    const double first = wanted_m[i] / (1 - std::pow(0.9, 3));
    const double second = wanted_v[i] / (1 - std::pow(0.95, 3));
    wanted_w.push_back(w[i] - 0.01 * (first / (std::sqrt(second) + 1e-8) + 0.1 * w[i]));
  }
  const Tensor master = tensor(w, true), moment = tensor(m, true), square = tensor(v, true);
  const Tensor weight = fresh(19);
  backend_->adam(step, tensor(g, true), master, moment, square, weight);
  expect_near(master, wanted_w, "master");
  expect_near(weight, wanted_w, "weight");
  expect_near(moment, wanted_m, "first moment");
  expect_near(square, wanted_v, "second moment");
  backend_->sgd(0.5, tensor(g, true), master, master);
  for (std::size_t i = 0; i < g.size(); ++i) wanted_w[i] -= 0.5 * g[i];
  expect_near(master, wanted_w, "sgd");
}

TEST_P(CpuKernel, NanIsNotHidden) {
  Numbers x = random_numbers(40, 1);
  x[20] = std::numeric_limits<double>::quiet_NaN();
  const Tensor y = fresh(40);
  backend_->swiglu(tensor(x), tensor(random_numbers(40, 2)), y);
  EXPECT_TRUE(std::isnan(to_numbers(*backend_, y)[20]));
}

TEST(CpuBackend, MemoryIsCountedAndUsedAgain) {
  const auto backend = make_cpu_backend(Precision::fp64, "eigen");
  std::byte* address = nullptr;
  {
    const Tensor tensor = backend->allocate(1000, false);
    address = tensor.memory->data();
    EXPECT_EQ(backend->allocated(), 8000U);
  }
  EXPECT_EQ(backend->allocated(), 0U);
  EXPECT_EQ(backend->peak(), 8000U);
  const Tensor again = backend->allocate(1000, true);
  EXPECT_EQ(again.memory->data(), address);
  backend->reset_peak();
  EXPECT_EQ(backend->peak(), 8000U);
}

TEST(CpuBackend, WhatItCannotDoIsRefusedInWords) {
  EXPECT_THROW(make_cpu_backend(Precision::bf16), std::runtime_error);
  EXPECT_THROW(make_cpu_backend(Precision::fp32, "mkl"), std::runtime_error);
  if (!has_openblas()) {
    EXPECT_THROW(make_cpu_backend(Precision::fp32, "openblas"), std::runtime_error);
  }
  EXPECT_NE(make_cpu_backend(Precision::fp32)->name().find("cpu "), std::string::npos);
}

}  // namespace
}  // namespace orrery::executor::kernels_test
