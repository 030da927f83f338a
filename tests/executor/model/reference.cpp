#include "tests/executor/model/reference.h"

#include <cmath>
#include <cstddef>

#include "tests/executor/compute/plain_kernels.h"

namespace orrery::executor::reference {
namespace {

Numbers sum(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// Everything that one layer computes on the way forward.
struct Layer {
  Numbers x, h1, q, k, v, o, x1, h2, gate, up, activated;
};

class Model {
 public:
  Model(const ir::ProgramHeader& header, const Weights& weights, int samples)
      : m_(header.model), w_(weights), rows_(samples * static_cast<int>(header.sequence_length)) {
    shape_.samples = samples;
    shape_.tokens = static_cast<int>(header.sequence_length);
    shape_.heads = m_.heads;
    shape_.kv_heads = m_.kv_heads;
    shape_.head_dim = m_.head_dim;
    shape_.group = m_.heads / m_.kv_heads;
    shape_.causal = m_.causal;
    for (const auto& block : weights) {
      gradients_.emplace_back();
      for (const Numbers& parameter : block) gradients_.back().emplace_back(parameter.size(), 0.0);
    }
  }

  Result run(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
             double scale) {
    Numbers x;
    const auto width = static_cast<std::size_t>(m_.hidden);
    for (const std::int32_t token : tokens) {
      for (std::size_t i = 0; i < width; ++i) {
        x.push_back(w_[0][0][static_cast<std::size_t>(token) * width + i]);
      }
    }
    std::vector<Layer> layers;
    for (std::size_t b = 1; b + 1 < w_.size(); ++b) {
      layers.push_back({});
      layers.back().x = x;
      x = forward(b, layers.back());
    }
    Result out;
    Numbers dx = head(x, targets, scale, out.losses);
    for (std::size_t b = layers.size(); b > 0; --b) dx = backward(b, layers[b - 1], dx);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::size_t i = 0; i < width; ++i) {
        gradients_[0][0][static_cast<std::size_t>(tokens[row]) * width + i] += dx[row * width + i];
      }
    }
    out.gradients = gradients_;
    return out;
  }

 private:
  bool swiglu() const { return m_.activation == ir::Activation::swiglu; }
  std::size_t up_number() const { return swiglu() ? 7 : 6; }

  /// x w^T for a weight of outputs x inputs, and x w for one of inputs x outputs.
  Numbers times_transposed(const Numbers& x, const Numbers& w, int inputs) const {
    return plain::gemm(false, true, rows_, static_cast<int>(w.size()) / inputs, inputs, 1, x, w, 0,
                       {});
  }
  Numbers times(const Numbers& x, const Numbers& w, int outputs) const {
    return plain::gemm(false, false, rows_, outputs, static_cast<int>(w.size()) / outputs, 1, x, w,
                       0, {});
  }
  /// Adds left^T right, where `right` is rows x hidden.
  void add(std::size_t block, std::size_t parameter, const Numbers& left, const Numbers& right) {
    Numbers& to = gradients_[block][parameter];
    to = sum(to, plain::gemm(true, false, static_cast<int>(left.size()) / rows_, m_.hidden, rows_,
                             1, left, right, 0, {}));
  }

  Numbers forward(std::size_t b, Layer& a) {
    const std::vector<Numbers>& w = w_[b];
    a.h1 = plain::rms_norm(a.x, w[0], rows_, m_.hidden);
    a.q = plain::rotate(times_transposed(a.h1, w[1], m_.hidden), rows_, shape_.tokens, m_.heads,
                        m_.head_dim, false);
    a.k = plain::rotate(times_transposed(a.h1, w[2], m_.hidden), rows_, shape_.tokens, m_.kv_heads,
                        m_.head_dim, false);
    a.v = times_transposed(a.h1, w[3], m_.hidden);
    a.o = plain::attention(shape_, a.q, a.k, a.v).o;
    a.x1 = sum(times(a.o, w[4], m_.hidden), a.x);
    a.h2 = plain::rms_norm(a.x1, w[5], rows_, m_.hidden);
    a.up = times_transposed(a.h2, w[up_number()], m_.hidden);
    if (swiglu()) a.gate = times_transposed(a.h2, w[6], m_.hidden);
    for (std::size_t i = 0; i < a.up.size(); ++i) {
      a.activated.push_back(swiglu() ? plain::silu(a.gate[i]) * a.up[i] : plain::gelu(a.up[i]));
    }
    return sum(times(a.activated, w[up_number() + 1], m_.hidden), a.x1);
  }

  Numbers head(const Numbers& x, const std::vector<std::int32_t>& targets, double scale,
               Numbers& losses) {
    const std::vector<Numbers>& w = w_.back();
    const Numbers h = plain::rms_norm(x, w[0], rows_, m_.hidden);
    const Numbers logits = times_transposed(h, w[1], m_.hidden);
    const auto entries = static_cast<std::size_t>(m_.vocabulary);
    losses.assign(static_cast<std::size_t>(shape_.samples), 0);
    for (std::size_t row = 0; row < targets.size(); ++row) {
      double exponentials = 0;
      for (std::size_t i = 0; i < entries; ++i) exponentials += std::exp(logits[row * entries + i]);
      losses[row / static_cast<std::size_t>(shape_.tokens)] +=
          std::log(exponentials) - logits[row * entries + static_cast<std::size_t>(targets[row])];
    }
    const Numbers d_logits = plain::cross_entropy_backward(logits, targets, m_.vocabulary, scale);
    add(w_.size() - 1, 1, d_logits, h);
    const Numbers dh = times(d_logits, w[1], m_.hidden);
    const plain::NormGradients norm = plain::rms_norm_backward(dh, x, w[0], rows_, m_.hidden);
    gradients_.back()[0] = norm.d_gain;
    return norm.dx;
  }

  Numbers backward(std::size_t b, const Layer& a, const Numbers& dy) {
    const std::vector<Numbers>& w = w_[b];
    const std::size_t up = up_number();
    const Numbers d_activated = times_transposed(dy, w[up + 1], m_.hidden);
    Numbers d_up, d_gate;
    for (std::size_t i = 0; i < a.up.size(); ++i) {
      d_up.push_back(d_activated[i] *
                     (swiglu() ? plain::silu(a.gate[i]) : plain::gelu_slope(a.up[i])));
      if (swiglu()) d_gate.push_back(d_activated[i] * a.up[i] * plain::silu_slope(a.gate[i]));
    }
    add(b, up + 1, a.activated, dy);
    add(b, up, d_up, a.h2);
    Numbers dh2 = times(d_up, w[up], m_.hidden);
    if (swiglu()) {
      add(b, 6, d_gate, a.h2);
      dh2 = sum(dh2, times(d_gate, w[6], m_.hidden));
    }
    const plain::NormGradients second = plain::rms_norm_backward(dh2, a.x1, w[5], rows_, m_.hidden);
    gradients_[b][5] = second.d_gain;
    const Numbers dx1 = sum(second.dx, dy);

    add(b, 4, a.o, dx1);
    plain::AttentionGradients d =
        plain::attention_backward(shape_, times_transposed(dx1, w[4], m_.hidden), a.q, a.k, a.v);
    d.dq = plain::rotate(d.dq, rows_, shape_.tokens, m_.heads, m_.head_dim, true);
    d.dk = plain::rotate(d.dk, rows_, shape_.tokens, m_.kv_heads, m_.head_dim, true);
    add(b, 1, d.dq, a.h1);
    add(b, 2, d.dk, a.h1);
    add(b, 3, d.dv, a.h1);
    const Numbers dh1 = sum(sum(times(d.dq, w[1], m_.hidden), times(d.dk, w[2], m_.hidden)),
                            times(d.dv, w[3], m_.hidden));
    const plain::NormGradients first = plain::rms_norm_backward(dh1, a.x, w[0], rows_, m_.hidden);
    gradients_[b][0] = first.d_gain;
    return sum(first.dx, dx1);
  }

  const ir::ModelShape& m_;
  const Weights& w_;
  int rows_;
  AttentionShape shape_;
  Weights gradients_;
};

}  // namespace

Result run(const ir::ProgramHeader& header, const Weights& weights, int samples,
           const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
           double scale) {
  return Model(header, weights, samples).run(tokens, targets, scale);
}

}  // namespace orrery::executor::reference
