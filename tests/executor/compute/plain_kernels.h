/// The kernels of executor/compute/backend.h as plain loops in double: slow, and each a transcript
/// of its formula. Gradients are written from the derivative of the forward formula, not from the
/// fused forms that back ends use.
#pragma once
#include <cstdint>
#include <vector>

#include "executor/compute/backend.h"

namespace orrery::executor::plain {

using Numbers = std::vector<double>;

Numbers gemm(bool transpose_a, bool transpose_b, int m, int n, int k, double alpha,
             const Numbers& a, const Numbers& b, double beta, const Numbers& c);

Numbers inverse_rms(const Numbers& x, int rows, int width);
Numbers rms_norm(const Numbers& x, const Numbers& gain, int rows, int width);
struct NormGradients {
  Numbers dx, d_gain;
};
NormGradients rms_norm_backward(const Numbers& dy, const Numbers& x, const Numbers& gain, int rows,
                                int width);
struct LayerNormGradients {
  Numbers dx, d_gain, d_bias;
};
Numbers layer_norm(const Numbers& x, const Numbers& gain, const Numbers& bias, int rows, int width);
LayerNormGradients layer_norm_backward(const Numbers& dy, const Numbers& x, const Numbers& gain,
                                       int rows, int width);
Numbers rotate(const Numbers& x, int rows, int tokens, int heads, int head_dim, bool inverse);

struct Attention {
  Numbers o, log_sum;
};
Attention attention(const AttentionShape& shape, const Numbers& q, const Numbers& k,
                    const Numbers& v);
struct AttentionGradients {
  Numbers dq, dk, dv;
};
AttentionGradients attention_backward(const AttentionShape& shape, const Numbers& d_o,
                                      const Numbers& q, const Numbers& k, const Numbers& v);

double gelu(double x);
double gelu_slope(double x);
double silu(double x);
double silu_slope(double x);

/// Softmax of each row less the one-hot of its target, times scale.
Numbers cross_entropy_backward(const Numbers& logits, const std::vector<std::int32_t>& targets,
                               int count, double scale);

}  // namespace orrery::executor::plain
