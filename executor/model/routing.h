/// Which expert takes which token, decided on the host from the router's scores: each token chooses
/// its `top_k` most likely experts and weighs their outputs by the probabilities [Fedus et al.
/// 2021, Switch Transformer, eq. 1 and 2]; an expert takes at most a capacity of the tokens of a
/// sample, first choices first, in the order of the tokens, and what is over passes it by [Lepikhin
/// et al. 2020, GShard, algorithm 1]. Capacities are of a sample, so that plans do not matter to
/// what is left out; a capacity factor of experts / top_k leaves out nothing.
///
/// Deviation: GShard divides the weights of a token by their sum, which with one expert leaves the
/// router without a gradient; and no term of the loss evens out the load.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "models/ir/model_shape.h"

namespace orrery::executor {

/// Tokens of a sample that an expert takes: an even share times the capacity factor, rounded up.
int expert_capacity(const ir::ModelShape& shape, int tokens);

/// Places are numbered by expert, sample and place among `capacity`.
struct Routing {
  int capacity = 0;
  /// By choice (0 is the most likely) and row.
  std::vector<std::int32_t> experts;
  std::vector<std::int32_t> places;  ///< -1: the expert is full.
  /// By place: its row, and number of the choice in the two lists above. -1: empty.
  std::vector<std::int32_t> rows;
  std::vector<std::int32_t> choices;

  /// Places of the rows' choice number `choice`.
  std::span<const std::int32_t> places_of(int choice, int row_count) const;
};

/// `scores`: rows x experts, of `samples` samples. They become the probabilities.
Routing route(const ir::ModelShape& shape, int samples, std::vector<double>& scores);

/// By choice and row, as Routing lists them: the probability; 0 where the expert is full.
std::vector<double> weights_of(const Routing& routing, const ir::ModelShape& shape,
                               const std::vector<double>& probabilities);

/// The gradient of the scores from those of the weights.
std::vector<double> score_gradients(const Routing& routing, const ir::ModelShape& shape,
                                    const std::vector<double>& probabilities,
                                    const std::vector<double>& d_weights);

}  // namespace orrery::executor
