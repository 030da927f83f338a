#include "executor/model/routing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

/// In place.
void softmax(std::span<double> scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
}

/// Rows of scores, or of their gradients.
template <class T>
std::span<T> row_of(std::span<T> all, std::size_t row, std::size_t width) {
  return all.subspan(row * width, width);
}

}  // namespace

int expert_capacity(const ir::ModelShape& shape, int tokens) {
  constexpr double kRounding = 1e-9;  // 0.1 x 30 is not more than 3.
  const double share = tokens * shape.top_k * shape.capacity_factor / shape.experts;
  return std::max(1, static_cast<int>(std::ceil(share - kRounding)));
}

std::span<const std::int32_t> Routing::places_of(int choice, int row_count) const {
  return std::span(places).subspan(as_size(choice) * as_size(row_count), as_size(row_count));
}

Routing route(const ir::ModelShape& shape, int samples, std::vector<double>& scores) {
  const std::size_t experts = as_size(shape.experts), choices = as_size(shape.top_k);
  const std::size_t rows = scores.size() / experts, tokens = rows / as_size(samples);
  ORRERY_CHECK(
      choices <= experts && rows * experts == scores.size() && tokens * as_size(samples) == rows,
      "{} scores of {} samples for {} of {} experts", scores.size(), samples, choices, experts);
  Routing out;
  out.capacity = expert_capacity(shape, static_cast<int>(tokens));
  const std::size_t capacity = as_size(out.capacity);
  out.experts.resize(choices * rows);
  out.places.assign(choices * rows, -1);
  out.rows.assign(experts * as_size(samples) * capacity, -1);
  out.choices = out.rows;
  std::vector<std::int32_t> order(experts);
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<double> own = row_of(std::span(scores), row, experts);
    softmax(own);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return own[as_size(a)] > own[as_size(b)];
    });
    for (std::size_t k = 0; k < choices; ++k) out.experts[k * rows + row] = order[k];
  }
  for (std::size_t sample = 0; sample < as_size(samples); ++sample) {
    std::vector<std::size_t> taken(experts, 0);
    for (std::size_t k = 0; k < choices; ++k) {
      for (std::size_t row = sample * tokens; row < (sample + 1) * tokens; ++row) {
        const std::size_t choice = k * rows + row;
        const std::size_t expert = as_size(out.experts[choice]);
        if (taken[expert] == capacity) continue;
        const std::size_t place = (expert * as_size(samples) + sample) * capacity + taken[expert]++;
        out.places[choice] = static_cast<std::int32_t>(place);
        out.rows[place] = static_cast<std::int32_t>(row);
        out.choices[place] = static_cast<std::int32_t>(choice);
      }
    }
  }
  return out;
}

std::vector<double> weights_of(const Routing& routing, const ir::ModelShape& shape,
                               const std::vector<double>& probabilities) {
  const std::size_t experts = as_size(shape.experts), rows = probabilities.size() / experts;
  std::vector<double> out(routing.places.size(), 0.0);
  for (std::size_t choice = 0; choice < out.size(); ++choice) {
    if (routing.places[choice] < 0) continue;
    out[choice] = probabilities[choice % rows * experts + as_size(routing.experts[choice])];
  }
  return out;
}

/// Of a softmax: p (dp - sum(p dp)).
std::vector<double> score_gradients(const Routing& routing, const ir::ModelShape& shape,
                                    const std::vector<double>& probabilities,
                                    const std::vector<double>& d_weights) {
  const std::size_t experts = as_size(shape.experts), rows = probabilities.size() / experts;
  std::vector<double> out(probabilities.size(), 0.0);
  for (std::size_t choice = 0; choice < d_weights.size(); ++choice) {
    if (routing.places[choice] < 0) continue;
    out[choice % rows * experts + as_size(routing.experts[choice])] = d_weights[choice];
  }
  for (std::size_t row = 0; row < rows; ++row) {
    const std::span<double> own = row_of(std::span(out), row, experts);
    const auto p = row_of(std::span(probabilities), row, experts);
    const double mean = std::inner_product(own.begin(), own.end(), p.begin(), 0.0);
    for (std::size_t e = 0; e < experts; ++e) own[e] = p[e] * (own[e] - mean);
  }
  return out;
}

}  // namespace orrery::executor
