#include "tests/executor/compute/plain_kernels.h"

#include <cmath>
#include <cstddef>
#include <numbers>

#include "models/base/ids.h"

namespace orrery::executor::plain {
namespace {

/// Index into rows x columns.
std::size_t at(int row, int columns, int column) {
  return as_size(row) * as_size(columns) + as_size(column);
}

/// Index into samples * tokens x heads x head_dim.
std::size_t at(const AttentionShape& s, int heads, int sample, int token, int head, int e) {
  return (as_size(sample * s.tokens + token) * as_size(heads) + as_size(head)) *
             as_size(s.head_dim) +
         as_size(e);
}

int kv_head(const AttentionShape& s, int head) {
  return (s.first_head + head) / s.group - s.first_kv;
}

/// Scaled scores of query token i against all keys that it sees.
Numbers scores(const AttentionShape& s, const Numbers& q, const Numbers& k, int sample, int head,
               int i) {
  Numbers out;
  for (int j = 0; j < (s.causal ? i + 1 : s.tokens); ++j) {
    double sum = 0;
    for (int e = 0; e < s.head_dim; ++e) {
      sum += q[at(s, s.heads, sample, i, head, e)] *
             k[at(s, s.kv_heads, sample, j, kv_head(s, head), e)];
    }
    out.push_back(sum / std::sqrt(s.head_dim));
  }
  return out;
}

double log_sum_of(const Numbers& scores) {
  double sum = 0;
  for (const double score : scores) sum += std::exp(score);
  return std::log(sum);
}

}  // namespace

Numbers gemm(bool transpose_a, bool transpose_b, int m, int n, int k, double alpha,
             const Numbers& a, const Numbers& b, double beta, const Numbers& c) {
  Numbers out(as_size(m) * as_size(n));
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      double sum = 0;
      for (int l = 0; l < k; ++l) {
        sum +=
            a[transpose_a ? at(l, m, i) : at(i, k, l)] * b[transpose_b ? at(j, k, l) : at(l, n, j)];
      }
      out[at(i, n, j)] = alpha * sum + (beta == 0 ? 0 : beta * c[at(i, n, j)]);
    }
  }
  return out;
}

Numbers inverse_rms(const Numbers& x, int rows, int width) {
  Numbers out;
  for (int row = 0; row < rows; ++row) {
    double squares = 0;
    for (int i = 0; i < width; ++i) squares += x[at(row, width, i)] * x[at(row, width, i)];
    out.push_back(1 / std::sqrt(squares / width + 1e-5));
  }
  return out;
}

Numbers rms_norm(const Numbers& x, const Numbers& gain, int rows, int width) {
  const Numbers inverse = inverse_rms(x, rows, width);
  Numbers y(x.size());
  for (int row = 0; row < rows; ++row) {
    for (int i = 0; i < width; ++i) {
      y[at(row, width, i)] = x[at(row, width, i)] * inverse[row] * gain[i];
    }
  }
  return y;
}

/// y_j = x_j r g_j with dr/dx_i = -r^3 x_i / width.
NormGradients rms_norm_backward(const Numbers& dy, const Numbers& x, const Numbers& gain, int rows,
                                int width) {
  const Numbers inverse = inverse_rms(x, rows, width);
  NormGradients out = {Numbers(x.size(), 0), Numbers(gain.size(), 0)};
  for (int row = 0; row < rows; ++row) {
    const double r = inverse[row];
    for (int i = 0; i < width; ++i) {
      for (int j = 0; j < width; ++j) {
        const double slope =
            (i == j ? r : 0) - x[at(row, width, j)] * r * r * r * x[at(row, width, i)] / width;
        out.dx[at(row, width, i)] += dy[at(row, width, j)] * gain[j] * slope;
      }
      out.d_gain[i] += dy[at(row, width, i)] * x[at(row, width, i)] * r;
    }
  }
  return out;
}

namespace {

/// Mean and 1 / standard deviation of a row.
std::pair<double, double> moments(const Numbers& x, int row, int width) {
  double mean = 0, variance = 0;
  for (int i = 0; i < width; ++i) mean += x[at(row, width, i)] / width;
  for (int i = 0; i < width; ++i) variance += std::pow(x[at(row, width, i)] - mean, 2) / width;
  return {mean, 1 / std::sqrt(variance + kNormEpsilon)};
}

}  // namespace

Numbers layer_norm(const Numbers& x, const Numbers& gain, const Numbers& bias, int rows,
                   int width) {
  Numbers y(x.size());
  for (int row = 0; row < rows; ++row) {
    const auto [mean, r] = moments(x, row, width);
    for (int i = 0; i < width; ++i) {
      y[at(row, width, i)] = (x[at(row, width, i)] - mean) * r * gain[i] + bias[i];
    }
  }
  return y;
}

/// y_j = (x_j - m) r g_j + b_j with dm/dx_i = 1 / width and dr/dx_i = -r^3 (x_i - m) / width.
LayerNormGradients layer_norm_backward(const Numbers& dy, const Numbers& x, const Numbers& gain,
                                       int rows, int width) {
  LayerNormGradients out = {Numbers(x.size(), 0), Numbers(gain.size(), 0), Numbers(gain.size(), 0)};
  for (int row = 0; row < rows; ++row) {
    const auto [mean, r] = moments(x, row, width);
    for (int i = 0; i < width; ++i) {
      for (int j = 0; j < width; ++j) {
        const double own = x[at(row, width, j)] - mean, other = x[at(row, width, i)] - mean;
        const double slope = (i == j ? r : 0) - r / width - own * r * r * r * other / width;
        out.dx[at(row, width, i)] += dy[at(row, width, j)] * gain[j] * slope;
      }
      out.d_gain[i] += dy[at(row, width, i)] * (x[at(row, width, i)] - mean) * r;
      out.d_bias[i] += dy[at(row, width, i)];
    }
  }
  return out;
}

Numbers rotate(const Numbers& x, int rows, int tokens, int heads, int head_dim, bool inverse) {
  Numbers y = x;
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int i = 0; i < head_dim / 2; ++i) {
        const double angle =
            (inverse ? -1 : 1) * (row % tokens) * std::exp(-2.0 * i / head_dim * std::log(10000.0));
        const std::size_t first = at(row * heads + head, head_dim, 2 * i);
        y[first] = x[first] * std::cos(angle) - x[first + 1] * std::sin(angle);
        y[first + 1] = x[first] * std::sin(angle) + x[first + 1] * std::cos(angle);
      }
    }
  }
  return y;
}

Attention attention(const AttentionShape& s, const Numbers& q, const Numbers& k, const Numbers& v) {
  Attention out = {Numbers(q.size(), 0), {}};
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int head = 0; head < s.heads; ++head) {
      for (int i = 0; i < s.tokens; ++i) {
        const Numbers row = scores(s, q, k, sample, head, i);
        out.log_sum.push_back(log_sum_of(row));
        for (int j = 0; j < std::ssize(row); ++j) {
          const double p = std::exp(row[j] - out.log_sum.back());
          for (int e = 0; e < s.head_dim; ++e) {
            out.o[at(s, s.heads, sample, i, head, e)] +=
                p * v[at(s, s.kv_heads, sample, j, kv_head(s, head), e)];
          }
        }
      }
    }
  }
  return out;
}

AttentionGradients attention_backward(const AttentionShape& s, const Numbers& d_o, const Numbers& q,
                                      const Numbers& k, const Numbers& v) {
  AttentionGradients out = {Numbers(q.size(), 0), Numbers(k.size(), 0), Numbers(v.size(), 0)};
  for (int sample = 0; sample < s.samples; ++sample) {
    for (int head = 0; head < s.heads; ++head) {
      const int kv = kv_head(s, head);
      for (int i = 0; i < s.tokens; ++i) {
        const Numbers row = scores(s, q, k, sample, head, i);
        const double log_sum = log_sum_of(row);
        Numbers p, dp;
        double mean = 0;
        for (int j = 0; j < std::ssize(row); ++j) {
          p.push_back(std::exp(row[j] - log_sum));
          double sum = 0;
          for (int e = 0; e < s.head_dim; ++e) {
            const double g = d_o[at(s, s.heads, sample, i, head, e)];
            sum += g * v[at(s, s.kv_heads, sample, j, kv, e)];
            out.dv[at(s, s.kv_heads, sample, j, kv, e)] += p.back() * g;
          }
          dp.push_back(sum);
          mean += p.back() * sum;
        }
        for (int j = 0; j < std::ssize(row); ++j) {
          const double ds = p[j] * (dp[j] - mean) / std::sqrt(s.head_dim);
          for (int e = 0; e < s.head_dim; ++e) {
            const std::size_t query = at(s, s.heads, sample, i, head, e);
            const std::size_t key = at(s, s.kv_heads, sample, j, kv, e);
            out.dq[query] += ds * k[key];
            out.dk[key] += ds * q[query];
          }
        }
      }
    }
  }
  return out;
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

double gelu_slope(double x) {
  return 0.5 * std::erfc(-x / std::numbers::sqrt2) +
         x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi);
}

double silu(double x) { return x / (1 + std::exp(-x)); }

double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s + x * s * (1 - s);
}

Numbers cross_entropy_backward(const Numbers& logits, const std::vector<std::int32_t>& targets,
                               int count, double scale) {
  Numbers out;
  for (int row = 0; row < std::ssize(targets); ++row) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += std::exp(logits[at(row, count, i)]);
    for (int i = 0; i < count; ++i) {
      const double p = std::exp(logits[at(row, count, i)]) / sum;
      out.push_back(scale * (p - (i == targets[row] ? 1 : 0)));
    }
  }
  return out;
}

}  // namespace orrery::executor::plain
