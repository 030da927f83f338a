/// The operators of the supported models, with their rules: the shape of the output, and what one
/// level of sharding (HDim, or one entry of the states on the grid that all inputs share) becomes.
/// [Hetu v2, Figure 11]
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/sharding/annotation.h"
#include "models/sharding/symbolic.h"

namespace orrery::models {

/// Comments give the shapes; B, S: samples, tokens.
namespace op {

/// (..., k), (k, n) -> (..., n).
struct Dot {};
/// (E, ..., k), (E, k, n) -> (E, ..., n): one product for each of E experts.
struct BatchedDot {};
/// One number in, one out. Linear ones (scaling) may act on summands.
struct Unary {
  bool linear = false;
};
/// The second input has as many dimensions or fewer: its first `leading` are those of the first
/// input, the others are aligned at the last one. A bias has none leading, the biases of experts
/// (E, n) have one for rows (E, ..., n).
struct Binary {
  enum class Kind { add, multiply, other } kind = Kind::add;
  int leading = 0;
};
/// Adds up a dimension and removes it.
struct Sum {
  int dimension = 0;
};
/// Consecutive dimensions become others of the same product: (B, S, h) -> (B, S, n, d) is
/// {{1, 1}, {1, 1}, {1, 2}}, merging the first two is {{2, 1}, {1, 1}}.
struct Reshape {
  struct Group {
    int inputs = 1;
    int outputs = 1;
  };
  std::vector<Group> groups;
  SymbolicShape shape;
};
/// Dimension i of the output is dimension order[i] of the input.
struct Transpose {
  std::vector<int> order;
};
/// (..., h), (h) -> (..., h): layer or RMS norm over the last dimension, with a gain.
struct Norm {};
/// (B, S, n, d), (B, S, g, d), (B, S, g, d) -> (B, S, n, d); g divides n. Keys and values are of
/// whole sequences; queries may be parts of them, as each device knows the positions of its tokens.
/// Queries may be split by heads while keys and values are whole if those have one head left, which
/// all of the device's queries then share.
struct Attention {};
/// Tokens (B, S), table (V, h) -> (B, S, h). Tokens that a part of the table has not give 0.
struct Embedding {};
/// Tokens (B, S, h), router scores (B, S, E) -> rows (E, B, C, h), C = `rows`: for each expert, and
/// in each sample, places for the tokens that choose it; what stays empty is 0. The choice is among
/// all experts. Each part of a sample's tokens has its part of the places, as each group of tokens
/// has its share of an expert's capacity in [Lepikhin et al. 2020, GShard, 2.2]. C is mostly a
/// symbol: tokens per expert are known at run time.
struct Dispatch {
  SymbolicSize rows;
};
/// Rows (E, B, C, h), router scores (B, S, E) -> (B, S, h): each token gets the rows of the experts
/// that it chose, times its scores for them, added up.
struct Combine {};
/// Logits (B, S, V), labels (B, S) -> losses (B, S).
struct CrossEntropy {};

}  // namespace op

using OperatorType = std::variant<op::Dot, op::Unary, op::Binary, op::Sum, op::Reshape,
                                  op::Transpose, op::Norm, op::Attention, op::Embedding,
                                  op::CrossEntropy, op::BatchedDot, op::Dispatch, op::Combine>;
/// "dot", "cross-entropy", ...
std::string_view name_of(const OperatorType& type);
/// How many inputs it takes.
std::size_t inputs_of(const OperatorType& type);

/// What keeps an operator from running on what the devices hold.
struct DeductionProblem {
  int input = 0;       ///< Before which a communication operator belongs, or whose shape is wrong.
  std::string reason;  ///< "needs a communication operator before input 1 because ...".
};

/// Shape of the output, or the input whose shape does not fit.
std::variant<SymbolicShape, DeductionProblem> shape_of(const OperatorType& type,
                                                       const std::vector<SymbolicShape>& inputs);

/// What a level of sharding becomes, given the axis of each input on it and what the levels outside
/// it leave of the inputs' shapes. The reason of a problem says why a device could not work on what
/// it holds.
std::variant<Axis, DeductionProblem> axis_of(const OperatorType& type,
                                             const std::vector<Axis>& axes,
                                             const std::vector<SymbolicShape>& shapes);

}  // namespace orrery::models
