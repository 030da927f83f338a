#include "tests/models/lower/number_model.h"

#include <utility>

#include "models/base/rng.h"

namespace orrery::models {
namespace {

double number(std::uint64_t key) { return Rng(0x5eed).fork(key).uniform() - 0.5; }

}  // namespace

std::vector<double> forward_row(const std::vector<double>& x, const Weights& w) {
  std::vector<double> y(x.size(), 0);
  for (std::int64_t j = w.begin; j < w.end; ++j) {
    const std::size_t row = j;
    double h = 0;
    for (std::size_t i = 0; i < x.size(); ++i) h += x[i] * w.full[0][0][i] * w.full[1][row][i];
    for (std::size_t i = 0; i < x.size(); ++i) y[i] += h * w.full[2][row][i];
  }
  return y;
}

std::vector<double> backward_row(const std::vector<double>& x, const std::vector<double>& dy,
                                 const Weights& w, BlockNumbers& gradient) {
  std::vector<double> dz(x.size(), 0);
  for (std::int64_t j = w.begin; j < w.end; ++j) {
    const std::size_t row = j;
    double h = 0;
    double dh = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      h += x[i] * w.full[0][0][i] * w.full[1][row][i];
      dh += dy[i] * w.full[2][row][i];
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      gradient[2][row][i] += h * dy[i];
      gradient[1][row][i] += dh * x[i] * w.full[0][0][i];
      dz[i] += dh * w.full[1][row][i];
    }
  }
  return dz;
}

BlockNumbers zeros(int d, int f) {
  const Rows inner(f, std::vector<double>(d, 0));
  return {Rows(1, std::vector<double>(d, 0)), inner, inner};
}

void descend(BlockNumbers& weights, const BlockNumbers& gradient, double rate) {
  for (std::size_t p = 0; p < weights.size(); ++p) {
    for (std::size_t r = 0; r < weights[p].size(); ++r) {
      for (std::size_t i = 0; i < weights[p][r].size(); ++i) {
        weights[p][r][i] -= rate * gradient[p][r][i];
      }
    }
  }
}

Workload number_workload(int blocks, int d, int f, int tokens_per_sample, int experts) {
  Workload workload;
  workload.name = "numbers";
  workload.sequence_length = tokens_per_sample;
  workload.dtype = ir::Dtype::fp64;
  workload.shape.layers = blocks;
  workload.shape.hidden = d;
  workload.shape.experts = experts;
  workload.shape.top_k = 1;
  const bool expert = experts > 0;
  const int width = expert ? f / experts : f;
  for (int b = 0; b < blocks; ++b) {
    Block block;
    block.kind = experts > 0 ? ir::BlockKind::moe : ir::BlockKind::transformer;
    block.parameters = {{"g", d, 0, false},
                        {"a", std::int64_t{d} * f, width, expert},
                        {"b", std::int64_t{d} * f, width, expert}};
    block.expert_all_to_all = expert;
    block.tensor_collectives = 1;
    block.input_bytes = block.output_bytes = Bytes{8.0 * d * tokens_per_sample};
    block.kept_split = block.input_bytes;
    workload.blocks.push_back(std::move(block));
  }
  return workload;
}

BlockNumbers initial_block(int block, int d, int f) {
  BlockNumbers numbers = zeros(d, f);
  std::uint64_t key = static_cast<std::uint64_t>(block) << 32;
  for (double& g : numbers[0][0]) g = 1.0 + 0.1 * number(++key);
  for (const std::size_t p : {1, 2}) {
    for (std::vector<double>& row : numbers[p]) {
      for (double& value : row) value = number(++key);
    }
  }
  return numbers;
}

std::vector<double> data_row(std::int64_t sample, int token, int d) {
  std::vector<double> row(d);
  const std::uint64_t key = (1ULL << 60) + static_cast<std::uint64_t>(sample) * 4096 +
                            static_cast<std::uint64_t>(token) * 64;
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = number(key + i);
  return row;
}

Slice active_rows(const Workload& workload, std::int64_t sample, std::int64_t token, int f) {
  if (workload.shape.experts == 0) return {0, f};
  const std::int64_t expert = (sample * 7 + token) % workload.shape.experts;
  const std::int64_t width = f / workload.shape.experts;
  return {expert * width, (expert + 1) * width};
}

std::vector<BlockNumbers> reference_step(const Workload& workload, std::int64_t samples, int d,
                                         int f, double rate) {
  std::vector<BlockNumbers> weights;
  std::vector<BlockNumbers> gradients;
  for (int b = 0; b < workload.size(); ++b) {
    weights.push_back(initial_block(b, d, f));
    gradients.push_back(zeros(d, f));
  }
  const bool tied = workload.shape.tied_embeddings;
  if (tied) weights.back()[1] = weights.front()[1];
  for (std::int64_t s = 0; s < samples; ++s) {
    for (int t = 0; t < workload.sequence_length; ++t) {
      Rows x = {data_row(s, t, d)};
      const Slice rows = active_rows(workload, s, t, f);
      for (int b = 0; b < workload.size(); ++b) {
        x.push_back(forward_row(x.back(), {weights[b], rows.begin, rows.end}));
      }
      std::vector<double> dy = x.back();
      for (int b = workload.size() - 1; b >= 0; --b) {
        const std::size_t i = b;
        std::vector<double> dz =
            backward_row(x[i], dy, {weights[i], rows.begin, rows.end}, gradients[i]);
        for (std::size_t k = 0; k < dz.size(); ++k) {
          gradients[i][0][0][k] += dz[k] * x[i][k];
          dz[k] *= weights[i][0][0][k];
        }
        dy = std::move(dz);
      }
    }
  }
  if (tied) {
    for (std::size_t r = 0; r < gradients.front()[1].size(); ++r) {
      for (std::size_t i = 0; i < gradients.front()[1][r].size(); ++i) {
        gradients.front()[1][r][i] += gradients.back()[1][r][i];
      }
    }
    gradients.back()[1] = gradients.front()[1];
  }
  for (std::size_t b = 0; b < weights.size(); ++b) descend(weights[b], gradients[b], rate);
  return weights;
}

}  // namespace orrery::models
