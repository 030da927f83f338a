#include <utility>

#include "executor/model/block.h"

namespace orrery::executor {
namespace {

using Numbers = TransformerParameters;

Numbers numbers_of(const BlockWork& work) { return transformer_parameters(work.header.model); }

AttentionShape attention_shape(const BlockWork& work) {
  const ir::ModelShape& model = work.header.model;
  const Numbers numbers = numbers_of(work);
  const HeldParameter& query = work.parameters[numbers.query.main];
  const HeldParameter& key = work.parameters[numbers.key.main];
  AttentionShape shape;
  shape.samples = work.batch.samples;
  shape.tokens = static_cast<int>(work.header.sequence_length);
  shape.heads = static_cast<int>(query.slice().end - query.slice().begin);
  shape.kv_heads = static_cast<int>(key.slice().end - key.slice().begin);
  shape.head_dim = model.head_dim;
  shape.group = model.heads / model.kv_heads;
  shape.first_head = static_cast<int>(query.slice().begin);
  shape.first_kv = static_cast<int>(key.slice().begin);
  shape.causal = model.causal;
  return shape;
}

const Tensor& weight(const BlockWork& work, const ParameterPair& numbers) {
  return work.parameters[numbers.main].weight;
}

/// x w^T, and the bias.
Tensor apply(const BlockWork& work, const Tensor& x, const ParameterPair& numbers) {
  Tensor y = project(work, x, weight(work, numbers), work.hidden());
  add_bias(work, numbers, y);
  return y;
}

/// Gradients of a matrix whose units are rows and of its bias: left^T right, and the sum of the
/// rows of `dy`.
void add_gradients(const BlockWork& work, const ParameterPair& numbers, const Tensor& left,
                   const Tensor& right, const Tensor& dy) {
  add_weight_gradient(work, left, right, work.parameters[numbers.main].gradient);
  add_bias_gradient(work, numbers, dy);
}

bool has_gate(const BlockWork& work) {
  return work.header.model.activation == ir::Activation::swiglu;
}
bool has_experts(const BlockWork& work) { return work.header.model.experts > 0; }

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

/// The gradient before the residual branch: `dy` of the sum, plus what comes through the norm.
Tensor branch_backward(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_norm,
                       const Tensor& x, const Tensor& inverse, const Tensor& dy, Tensor& d_gain,
                       Tensor& d_bias) {
  Tensor dx = work.backend.allocate(dy.elements, false);
  work.backend.copy(dy, dx);
  norm_backward(work, numbers, d_norm, x, inverse, dx, d_gain, d_bias);
  return dx;
}

void attention_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  const Numbers numbers = numbers_of(work);
  norm_forward(work, numbers.norm1, kept.input, kept.norm1, kept.inverse1);
  kept.norm1 = all_tokens(work, group, kept.norm1);
  kept.query = apply(work, kept.norm1, numbers.query);
  kept.key = apply(work, kept.norm1, numbers.key);
  kept.value = apply(work, kept.norm1, numbers.value);
  const AttentionShape shape = attention_shape(work);
  rotate(work, shape, kept.query, kept.key, false);
  kept.attended = work.allocate(shape.heads * shape.head_dim);
  kept.log_sum = log_sums(work, shape);
  work.backend.attention(shape, kept.query, kept.key, kept.value, kept.attended, kept.log_sum);
  kept.middle = sum_over(
      work, group, project_back(work, kept.attended, weight(work, numbers.output), work.hidden()));
  add_bias(work, numbers.output, kept.middle);
  work.backend.add(kept.input, kept.middle);
}

void feed_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept, Tensor& output) {
  const Numbers numbers = numbers_of(work);
  norm_forward(work, numbers.norm2, kept.middle, kept.norm2, kept.inverse2);
  kept.norm2 = all_tokens(work, group, kept.norm2);
  if (has_experts(work)) {
    experts_forward(work, group, kept, output);
  } else {
    kept.up = apply(work, kept.norm2, numbers.up);
    if (has_gate(work)) kept.gate = apply(work, kept.norm2, numbers.gate);
    activate(work, kept);
    output = sum_over(
        work, group, project_back(work, kept.activated, weight(work, numbers.down), work.hidden()));
    add_bias(work, numbers.down, output);
  }
  work.backend.add(kept.middle, output);
}

/// The gradient of `norm2`, from d_output_all.
Tensor matrices_backward(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  const Numbers numbers = numbers_of(work);
  const int hidden = work.hidden();
  activate_backward(work, project(work, kept.d_output_all, weight(work, numbers.down), hidden),
                    kept);
  const Tensor d_norm = project_back(work, kept.d_up, weight(work, numbers.up), hidden);
  if (has_gate(work)) {
    const int width = static_cast<int>(kept.d_gate.elements) / work.rows();
    work.backend.gemm(false, false, work.rows(), hidden, width, 1, kept.d_gate,
                      weight(work, numbers.gate), 1, d_norm);
  }
  return sum_over(work, group, d_norm);
}

/// d_output to d_middle.
void feed_forward_backward(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  kept.d_output_all = all_tokens(work, group, kept.d_output);
  const Tensor d_norm = has_experts(work) ? experts_input_gradient(work, group, kept)
                                          : matrices_backward(work, group, kept);
  kept.d_middle = branch_backward(work, numbers_of(work).norm2, d_norm, kept.middle, kept.inverse2,
                                  kept.d_output, kept.d_gain2, kept.d_bias2);
}

/// d_middle to d_input.
void attention_backward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                        Tensor& d_input) {
  Backend& backend = work.backend;
  const Numbers numbers = numbers_of(work);
  const int hidden = work.hidden();
  const AttentionShape shape = attention_shape(work);
  if (kept.log_sum.memory == nullptr) {  // Selective recompute. Writes `attended` as it was.
    kept.log_sum = log_sums(work, shape);
    backend.attention(shape, kept.query, kept.key, kept.value, kept.attended, kept.log_sum);
  }
  kept.d_middle_all = all_tokens(work, group, kept.d_middle);
  const Tensor d_attended = project(work, kept.d_middle_all, weight(work, numbers.output), hidden);
  kept.d_query = backend.allocate(kept.query.elements, false);
  kept.d_key = backend.allocate(kept.key.elements, false);
  kept.d_value = backend.allocate(kept.value.elements, false);
  backend.attention_backward(shape, d_attended, kept.query, kept.key, kept.value, kept.attended,
                             kept.log_sum, kept.d_query, kept.d_key, kept.d_value);
  rotate(work, shape, kept.d_query, kept.d_key, true);
  const Tensor d_norm = project_back(work, kept.d_query, weight(work, numbers.query), hidden);
  const int kv_width = shape.kv_heads * shape.head_dim;
  backend.gemm(false, false, work.rows(), hidden, kv_width, 1, kept.d_key,
               weight(work, numbers.key), 1, d_norm);
  backend.gemm(false, false, work.rows(), hidden, kv_width, 1, kept.d_value,
               weight(work, numbers.value), 1, d_norm);
  d_input = branch_backward(work, numbers.norm1, sum_over(work, group, d_norm), kept.input,
                            kept.inverse1, kept.d_middle, kept.d_gain1, kept.d_bias1);
}

}  // namespace

void activate(const BlockWork& work, BlockKept& kept) {
  if (work.header.model.activation == ir::Activation::relu) {
    kept.activated = std::exchange(kept.up, {});
    work.backend.relu(kept.activated, kept.activated);
    return;
  }
  kept.activated = work.backend.allocate(kept.up.elements, false);
  if (has_gate(work)) {
    work.backend.swiglu(kept.gate, kept.up, kept.activated);
  } else {
    work.backend.gelu(kept.up, kept.activated);
  }
}

void activate_backward(const BlockWork& work, const Tensor& d_activated, BlockKept& kept) {
  Backend& backend = work.backend;
  kept.d_up = backend.allocate(kept.activated.elements, false);
  if (work.header.model.activation == ir::Activation::relu) {
    backend.relu_backward(d_activated, kept.activated, kept.d_up);
  } else if (has_gate(work)) {
    kept.d_gate = backend.allocate(kept.gate.elements, false);
    backend.swiglu_backward(d_activated, kept.gate, kept.up, kept.d_gate, kept.d_up);
  } else {
    backend.gelu_backward(d_activated, kept.up, kept.d_up);
  }
}

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
  for (Tensor* tensor :
       {&kept.input, &kept.inverse1, &kept.query, &kept.key, &kept.value, &kept.log_sum,
        &kept.middle, &kept.inverse2, &kept.gate, &kept.up, &kept.probabilities, &kept.returned}) {
    *tensor = {};
  }
}

void transformer_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const Numbers numbers = numbers_of(work);
  if (has_experts(work)) {
    experts_weight_gradients(work, kept);
  } else {
    add_gradients(work, numbers.down, kept.activated, kept.d_output_all, kept.d_output);
    add_gradients(work, numbers.up, kept.d_up, kept.norm2, kept.d_up);
    if (has_gate(work)) add_gradients(work, numbers.gate, kept.d_gate, kept.norm2, kept.d_gate);
  }
  add_norm_gradients(work, numbers.norm2, kept.d_gain2, kept.d_bias2);
  add_gradients(work, numbers.output, kept.attended, kept.d_middle_all, kept.d_middle);
  add_gradients(work, numbers.value, kept.d_value, kept.norm1, kept.d_value);
  add_gradients(work, numbers.key, kept.d_key, kept.norm1, kept.d_key);
  add_gradients(work, numbers.query, kept.d_query, kept.norm1, kept.d_query);
  add_norm_gradients(work, numbers.norm1, kept.d_gain1, kept.d_bias1);
}

}  // namespace orrery::executor
