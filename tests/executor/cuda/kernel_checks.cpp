#include "tests/executor/cuda/kernel_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "executor/cuda/numbers.h"
#include "models/base/ids.h"
#include "models/base/rng.h"

namespace orrery::executor {
namespace {

using Doubles = std::vector<double>;

std::size_t count(int a, int b) { return as_size(a) * as_size(b); }

Doubles normal_numbers(std::size_t length, std::uint64_t seed, double deviation = 1) {
  Rng rng(seed);
  Doubles out;
  for (std::size_t i = 0; i < length; ++i) {
    // What bf16 holds, all others do.
    out.push_back(static_cast<double>(widen(narrow(static_cast<float>(deviation * rng.normal())))));
  }
  return out;
}

Tensor put(Backend& backend, const Doubles& numbers, bool wide) {
  const Tensor tensor = backend.allocate(numbers.size(), wide);
  const std::size_t width = backend.element_bytes(wide);
  std::vector<std::byte> bytes(numbers.size() * width);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto single = static_cast<float>(numbers[i]);
    const Bf16 half = narrow(single);
    const void* from = width == 8   ? static_cast<const void*>(&numbers[i])
                       : width == 4 ? static_cast<const void*>(&single)
                                    : &half;
    std::memcpy(&bytes[i * width], from, width);
  }
  backend.upload(bytes, tensor);
  return tensor;
}

Doubles take(Backend& backend, const Tensor& tensor) {
  const std::size_t width = backend.element_bytes(tensor.wide);
  std::vector<std::byte> bytes(tensor.elements * width);
  backend.download(tensor, bytes);
  Doubles out(tensor.elements);
  for (std::size_t i = 0; i < out.size(); ++i) {
    float single = 0;
    Bf16 half;
    if (width == 8) std::memcpy(&out[i], &bytes[i * width], width);
    if (width == 4) std::memcpy(&single, &bytes[i * width], width);
    if (width == 2) std::memcpy(&half, &bytes[i * width], width);
    if (width == 4) out[i] = static_cast<double>(single);
    if (width == 2) out[i] = static_cast<double>(widen(half));
  }
  return out;
}

/// A tensor on the tested back end and its like on the reference.
struct Twin {
  Tensor tested, reference;
};

class Kernel : public ::testing::TestWithParam<Precision> {
 protected:
  void SetUp() override {
    tested_ = make_tested_backend(GetParam());
    reference_ = make_cpu_backend(Precision::fp64, "eigen");
  }
  Twin twin(const Doubles& numbers, bool wide = false) {
    return {put(*tested_, numbers, wide), put(*reference_, numbers, wide)};
  }
  Twin random(std::size_t length, std::uint64_t seed, double deviation = 1, bool wide = false) {
    return twin(normal_numbers(length, seed, deviation), wide);
  }
  Twin fresh(std::size_t length, bool wide = false) {
    return twin(Doubles(length, std::numeric_limits<double>::quiet_NaN()), wide);
  }
  /// Runs the same on both.
  template <class Run>
  void on_both(const Run& run) {
    run(*tested_, [](const Twin& twin) { return twin.tested; });
    run(*reference_, [](const Twin& twin) { return twin.reference; });
  }
  /// Relative to the largest number. Wide results under bf16 are sums in fp32.
  double tolerance(bool wide) const {
    if (GetParam() == Precision::fp64) return 1e-13;
    return GetParam() == Precision::fp32 || wide ? 5e-6 : 1.5e-2;
  }
  void expect_near(const Twin& found, const char* what) {
    const Doubles numbers = take(*tested_, found.tested);
    const Doubles wanted = take(*reference_, found.reference);
    ASSERT_EQ(numbers.size(), wanted.size()) << what;
    double largest = 0.1;
    for (const double number : wanted) largest = std::max(largest, std::abs(number));
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      ASSERT_NEAR(numbers[i], wanted[i], tolerance(found.tested.wide) * largest)
          << what << " at " << i;
    }
  }

  std::unique_ptr<Backend> tested_, reference_;
};

INSTANTIATE_TEST_SUITE_P(Precisions, Kernel,
                         ::testing::Values(Precision::fp32, Precision::fp64, Precision::bf16),
                         [](const auto& info) {
                           return info.param == Precision::fp32   ? "fp32"
                                  : info.param == Precision::fp64 ? "fp64"
                                                                  : "bf16";
                         });

TEST_P(Kernel, BytesComeBackAsTheyWent) {
  for (const std::size_t length : {1u, 1000u, 3'000'001u}) {  // The last one in several pieces.
    const Doubles numbers = normal_numbers(length, 1);
    EXPECT_EQ(take(*tested_, put(*tested_, numbers, false)), numbers);
    const Tensor whole = put(*tested_, numbers, true);
    const Tensor rest = part(whole, length / 3, length);
    EXPECT_EQ(take(*tested_, rest),
              Doubles(numbers.begin() + static_cast<long>(length / 3), numbers.end()));
  }
}

TEST_P(Kernel, AllocationsAreCountedWhileTheyLive) {
  const std::size_t before = tested_->allocated();
  {
    const Tensor tensor = tested_->allocate(1000, false);
    EXPECT_EQ(tested_->allocated(), before + 1000 * tested_->element_bytes(false));
  }
  EXPECT_EQ(tested_->allocated(), before);
}

TEST_P(Kernel, ThePeakHoldsWhatAttentionTakesForItself) {
  const AttentionShape shape = {1, 64, 2, 2, 8};
  const std::size_t elements = 64 * 2 * 8;
  const Tensor q = put(*tested_, normal_numbers(elements, 1), false);
  const Tensor o = tested_->allocate(elements, false), log_sum = tested_->allocate(2 * 64, true);
  tested_->synchronize();
  tested_->reset_peak();
  const std::size_t before = tested_->allocated();
  tested_->attention(shape, q, q, q, o, log_sum);
  tested_->synchronize();
  // The scores of both heads, in the width of sums.
  EXPECT_GE(tested_->peak(), before + 2 * 64 * 64 * tested_->element_bytes(true));
  EXPECT_EQ(tested_->allocated(), before);
}

TEST_P(Kernel, FillsCopiesAndSumsConvertBetweenNarrowAndWide) {
  for (const bool from_wide : {false, true}) {
    for (const bool to_wide : {false, true}) {
      const Twin x = random(777, 1, 1, from_wide), y = random(777, 2, 1, to_wide);
      const Twin copied = fresh(777, to_wide), filled = fresh(777, to_wide);
      on_both([&](Backend& backend, const auto& of) {
        backend.copy(of(x), of(copied));
        backend.add(of(x), of(y));
        backend.fill(of(filled), 0.375);
      });
      expect_near(copied, "copy");
      expect_near(y, "add");
      expect_near(filled, "fill");
    }
  }
}

TEST_P(Kernel, GemmIsTheProductForEveryOrderOfOperands) {
  const int sizes[][3] = {{1, 1, 1},    {3, 5, 7},    {29, 1, 31}, {37, 41, 1},
                          {64, 48, 80}, {5, 130, 67}, {7, 0, 3},   {4, 9, 0}};
  std::uint64_t seed = 1;
  for (const auto& [m, n, k] : sizes) {
    for (const int order : {0, 1, 2, 3}) {
      for (const double beta : {0.0, 1.0, -0.5}) {
        for (const bool wide : {false, true}) {
          const int rows = m, columns = n, inner = k;
          const Twin a = random(count(m, k), ++seed), b = random(count(k, n), ++seed);
          const Twin c =
              beta == 0 ? fresh(count(m, n), wide) : random(count(m, n), ++seed, 1, wide);
          on_both([&](Backend& backend, const auto& of) {
            backend.gemm(order % 2 != 0, order / 2 != 0, rows, columns, inner, 1.5, of(a), of(b),
                         beta, of(c));
          });
          expect_near(c, "c");
        }
      }
    }
  }
}

TEST_P(Kernel, NormsAndTheirGradients) {
  for (const int rows : {5, 64, 200}) {  // Less than, as many as, and more than a chunk of rows.
    const int width = 37;
    const Twin x = random(count(rows, width), 1, 3), gain = random(37, 2);
    const Twin dy = random(count(rows, width), 3), y = fresh(count(rows, width));
    const Twin inverse = fresh(count(rows, 1), true);
    const Twin dx = random(count(rows, width), 4), d_gain = random(37, 5, 1, true);
    on_both([&](Backend& backend, const auto& of) {
      backend.rms_norm(of(x), of(gain), rows, width, of(y), of(inverse));
      backend.rms_norm_backward(of(dy), of(x), of(gain), of(inverse), rows, width, of(dx),
                                of(d_gain));
      backend.rms_norm_backward(of(dy), of(x), of(gain), of(inverse), rows, width, of(dx), {});
    });
    expect_near(y, "y");
    expect_near(inverse, "inverse");
    expect_near(dx, "dx");
    expect_near(d_gain, "d_gain");
  }
}

TEST_P(Kernel, RowsAreCenteredSummedAndAddedTo) {
  for (const int rows : {1, 5, 130}) {  // Also more than one chunk of rows.
    const int width = 37;
    const Twin x = random(count(rows, width), 1), row = random(37, 2),
               y = fresh(count(rows, width)), to = random(count(rows, width), 3),
               sum = random(37, 4, 1, true);
    on_both([&](Backend& backend, const auto& of) {
      backend.center(of(x), rows, width, of(y));
      backend.add_row(of(row), rows, width, of(to));
      backend.sum_rows(of(x), rows, width, of(sum));
    });
    expect_near(y, "centered");
    expect_near(to, "added");
    expect_near(sum, "sums");
  }
}

TEST_P(Kernel, RowsAreScaledAndMultiplied) {
  for (const int rows : {1, 5, 70}) {
    const int width = 37;
    const Twin x = random(count(rows, width), 1), other = random(count(rows, width), 2);
    const Twin factors = random(count(rows, 1), 3, 1, true), y = fresh(count(rows, width));
    const Twin products = fresh(count(rows, 1), true);
    on_both([&](Backend& backend, const auto& of) {
      backend.scale_rows(of(x), of(factors), rows, width, of(y));
      backend.dot_rows(of(x), of(other), rows, width, of(products));
    });
    expect_near(y, "scaled");
    expect_near(products, "products");
  }
}

TEST_P(Kernel, RotationTurnsPairs) {
  const Twin x = random(14 * 30, 1), back = random(14 * 30, 2);
  on_both([&](Backend& backend, const auto& of) {
    backend.rotate(of(x), 14, 7, 3, 10, false);
    backend.rotate(of(back), 14, 7, 3, 10, true);
  });
  expect_near(x, "turned");
  expect_near(back, "turned back");
}

TEST_P(Kernel, AttentionAndItsGradients) {
  const AttentionShape shapes[] = {
      {2, 9, 4, 4, 6, 1, 0, 0, true},    {1, 70, 4, 2, 5, 2, 0, 0, true},
      {2, 131, 2, 1, 8, 4, 2, 0, true},  // The second half of one group.
      {1, 13, 3, 2, 4, 4, 3, 0, true},   // From the last head of one group into the next.
      {1, 64, 2, 2, 16, 1, 6, 6, false}, {3, 1, 2, 2, 4, 1, 0, 0, true},
      {2, 32, 4, 2, 16, 2, 4, 2, true}};
  for (const AttentionShape& s : shapes) {
    const std::size_t rows = count(s.samples, s.tokens);
    const std::size_t wide = rows * count(s.heads, s.head_dim);
    const std::size_t narrow = rows * count(s.kv_heads, s.head_dim);
    const Twin q = random(wide, 1), k = random(narrow, 2), v = random(narrow, 3);
    const Twin d_o = random(wide, 4), o = fresh(wide);
    const Twin log_sum = fresh(rows * count(s.heads, 1), true);
    const Twin dq = fresh(wide), dk = fresh(narrow), dv = fresh(narrow);
    on_both([&](Backend& backend, const auto& of) {
      backend.attention(s, of(q), of(k), of(v), of(o), of(log_sum));
      backend.attention_backward(s, of(d_o), of(q), of(k), of(v), of(o), of(log_sum), of(dq),
                                 of(dk), of(dv));
    });
    expect_near(o, "o");
    expect_near(log_sum, "log_sum");
    expect_near(dq, "dq");
    expect_near(dk, "dk");
    expect_near(dv, "dv");
  }
}

TEST_P(Kernel, ActivationsAndTheirSlopes) {
  Doubles numbers = normal_numbers(203, 1, 3);
  numbers[0] = 0;
  numbers[1] = 60;
  numbers[2] = -60;
  const Twin x = twin(numbers), up = random(203, 2), dy = random(203, 3);
  const Twin y = fresh(203), dx = fresh(203), product = fresh(203), d_gate = fresh(203),
             d_up = fresh(203), rectified = fresh(203), d_rectified = fresh(203);
  on_both([&](Backend& backend, const auto& of) {
    backend.gelu(of(x), of(y));
    backend.gelu_backward(of(dy), of(x), of(dx));
    backend.relu(of(x), of(rectified));
    backend.relu_backward(of(dy), of(rectified), of(d_rectified));
    backend.swiglu(of(x), of(up), of(product));
    backend.swiglu_backward(of(dy), of(x), of(up), of(d_gate), of(d_up));
  });
  expect_near(y, "gelu");
  expect_near(dx, "gelu'");
  expect_near(rectified, "relu");
  expect_near(d_rectified, "relu'");
  expect_near(product, "swiglu");
  expect_near(d_gate, "d_gate");
  expect_near(d_up, "d_up");
}

TEST_P(Kernel, EmbeddingTakesRowsOfItsSliceAndAddsThemBack) {
  const std::vector<std::int32_t> tokens = {4, 9, 5, 4, 0, 6, 7, 4};
  const Twin table = random(33, 1), y = fresh(88), dy = random(88, 2);
  const Twin d_table = random(33, 3, 1, true), untouched = random(33, 4, 1, true);
  on_both([&](Backend& backend, const auto& of) {
    backend.embed(tokens, of(table), 4, 3, 11, of(y));
    backend.embed_backward(tokens, of(dy), 4, 3, 11, of(d_table));
    backend.embed_backward(tokens, of(dy), 20, 3, 11, of(untouched));
  });
  EXPECT_EQ(take(*tested_, y.tested), take(*reference_, y.reference));
  expect_near(d_table, "d_table");
  expect_near(untouched, "a table with none of the tokens");
}

TEST_P(Kernel, CrossEntropyOfSlices) {
  const int rows = 5;
  const std::vector<std::int32_t> targets = {2, 13, 20, 5, 12};
  struct Slice {
    int first, count;
  };
  for (const auto& [first, width] : {Slice{0, 13}, Slice{13, 8}, Slice{21, 0}, Slice{0, 200}}) {
    const int begin = first, entries = width;
    const Twin logits = random(count(rows, width), 1, 4), maximum = fresh(5, true);
    const Twin sums = fresh(5, true), target_logits = fresh(5, true);
    const Twin over_all = twin(Doubles(5, 14), true), total = twin(Doubles(5, 2), true);
    on_both([&](Backend& backend, const auto& of) {
      backend.row_maximum(of(logits), rows, entries, of(maximum));
      backend.row_sums(of(logits), targets, begin, entries, of(over_all), of(sums),
                       of(target_logits));
      backend.cross_entropy_backward(of(logits), targets, begin, entries, of(over_all), of(total),
                                     0.25);
    });
    if (width > 0) expect_near(maximum, "maximum");
    expect_near(sums, "sums");
    expect_near(target_logits, "target logits");
    expect_near(logits, "d_logits");
  }
}

TEST_P(Kernel, OptimizersUpdateTheMasterAndRoundTheWeight) {
  for (const bool apart : {true, false}) {
    // Where precisions agree, the weight may be the master itself.
    if (!apart && GetParam() == Precision::bf16) continue;
    const Twin gradient = random(301, 1, 1, true), master = random(301, 2, 1, true);
    const Twin first = random(301, 3, 1, true), root = random(301, 4, 0.1, true);
    Doubles squares = take(*reference_, root.reference);
    for (double& number : squares) number *= number;
    const Twin second = twin(squares, true);
    const Twin own = fresh(301), descended = fresh(301), plain = random(301, 5, 1, true);
    AdamStep step;
    step.weight_decay = 0.1;
    step.step = 3;
    on_both([&](Backend& backend, const auto& of) {
      backend.adam(step, of(gradient), of(master), of(first), of(second),
                   apart ? of(own) : of(master));
      backend.sgd(0.01, of(gradient), of(plain), apart ? of(descended) : of(plain));
    });
    expect_near(master, "master");
    expect_near(first, "first moment");
    expect_near(second, "second moment");
    expect_near(plain, "master of sgd");
    if (apart) expect_near(own, "weight");
    if (apart) expect_near(descended, "weight of sgd");
  }
}

TEST_P(Kernel, EqualInputsGiveEqualBits) {
  const AttentionShape shape = {2, 48, 4, 2, 16, 2, 0, 0, true};
  const std::vector<std::int32_t> tokens(96, 1);
  Doubles first;
  for (int run = 0; run < 3; ++run) {
    const Tensor q = put(*tested_, normal_numbers(96 * 64, 1), false);
    const Tensor k = put(*tested_, normal_numbers(96 * 32, 2), false);
    const Tensor v = put(*tested_, normal_numbers(96 * 32, 3), false);
    const Tensor o = tested_->allocate(96 * 64, false);
    const Tensor log_sum = tested_->allocate(96 * 4, true);
    const Tensor dq = tested_->allocate(96 * 64, false), dk = tested_->allocate(96 * 32, false),
                 dv = tested_->allocate(96 * 32, false);
    const Tensor weight = put(*tested_, Doubles(64 * 64, 0), true);
    const Tensor table = put(*tested_, Doubles(3 * 64, 0), true);
    tested_->attention(shape, q, k, v, o, log_sum);
    tested_->attention_backward(shape, q, q, k, v, o, log_sum, dq, dk, dv);
    tested_->gemm(true, false, 64, 64, 96, 1, dq, o, 1, weight);
    tested_->embed_backward(tokens, dq, 0, 3, 64, table);
    Doubles all = take(*tested_, weight);
    for (const Tensor& tensor : {dk, dv, table}) {
      const Doubles more = take(*tested_, tensor);
      all.insert(all.end(), more.begin(), more.end());
    }
    if (run == 0) first = all;
    EXPECT_EQ(all, first);
  }
}

}  // namespace
}  // namespace orrery::executor
