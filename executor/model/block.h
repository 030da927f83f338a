/// Forward and backward passes of the three kinds of blocks, on one rank's slices. Private to the
/// folder.
///
/// Tensor parallelism is Megatron's: query, key, value, gate and up are cut by columns, attention
/// output and down by rows, embedding and head by vocabulary [Shoeybi et al. 2019, section 3]. The
/// sums over the group are those that lowering puts into a program's inner collectives: one for the
/// embedding and two for each layer in the forward pass; two for each layer in the backward pass.
/// The sum of the gradient at the head's input happens in the head; lowering counts it at the
/// embedding (models/spec/workload.h, Block::tensor_collectives). The head's forward pass has two
/// more, small ones: the row maxima, and the row sums with the logits of the targets. With full
/// recompute the forward sums of a layer run again, the last one too, as programs say.
///
/// With Megatron's sequence parallelism norms, biases of what is summed, positions and residuals
/// are those of the member's own tokens: each sum is a reduce-scatter, and before the products
/// tokens are gathered [Korthikanti et al. 2022, 4.2.2]. Programs count a gather with each sum:
/// that of the embedding's sum happens in the head, and that of the head's gradient in the
/// embedding. Deviation: what the products read is kept as it was gathered; Megatron gathers it a
/// second time in the backward pass, beside products, which programs do not count.
///
/// Where several members hold one key-value head, each has the gradient of its own query heads'
/// part. They are not summed here: lowering takes such members for data-parallel copies of the
/// head, and a program's gradient collectives add them up (models/lower/block_replicas.cpp,
/// split_copies).
#pragma once
#include <cstddef>
#include <vector>

#include "executor/model/parameters.h"
#include "executor/model/routing.h"
#include "executor/model/shard.h"

namespace orrery::executor {

/// What one block keeps of one micro-batch. Empty tensors are not kept.
struct BlockKept {
  Tensor input;
  // Transformer: the outputs in the order in which they arise. Head: input, norm1, inverse1.
  Tensor norm1, inverse1, query, key, value, attended, log_sum;
  Tensor middle, norm2, inverse2, gate, up, activated;
  // Head. Deviation: logits stay from the forward to the backward pass, as in Megatron; the memory
  // model counts them inside the passes only (models/cost/memory.cpp). `logits` become their own
  // gradients in the backward pass; `sums` are the row sums, then the logits of the targets.
  Tensor logits, maximum, sums;
  // Experts: rows that came to those here and what came back for the own tokens; gate, up and
  // activated are then of rows that came. [Lepikhin et al. 2020, 3.2]
  Routing routing;
  Tensor probabilities, arrived, returned;
  // From the input's half of the backward pass to the weights' half. `all`: of all tokens.
  Tensor d_output, d_output_all, d_middle, d_middle_all, d_query, d_key, d_value, d_gate, d_up,
      d_gain1, d_gain2, d_bias1, d_bias2, d_arrived, d_scores;

  std::size_t bytes(const Backend& backend) const;
};

/// What a pass over one block works with.
struct BlockWork {
  Backend& backend;
  const ir::ProgramHeader& header;
  std::vector<HeldParameter>& parameters;
  const MicroBatch& batch;
  Place place;
  bool sequence = false;  ///< Megatron's sequence parallelism.

  int rows() const { return batch.samples * static_cast<int>(header.sequence_length); }
  int hidden() const { return header.model.hidden; }
  /// Tokens of each sample whose activations between blocks are here.
  UnitRange own_tokens() const;
  TokenRows token_rows() const;
  Tensor allocate(int columns, bool wide = false) const;  ///< rows() x columns.
};

/// Each takes what `kept` has and fills in what it makes; the caller forgets what it need not keep.
/// Backward passes return the gradient of the input in `d_input` and take that of the output from
/// `kept.d_output`; the weights' half adds to the gradients of the parameters.
void embedding_forward(const BlockWork& work, TensorGroup& group, Tensor& output);
void embedding_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept);
void embedding_weight_gradients(const BlockWork& work, const BlockKept& kept);

void transformer_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                         Tensor& output);
void transformer_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                                Tensor& d_input);
void transformer_weight_gradients(const BlockWork& work, const BlockKept& kept);

/// `losses` by sample, summed over its tokens.
void head_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                  std::vector<double>& losses);
void head_input_gradient(const BlockWork& work, TensorGroup& group, double scale, BlockKept& kept,
                         Tensor& d_input);
void head_weight_gradients(const BlockWork& work, const BlockKept& kept);

/// RMSNorm, or LayerNorm where the model has it: RMSNorm of the centered input, and a bias. `y` and
/// `inverse` (1 / rms by row) are new. Deviation: with bf16 the centered input is rounded.
void norm_forward(const BlockWork& work, const ParameterPair& numbers, const Tensor& x, Tensor& y,
                  Tensor& inverse);
/// Adds to `dx` what comes through the norm. The gradients of gain and bias (empty without) are new
/// and those of this micro-batch alone, to be added in the weights' half.
void norm_backward(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_norm,
                   const Tensor& x, const Tensor& inverse, const Tensor& dx, Tensor& d_gain,
                   Tensor& d_bias);
/// Adds those to the gradients of the parameters.
void add_norm_gradients(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_gain,
                        const Tensor& d_bias);

/// Experts in place of the feed-forward: each row of `norm2` goes to those that the router chose,
/// and their outputs come back, weighted; `output` is the sum over the group, before the residual.
void experts_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept, Tensor& output);
/// The gradient of `norm2`, summed over the group, from `d_output_all`.
Tensor experts_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept);
void experts_weight_gradients(const BlockWork& work, const BlockKept& kept);

/// The activation function of a feed-forward, from `up` (and `gate`) to `activated`, which is new.
/// ReLU gives up `up`: the output is all that its backward pass needs.
void activate(const BlockWork& work, BlockKept& kept);
/// Its gradients, `d_up` (and `d_gate`), which are new.
void activate_backward(const BlockWork& work, const Tensor& d_activated, BlockKept& kept);

/// The sum of the tensor over the group, where there is one, in its memory; with sequence
/// parallelism that of the member's own tokens.
Tensor sum_over(const BlockWork& work, TensorGroup& group, const Tensor& tensor);
/// The rows of all tokens, from those of the members: the tensor itself without sequence
/// parallelism.
Tensor all_tokens(const BlockWork& work, TensorGroup& group, const Tensor& own);

/// y = x w^T of rows() x inputs and outputs x inputs; y is new.
Tensor project(const BlockWork& work, const Tensor& x, const Tensor& weight, int inputs);
/// y = x w of rows() x inputs and inputs x outputs; y is new.
Tensor project_back(const BlockWork& work, const Tensor& x, const Tensor& weight, int outputs);
/// Adds a bias, where there is one, to each row.
void add_bias(const BlockWork& work, const ParameterPair& numbers, const Tensor& y);
/// Adds the gradient of a bias, where there is one: the sum of the rows of dy.
void add_bias_gradient(const BlockWork& work, const ParameterPair& numbers, const Tensor& dy);
/// gradient += left^T right; its shape is (columns of left) x hidden.
void add_weight_gradient(const BlockWork& work, const Tensor& left, const Tensor& right,
                         const Tensor& gradient);

}  // namespace orrery::executor
