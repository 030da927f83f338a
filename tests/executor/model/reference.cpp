#include "tests/executor/model/reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string>

#include "executor/model/shard.h"
#include "tests/executor/compute/plain_kernels.h"

namespace orrery::executor::reference {
namespace {

Numbers sum(Numbers a, const Numbers& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// A token and an expert that takes it.
struct Choice {
  std::size_t row = 0, expert = 0;
  Numbers gate, up, activated, made;  ///< Of this row.
};

/// Everything that one layer computes on the way forward.
struct Layer {
  Numbers x, h1, q, k, v, o, x1, h2, gate, up, activated;
  std::vector<Choice> choices;
  Numbers probabilities;  ///< Rows x experts.
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
    for (std::size_t b = 0; b < weights.size(); ++b) {
      gradients_.emplace_back();
      for (const Numbers& parameter : weights[b]) {
        gradients_.back().emplace_back(parameter.size(), 0.0);
      }
      numbers_.emplace_back();
      for (const ParameterInfo& info : parameters_of(header, {static_cast<std::int32_t>(b)})) {
        const std::size_t number = numbers_.back().size();
        numbers_.back()[info.name] = number;
      }
    }
  }

  Result run(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
             double scale) {
    Numbers x;
    const auto width = static_cast<std::size_t>(m_.hidden);
    const auto length = static_cast<std::size_t>(shape_.tokens);
    for (std::size_t row = 0; row < tokens.size(); ++row) {
      for (std::size_t i = 0; i < width; ++i) {
        x.push_back(w_[0][0][static_cast<std::size_t>(tokens[row]) * width + i]);
        if (m_.positions > 0) x.back() += w_[0][1][row % length * width + i];
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
        if (m_.positions > 0) gradients_[0][1][row % length * width + i] += dx[row * width + i];
      }
    }
    if (m_.tied_embeddings) {  // One matrix under two names.
      Numbers& both = gradients_[0][0];
      both = sum(both, gradients_.back().back());
      gradients_.back().back() = both;
    }
    out.gradients = gradients_;
    return out;
  }

 private:
  bool swiglu() const { return m_.activation == ir::Activation::swiglu; }
  bool layer_norm() const { return m_.normalization == ir::Normalization::layer_norm; }

  const Numbers& weight(std::size_t block, const std::string& name) const {
    return w_[block][numbers_[block].at(name)];
  }
  Numbers& gradient(std::size_t block, const std::string& name) {
    return gradients_[block][numbers_[block].at(name)];
  }

  Numbers norm(std::size_t block, const std::string& name, const Numbers& x) const {
    const Numbers& gain = weight(block, name + ".gain");
    if (!layer_norm()) return plain::rms_norm(x, gain, rows_, m_.hidden);
    return plain::layer_norm(x, gain, weight(block, name + ".bias"), rows_, m_.hidden);
  }
  Numbers norm_backward(std::size_t block, const std::string& name, const Numbers& dy,
                        const Numbers& x) {
    const Numbers& gain = weight(block, name + ".gain");
    if (!layer_norm()) {
      const plain::NormGradients all = plain::rms_norm_backward(dy, x, gain, rows_, m_.hidden);
      gradient(block, name + ".gain") = all.d_gain;
      return all.dx;
    }
    const plain::LayerNormGradients all = plain::layer_norm_backward(dy, x, gain, rows_, m_.hidden);
    gradient(block, name + ".gain") = all.d_gain;
    gradient(block, name + ".bias") = all.d_bias;
    return all.dx;
  }

  /// The bias of a matrix to each row, and its gradient: sums over rows.
  Numbers biased(std::size_t block, const std::string& matrix, Numbers x) const {
    if (!m_.biases) return x;
    const Numbers& bias = weight(block, matrix + ".bias");
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += bias[i % bias.size()];
    return x;
  }
  void bias_gradient(std::size_t block, const std::string& matrix, const Numbers& dy) {
    if (!m_.biases) return;
    Numbers& to = gradient(block, matrix + ".bias");
    for (std::size_t i = 0; i < dy.size(); ++i) to[i % to.size()] += dy[i];
  }

  double activate(double up, double gate) const {
    if (swiglu()) return plain::silu(gate) * up;
    return m_.activation == ir::Activation::gelu ? plain::gelu(up) : std::max(up, 0.0);
  }
  double activation_slope(double up, double gate) const {
    if (swiglu()) return plain::silu(gate);
    return m_.activation == ir::Activation::gelu ? plain::gelu_slope(up) : (up > 0 ? 1.0 : 0.0);
  }

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
  void add(std::size_t block, const std::string& name, const Numbers& left, const Numbers& right) {
    Numbers& to = gradient(block, name);
    to = sum(to, plain::gemm(true, false, static_cast<int>(left.size()) / rows_, m_.hidden, rows_,
                             1, left, right, 0, {}));
  }

  /// x w^T and the bias.
  Numbers linear(std::size_t b, const std::string& matrix, const Numbers& x) const {
    return biased(b, matrix, times_transposed(x, weight(b, matrix), m_.hidden));
  }
  Numbers turned(const Numbers& x, int heads, bool inverse) const {
    if (m_.positions > 0) return x;
    return plain::rotate(x, rows_, shape_.tokens, heads, m_.head_dim, inverse);
  }

  Numbers forward(std::size_t b, Layer& a) {
    a.h1 = norm(b, "norm1", a.x);
    a.q = turned(linear(b, "attention.query", a.h1), m_.heads, false);
    a.k = turned(linear(b, "attention.key", a.h1), m_.kv_heads, false);
    a.v = linear(b, "attention.value", a.h1);
    a.o = plain::attention(shape_, a.q, a.k, a.v).o;
    a.x1 = sum(biased(b, "attention.output", times(a.o, weight(b, "attention.output"), m_.hidden)),
               a.x);
    a.h2 = norm(b, "norm2", a.x1);
    if (m_.experts > 0) return sum(experts(b, a), a.x1);
    a.up = linear(b, "mlp.up", a.h2);
    a.gate = swiglu() ? linear(b, "mlp.gate", a.h2) : Numbers(a.up.size(), 0.0);
    for (std::size_t i = 0; i < a.up.size(); ++i) {
      a.activated.push_back(activate(a.up[i], a.gate[i]));
    }
    return sum(biased(b, "mlp.down", times(a.activated, weight(b, "mlp.down"), m_.hidden)), a.x1);
  }

  Numbers head(const Numbers& x, const std::vector<std::int32_t>& targets, double scale,
               Numbers& losses) {
    const std::size_t b = w_.size() - 1;
    const Numbers h = norm(b, "norm", x);
    const Numbers logits = times_transposed(h, weight(b, "output"), m_.hidden);
    const auto entries = static_cast<std::size_t>(m_.vocabulary);
    losses.assign(static_cast<std::size_t>(shape_.samples), 0);
    for (std::size_t row = 0; row < targets.size(); ++row) {
      double exponentials = 0;
      for (std::size_t i = 0; i < entries; ++i) exponentials += std::exp(logits[row * entries + i]);
      losses[row / static_cast<std::size_t>(shape_.tokens)] +=
          std::log(exponentials) - logits[row * entries + static_cast<std::size_t>(targets[row])];
    }
    const Numbers d_logits = plain::cross_entropy_backward(logits, targets, m_.vocabulary, scale);
    add(b, "output", d_logits, h);
    return norm_backward(b, "norm", times(d_logits, weight(b, "output"), m_.hidden), x);
  }

  /// Row `row` of a matrix with rows of `width`.
  static Numbers row_of(const Numbers& x, std::size_t row, std::size_t width) {
    return {x.begin() + static_cast<std::ptrdiff_t>(row * width),
            x.begin() + static_cast<std::ptrdiff_t>((row + 1) * width)};
  }
  /// Element (expert, column, i) of an expert's matrix.
  double& expert_element(Numbers& of, std::size_t expert, std::size_t column, std::size_t i) const {
    const auto ffn = static_cast<std::size_t>(m_.ffn), hidden = static_cast<std::size_t>(m_.hidden);
    return of[(expert * ffn + column) * hidden + i];
  }
  double expert_weight(std::size_t b, const std::string& name, std::size_t expert,
                       std::size_t column, std::size_t i) const {
    return expert_element(const_cast<Numbers&>(weight(b, name)), expert, column, i);
  }
  double expert_bias(std::size_t b, const std::string& name, std::size_t expert, std::size_t i,
                     int width) const {
    if (!m_.biases) return 0;
    return weight(b, name + ".bias")[expert * static_cast<std::size_t>(width) + i];
  }

  /// Sample by sample, all first choices before all second ones, until an expert is full.
  void choose(std::size_t b, Layer& a) const {
    const auto hidden = static_cast<std::size_t>(m_.hidden);
    const auto count = static_cast<std::size_t>(m_.experts);
    const auto rows = static_cast<std::size_t>(rows_);
    const auto length = static_cast<std::size_t>(shape_.tokens);
    for (std::size_t row = 0; row < rows; ++row) {
      Numbers scores(count, 0.0);
      double total = 0;
      for (std::size_t e = 0; e < count; ++e) {
        for (std::size_t i = 0; i < hidden; ++i) {
          scores[e] += a.h2[row * hidden + i] * weight(b, "router")[e * hidden + i];
        }
        total += std::exp(scores[e]);
      }
      for (const double score : scores) a.probabilities.push_back(std::exp(score) / total);
    }
    const double capacity =
        std::ceil(static_cast<double>(length) * m_.top_k * m_.capacity_factor / m_.experts);
    for (std::size_t first = 0; first < rows; first += length) {
      Numbers left(count, capacity);
      for (int k = 0; k < m_.top_k; ++k) {
        for (std::size_t row = first; row < first + length; ++row) {
          // The expert that k others beat.
          std::size_t expert = 0;
          for (std::size_t e = 0; e < count; ++e) {
            int better = 0;
            for (std::size_t other = 0; other < count; ++other) {
              better += a.probabilities[row * count + other] > a.probabilities[row * count + e];
            }
            if (better == k) expert = e;
          }
          if (left[expert]-- > 0) a.choices.push_back({row, expert, {}, {}, {}, {}});
        }
      }
    }
  }

  Numbers experts(std::size_t b, Layer& a) const {
    choose(b, a);
    const auto hidden = static_cast<std::size_t>(m_.hidden);
    const auto ffn = static_cast<std::size_t>(m_.ffn);
    Numbers out(a.h2.size(), 0.0);
    for (Choice& c : a.choices) {
      const Numbers x = row_of(a.h2, c.row, hidden);
      c.made.assign(hidden, 0.0);
      for (std::size_t i = 0; i < hidden; ++i) {
        c.made[i] = expert_bias(b, "experts.down", c.expert, i, m_.hidden);
      }
      for (std::size_t f = 0; f < ffn; ++f) {
        double up = expert_bias(b, "experts.up", c.expert, f, m_.ffn), gate = 0;
        if (swiglu()) gate = expert_bias(b, "experts.gate", c.expert, f, m_.ffn);
        for (std::size_t i = 0; i < hidden; ++i) {
          up += x[i] * expert_weight(b, "experts.up", c.expert, f, i);
          if (swiglu()) gate += x[i] * expert_weight(b, "experts.gate", c.expert, f, i);
        }
        c.up.push_back(up);
        c.gate.push_back(gate);
        c.activated.push_back(activate(up, gate));
        for (std::size_t i = 0; i < hidden; ++i) {
          c.made[i] += c.activated[f] * expert_weight(b, "experts.down", c.expert, f, i);
        }
      }
      const double p = a.probabilities[c.row * static_cast<std::size_t>(m_.experts) + c.expert];
      for (std::size_t i = 0; i < hidden; ++i) out[c.row * hidden + i] += p * c.made[i];
    }
    return out;
  }

  /// The gradient of h2.
  Numbers experts_backward(std::size_t b, const Layer& a, const Numbers& dy) {
    const auto hidden = static_cast<std::size_t>(m_.hidden);
    const auto ffn = static_cast<std::size_t>(m_.ffn);
    const auto count = static_cast<std::size_t>(m_.experts);
    Numbers dx(a.h2.size(), 0.0), dp(a.probabilities.size(), 0.0);
    const auto add_bias = [&](const std::string& name, std::size_t expert, std::size_t i, int width,
                              double by) {
      if (m_.biases) {
        gradient(b, name + ".bias")[expert * static_cast<std::size_t>(width) + i] += by;
      }
    };
    for (const Choice& c : a.choices) {
      const double p = a.probabilities[c.row * count + c.expert];
      Numbers d_made = row_of(dy, c.row, hidden);
      for (std::size_t i = 0; i < hidden; ++i) {
        dp[c.row * count + c.expert] += d_made[i] * c.made[i];
        d_made[i] *= p;
        add_bias("experts.down", c.expert, i, m_.hidden, d_made[i]);
      }
      for (std::size_t f = 0; f < ffn; ++f) {
        double d_activated = 0;
        for (std::size_t i = 0; i < hidden; ++i) {
          d_activated += d_made[i] * expert_weight(b, "experts.down", c.expert, f, i);
          expert_element(gradient(b, "experts.down"), c.expert, f, i) += c.activated[f] * d_made[i];
        }
        const double d_up = d_activated * activation_slope(c.up[f], c.gate[f]);
        const double d_gate = swiglu() ? d_activated * c.up[f] * plain::silu_slope(c.gate[f]) : 0;
        add_bias("experts.up", c.expert, f, m_.ffn, d_up);
        if (swiglu()) add_bias("experts.gate", c.expert, f, m_.ffn, d_gate);
        for (std::size_t i = 0; i < hidden; ++i) {
          const double x = a.h2[c.row * hidden + i];
          double& to = dx[c.row * hidden + i];
          expert_element(gradient(b, "experts.up"), c.expert, f, i) += d_up * x;
          to += d_up * expert_weight(b, "experts.up", c.expert, f, i);
          if (!swiglu()) continue;
          expert_element(gradient(b, "experts.gate"), c.expert, f, i) += d_gate * x;
          to += d_gate * expert_weight(b, "experts.gate", c.expert, f, i);
        }
      }
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(rows_); ++row) {
      double mean = 0;
      for (std::size_t e = row * count; e < (row + 1) * count; ++e) {
        mean += a.probabilities[e] * dp[e];
      }
      for (std::size_t e = 0; e < count; ++e) {
        const double d = a.probabilities[row * count + e] * (dp[row * count + e] - mean);
        for (std::size_t i = 0; i < hidden; ++i) {
          gradient(b, "router")[e * hidden + i] += d * a.h2[row * hidden + i];
          dx[row * hidden + i] += d * weight(b, "router")[e * hidden + i];
        }
      }
    }
    return dx;
  }

  /// The gradient of h2.
  Numbers matrices_backward(std::size_t b, const Layer& a, const Numbers& dy) {
    const Numbers d_activated = times_transposed(dy, weight(b, "mlp.down"), m_.hidden);
    Numbers d_up, d_gate;
    for (std::size_t i = 0; i < a.up.size(); ++i) {
      d_up.push_back(d_activated[i] * activation_slope(a.up[i], a.gate[i]));
      if (swiglu()) d_gate.push_back(d_activated[i] * a.up[i] * plain::silu_slope(a.gate[i]));
    }
    add(b, "mlp.down", a.activated, dy);
    bias_gradient(b, "mlp.down", dy);
    add(b, "mlp.up", d_up, a.h2);
    bias_gradient(b, "mlp.up", d_up);
    Numbers dh2 = times(d_up, weight(b, "mlp.up"), m_.hidden);
    if (swiglu()) {
      add(b, "mlp.gate", d_gate, a.h2);
      bias_gradient(b, "mlp.gate", d_gate);
      dh2 = sum(dh2, times(d_gate, weight(b, "mlp.gate"), m_.hidden));
    }
    return dh2;
  }

  Numbers backward(std::size_t b, const Layer& a, const Numbers& dy) {
    const Numbers dh2 = m_.experts > 0 ? experts_backward(b, a, dy) : matrices_backward(b, a, dy);
    const Numbers dx1 = sum(norm_backward(b, "norm2", dh2, a.x1), dy);

    add(b, "attention.output", a.o, dx1);
    bias_gradient(b, "attention.output", dx1);
    const Numbers d_o = times_transposed(dx1, weight(b, "attention.output"), m_.hidden);
    plain::AttentionGradients d = plain::attention_backward(shape_, d_o, a.q, a.k, a.v);
    d.dq = turned(d.dq, m_.heads, true);
    d.dk = turned(d.dk, m_.kv_heads, true);
    Numbers dh1(a.h1.size(), 0.0);
    for (const auto& [name, gradient_of] :
         {std::pair<const char*, const Numbers&>("attention.query", d.dq),
          {"attention.key", d.dk},
          {"attention.value", d.dv}}) {
      add(b, name, gradient_of, a.h1);
      bias_gradient(b, name, gradient_of);
      dh1 = sum(dh1, times(gradient_of, weight(b, name), m_.hidden));
    }
    return sum(norm_backward(b, "norm1", dh1, a.x), dx1);
  }

  const ir::ModelShape& m_;
  const Weights& w_;
  int rows_;
  AttentionShape shape_;
  Weights gradients_;
  std::vector<std::map<std::string, std::size_t>> numbers_;  ///< By block: of a name.
};

}  // namespace

Result run(const ir::ProgramHeader& header, const Weights& weights, int samples,
           const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
           double scale) {
  return Model(header, weights, samples).run(tokens, targets, scale);
}

}  // namespace orrery::executor::reference
