#include "executor/model/block.h"

namespace orrery::executor {
namespace {

using Numbers = TransformerParameters;

AttentionShape attention_shape(const BlockWork& work) {
  const ir::ModelShape& model = work.header.model;
  const HeldParameter& query = work.parameters[Numbers::kQuery];
  const HeldParameter& key = work.parameters[Numbers::kKey];
  AttentionShape shape;
  shape.samples = work.batch.samples;
  shape.tokens = static_cast<int>(work.header.sequence_length);
  shape.heads = static_cast<int>(query.end - query.begin);
  shape.kv_heads = static_cast<int>(key.end - key.begin);
  shape.head_dim = model.head_dim;
  shape.group = model.heads / model.kv_heads;
  shape.first_head = static_cast<int>(query.begin);
  shape.first_kv = static_cast<int>(key.begin);
  shape.causal = model.causal;
  return shape;
}

const Tensor& weight(const BlockWork& work, std::size_t parameter) {
  return work.parameters[parameter].weight;
}

const Tensor& gradient(const BlockWork& work, std::size_t parameter) {
  return work.parameters[parameter].gradient;
}

bool has_gate(const BlockWork& work) {
  return work.header.model.activation == ir::Activation::swiglu;
}

/// Rotary positions, or with `inverse` what they do to gradients.
void rotate(const BlockWork& work, const AttentionShape& shape, const Tensor& query,
            const Tensor& key, bool inverse) {
  if (work.header.model.positions > 0) return;
  work.backend.rotate(query, work.rows(), shape.tokens, shape.heads, shape.head_dim, inverse);
  work.backend.rotate(key, work.rows(), shape.tokens, shape.kv_heads, shape.head_dim, inverse);
}

Tensor log_sums(const BlockWork& work, const AttentionShape& shape) {
  return work.allocate(shape.heads, true);
}

void norm(const BlockWork& work, std::size_t parameter, const Tensor& x, Tensor& y,
          Tensor& inverse) {
  y = work.allocate(work.hidden());
  inverse = work.allocate(1, true);
  work.backend.rms_norm(x, weight(work, parameter), work.rows(), work.hidden(), y, inverse);
}

/// The gradient before the residual branch: `dy` of the sum, plus what comes through the norm. The
/// gain's gradient is summed over this micro-batch alone, to be added in the weights' half.
Tensor norm_backward(const BlockWork& work, std::size_t parameter, const Tensor& d_norm,
                     const Tensor& x, const Tensor& inverse, const Tensor& dy, Tensor& d_gain) {
  Tensor dx = work.allocate(work.hidden());
  work.backend.copy(dy, dx);
  d_gain = work.backend.allocate(static_cast<std::size_t>(work.hidden()), true);
  work.backend.fill(d_gain, 0);
  work.backend.rms_norm_backward(d_norm, x, weight(work, parameter), inverse, work.rows(),
                                 work.hidden(), dx, d_gain);
  return dx;
}

void attention_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  norm(work, Numbers::kNorm1, kept.input, kept.norm1, kept.inverse1);
  kept.query = project(work, kept.norm1, weight(work, Numbers::kQuery), work.hidden());
  kept.key = project(work, kept.norm1, weight(work, Numbers::kKey), work.hidden());
  kept.value = project(work, kept.norm1, weight(work, Numbers::kValue), work.hidden());
  const AttentionShape shape = attention_shape(work);
  rotate(work, shape, kept.query, kept.key, false);
  kept.attended = work.allocate(shape.heads * shape.head_dim);
  kept.log_sum = log_sums(work, shape);
  work.backend.attention(shape, kept.query, kept.key, kept.value, kept.attended, kept.log_sum);
  kept.middle = project_back(work, kept.attended, weight(work, Numbers::kOutput), work.hidden());
  sum_over(work, group, kept.middle);
  work.backend.add(kept.input, kept.middle);
}

void feed_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept, Tensor& output) {
  const Numbers numbers = transformer_parameters(work.header.model);
  norm(work, Numbers::kNorm2, kept.middle, kept.norm2, kept.inverse2);
  kept.up = project(work, kept.norm2, weight(work, numbers.up), work.hidden());
  kept.activated = work.backend.allocate(kept.up.elements, false);
  if (has_gate(work)) {
    kept.gate = project(work, kept.norm2, weight(work, Numbers::kGate), work.hidden());
    work.backend.swiglu(kept.gate, kept.up, kept.activated);
  } else {
    work.backend.gelu(kept.up, kept.activated);
  }
  output = project_back(work, kept.activated, weight(work, numbers.down), work.hidden());
  sum_over(work, group, output);
  work.backend.add(kept.middle, output);
}

/// d_output to d_middle.
void feed_forward_backward(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  Backend& backend = work.backend;
  const Numbers numbers = transformer_parameters(work.header.model);
  const int hidden = work.hidden();
  const Tensor d_activated = project(work, kept.d_output, weight(work, numbers.down), hidden);
  kept.d_up = backend.allocate(kept.up.elements, false);
  if (has_gate(work)) {
    kept.d_gate = backend.allocate(kept.gate.elements, false);
    backend.swiglu_backward(d_activated, kept.gate, kept.up, kept.d_gate, kept.d_up);
  } else {
    backend.gelu_backward(d_activated, kept.up, kept.d_up);
  }
  const Tensor d_norm = project_back(work, kept.d_up, weight(work, numbers.up), hidden);
  if (has_gate(work)) {
    const int width = static_cast<int>(kept.d_gate.elements) / work.rows();
    backend.gemm(false, false, work.rows(), hidden, width, 1, kept.d_gate,
                 weight(work, Numbers::kGate), 1, d_norm);
  }
  sum_over(work, group, d_norm);
  kept.d_middle = norm_backward(work, Numbers::kNorm2, d_norm, kept.middle, kept.inverse2,
                                kept.d_output, kept.d_gain2);
}

/// d_middle to d_input.
void attention_backward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                        Tensor& d_input) {
  Backend& backend = work.backend;
  const int hidden = work.hidden();
  const AttentionShape shape = attention_shape(work);
  if (kept.log_sum.memory == nullptr) {  // Selective recompute. Writes `attended` as it was.
    kept.log_sum = log_sums(work, shape);
    backend.attention(shape, kept.query, kept.key, kept.value, kept.attended, kept.log_sum);
  }
  const Tensor d_attended = project(work, kept.d_middle, weight(work, Numbers::kOutput), hidden);
  kept.d_query = backend.allocate(kept.query.elements, false);
  kept.d_key = backend.allocate(kept.key.elements, false);
  kept.d_value = backend.allocate(kept.value.elements, false);
  backend.attention_backward(shape, d_attended, kept.query, kept.key, kept.value, kept.attended,
                             kept.log_sum, kept.d_query, kept.d_key, kept.d_value);
  rotate(work, shape, kept.d_query, kept.d_key, true);
  const Tensor d_norm = project_back(work, kept.d_query, weight(work, Numbers::kQuery), hidden);
  const int kv_width = shape.kv_heads * shape.head_dim;
  backend.gemm(false, false, work.rows(), hidden, kv_width, 1, kept.d_key,
               weight(work, Numbers::kKey), 1, d_norm);
  backend.gemm(false, false, work.rows(), hidden, kv_width, 1, kept.d_value,
               weight(work, Numbers::kValue), 1, d_norm);
  sum_over(work, group, d_norm);
  d_input = norm_backward(work, Numbers::kNorm1, d_norm, kept.input, kept.inverse1, kept.d_middle,
                          kept.d_gain1);
}

}  // namespace

void transformer_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                         Tensor& output) {
  attention_forward(work, group, kept);
  feed_forward(work, group, kept, output);
}

void transformer_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                                Tensor& d_input) {
  if (kept.norm1.memory == nullptr) {  // Full recompute.
    Tensor output;
    transformer_forward(work, group, kept, output);
  }
  feed_forward_backward(work, group, kept);
  attention_backward(work, group, kept, d_input);
  // The weights' half needs none of these.
  for (Tensor* tensor : {&kept.input, &kept.inverse1, &kept.query, &kept.key, &kept.value,
                         &kept.log_sum, &kept.middle, &kept.inverse2, &kept.gate, &kept.up}) {
    *tensor = {};
  }
}

void transformer_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const Numbers numbers = transformer_parameters(work.header.model);
  add_weight_gradient(work, kept.activated, kept.d_output, gradient(work, numbers.down));
  add_weight_gradient(work, kept.d_up, kept.norm2, gradient(work, numbers.up));
  if (has_gate(work)) {
    add_weight_gradient(work, kept.d_gate, kept.norm2, gradient(work, Numbers::kGate));
  }
  work.backend.add(kept.d_gain2, gradient(work, Numbers::kNorm2));
  add_weight_gradient(work, kept.attended, kept.d_middle, gradient(work, Numbers::kOutput));
  add_weight_gradient(work, kept.d_value, kept.norm1, gradient(work, Numbers::kValue));
  add_weight_gradient(work, kept.d_key, kept.norm1, gradient(work, Numbers::kKey));
  add_weight_gradient(work, kept.d_query, kept.norm1, gradient(work, Numbers::kQuery));
  work.backend.add(kept.d_gain1, gradient(work, Numbers::kNorm1));
}

}  // namespace orrery::executor
