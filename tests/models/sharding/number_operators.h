/// The operators of deduce.h on whole numbers, for laws: what devices compute on their pieces must
/// be the pieces of what one device computes on the whole.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "models/sharding/deduce.h"
#include "tests/models/sharding/interpreter.h"

namespace orrery::models::testing {

/// A dense block of numbers, and the index of its first element in the whole tensor.
struct Block {
  Shape shape;
  Values values;
  Shape origin;

  double at(const Shape& index) const {
    std::int64_t flat = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) flat = flat * shape[d] + index[d];
    return values[flat];
  }
};

/// Calls visit(index) for all elements, row-major.
template <class Visit>
void for_each_index(const Shape& shape, const Visit& visit) {
  const auto count =
      std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t n = 0; n < count; ++n) {
    Shape index(shape.size());
    std::int64_t rest = n;
    for (std::size_t d = shape.size(); d-- > 0;) {
      index[d] = rest % shape[d];
      rest /= shape[d];
    }
    visit(index);
  }
}

/// The operators on whole numbers; what is not linear in the papers is not linear here.
struct NumberOperator {
  const std::vector<Block>& in;

  template <class Element>
  Block make(const Shape& shape, const Element& element) const {
    Block out{shape, {}, {}};
    for_each_index(shape, [&](const Shape& index) { out.values.push_back(element(index)); });
    return out;
  }
  Block operator()(const op::Dot&) const {
    Shape shape = in[0].shape;
    shape.back() = in[1].shape[1];
    return make(shape, [&](Shape i) {
      const std::int64_t column = i.back();
      double sum = 0;
      for (std::int64_t k = 0; k < in[0].shape.back(); ++k) {
        i.back() = k;
        sum += in[0].at(i) * in[1].at({k, column});
      }
      return sum;
    });
  }
  Block operator()(const op::BatchedDot&) const {
    Shape shape = in[0].shape;
    shape.back() = in[1].shape[2];
    return make(shape, [&](Shape i) {
      const std::int64_t column = i.back();
      double sum = 0;
      for (std::int64_t k = 0; k < in[0].shape.back(); ++k) {
        i.back() = k;
        sum += in[0].at(i) * in[1].at({i[0], k, column});
      }
      return sum;
    });
  }
  /// A row serves two tokens: the first of them that chose the expert, as each token chooses the
  /// one of its largest score. So each part of the tokens has its part of the rows.
  static constexpr std::int64_t kTokensPerRow = 2;
  static std::int64_t choice(const Block& scores, std::int64_t sample, std::int64_t token) {
    std::int64_t best = 0;
    for (std::int64_t e = 1; e < scores.shape[2]; ++e) {
      if (scores.at({sample, token, e}) > scores.at({sample, token, best})) best = e;
    }
    return best;
  }
  /// -1: the row stays empty.
  static std::int64_t token_of(const Block& scores, std::int64_t expert, std::int64_t sample,
                               std::int64_t row) {
    for (std::int64_t s = row * kTokensPerRow; s < (row + 1) * kTokensPerRow; ++s) {
      if (choice(scores, sample, s) == expert) return s;
    }
    return -1;
  }
  Block operator()(const op::Dispatch&) const {
    const Shape shape{in[1].shape[2], in[0].shape[0], in[0].shape[1] / kTokensPerRow,
                      in[0].shape[2]};
    return make(shape, [&](const Shape& i) {
      const std::int64_t token = token_of(in[1], i[0], i[1], i[2]);
      return token < 0 ? 0.0 : in[0].at({i[1], token, i[3]});
    });
  }
  /// The device may hold the rows of some experts; it knows which.
  Block operator()(const op::Combine&) const {
    const Shape shape{in[1].shape[0], in[1].shape[1], in[0].shape[3]};
    return make(shape, [&](const Shape& i) {
      const std::int64_t expert = choice(in[1], i[0], i[1]);
      const std::int64_t row = i[1] / kTokensPerRow;
      const std::int64_t own = expert - in[0].origin[0];
      const bool here = own >= 0 && own < in[0].shape[0];
      if (!here || token_of(in[1], expert, i[0], row) != i[1]) return 0.0;
      return in[1].at({i[0], i[1], expert}) * in[0].at({own, i[0], row, i[2]});
    });
  }
  Block operator()(const op::Unary& unary) const {
    return make(in[0].shape, [&](const Shape& i) {
      const double x = in[0].at(i);
      return unary.linear ? 3 * x : x * x + 1;
    });
  }
  Block operator()(const op::Binary& binary) const {
    return make(in[0].shape, [&](const Shape& i) {
      Shape second(i.begin(), i.begin() + binary.leading);
      const auto rest = static_cast<std::ptrdiff_t>(in[1].shape.size()) - binary.leading;
      second.insert(second.end(), i.end() - rest, i.end());
      const double a = in[0].at(i);
      const double b = in[1].at(second);
      if (binary.kind == op::Binary::Kind::add) return a + b;
      return binary.kind == op::Binary::Kind::multiply ? a * b : std::max(a, b);
    });
  }
  Block operator()(const op::Sum& sum) const {
    Shape shape = in[0].shape;
    const std::int64_t size = shape[sum.dimension];
    shape.erase(shape.begin() + sum.dimension);
    return make(shape, [&](Shape i) {
      double total = 0;
      i.insert(i.begin() + sum.dimension, 0);
      for (std::int64_t k = 0; k < size; ++k) {
        i[sum.dimension] = k;
        total += in[0].at(i);
      }
      return total;
    });
  }
  Block operator()(const op::Reshape&) const { return in[0]; }  // The caller knows the shape.
  Block operator()(const op::Transpose& transpose) const {
    Shape shape;
    for (const int d : transpose.order) shape.push_back(in[0].shape[d]);
    return make(shape, [&](const Shape& i) {
      Shape source(i.size());
      for (std::size_t d = 0; d < i.size(); ++d) {
        source[transpose.order[d]] = i[d];
      }
      return in[0].at(source);
    });
  }
  Block operator()(const op::Norm&) const {
    return make(in[0].shape, [&](const Shape& i) {
      double sum = 0;
      Shape k = i;
      for (k.back() = 0; k.back() < in[0].shape.back(); ++k.back()) {
        sum += in[0].at(k) * in[0].at(k);
      }
      return in[0].at(i) * in[1].at({i.back()}) - sum;
    });
  }
  /// Causal: a token reads those before it, wherever its device's part of the sequence begins.
  Block operator()(const op::Attention&) const {
    const std::int64_t ratio = in[0].shape[2] / in[1].shape[2];
    return make(in[0].shape, [&](const Shape& i) {
      double sum = 0;
      const std::int64_t position = i[1] + in[0].origin[1];
      for (std::int64_t s = 0; s < in[1].shape[1]; ++s) {
        if (s + in[1].origin[1] > position) continue;
        double score = 0;
        for (std::int64_t d = 0; d < in[0].shape[3]; ++d) {
          score += in[0].at({i[0], i[1], i[2], d}) * in[1].at({i[0], s, i[2] / ratio, d});
        }
        sum += std::max(score, 0.0) * in[2].at({i[0], s, i[2] / ratio, i[3]});
      }
      return sum;
    });
  }
  Block operator()(const op::Embedding&) const {
    Shape shape = in[0].shape;
    shape.push_back(in[1].shape[1]);
    return make(shape, [&](const Shape& i) {
      const auto token = static_cast<std::int64_t>(in[0].at(Shape(i.begin(), i.end() - 1)));
      const std::int64_t row = token - in[1].origin[0];
      return row < 0 || row >= in[1].shape[0] ? 0.0 : in[1].at({row, i.back()});
    });
  }
  Block operator()(const op::CrossEntropy&) const {
    return make(in[1].shape, [&](Shape i) {
      const auto label = static_cast<std::int64_t>(in[1].at(i));
      double largest = -1e9;
      i.push_back(0);
      for (i.back() = 0; i.back() < in[0].shape.back(); ++i.back()) {
        largest = std::max(largest, in[0].at(i));
      }
      i.back() = label;
      return largest - in[0].at(i);
    });
  }
};

inline Block whole(const Shape& shape, const Values& values) {
  return {shape, values, Shape(shape.size(), 0)};
}

inline Block piece_of(const BoxPiece& piece, const Shape& shape, const Buffers& buffers) {
  Block block;
  for (const Slice& slice : piece.box) {
    block.shape.push_back(slice.size());
    block.origin.push_back(slice.begin);
  }
  for_each_element(piece.box, shape, [&](std::size_t e) {
    block.values.push_back(buffers.at(piece.device)[e].value());
  });
  return block;
}

}  // namespace orrery::models::testing
