/// The workload: a model as a list of blocks, each with its work and its bytes per sample.
/// Planners, cost models and lowering see only this list; where a model comes from does not matter
/// to them.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/model_shape.h"

namespace orrery::models {

/// One parameter tensor of a block.
struct Parameter {
  std::string name;
  std::int64_t elements = 0;
  /// Length of the dimension that tensor parallelism splits (heads, ffn columns, vocabulary), so
  /// that slices are whole; 0: replicated over the tensor-parallel group (norms).
  std::int64_t split_length = 0;
  bool expert = false;  ///< One of the experts' tensors: split by expert parallelism.
};

/// Per sample (sequence) of `Workload::sequence_length` tokens, for tensor-parallel degree 1.
struct Block {
  ir::BlockKind kind = ir::BlockKind::transformer;
  Flops forward_flops;    ///< All matrix products; backward is twice that.
  Flops attention_flops;  ///< Part of forward_flops that selective recompute repeats.
  Flops expert_flops;     ///< Part of forward_flops that recomputing experts repeats.
  std::vector<Parameter> parameters;
  Bytes input_bytes;               ///< Activation that it receives from the block before.
  Bytes output_bytes;              ///< Activation that it sends to the next block.
  Bytes kept_split;                ///< Kept for backward, divided by the tensor-parallel degree.
  Bytes kept_replicated;           ///< Kept for backward on every member, unless sequence parallel.
  Bytes attention_kept;            ///< Part of kept_split that selective recompute does not keep.
  Bytes experts_split;             ///< Part of kept_split that recomputing experts does not keep.
  Bytes experts_replicated;        ///< The same of kept_replicated.
  Bytes logits;                    ///< Head only: transient fp32 logits, divided by the degree.
  Bytes memory_traffic;            ///< Read and written by the forward pass, without weights.
  int tensor_collectives = 0;      ///< All-reduces of output size in forward (as many in backward).
  bool expert_all_to_all = false;  ///< Dispatch and combine around the experts.
  int window = 0;                  ///< Tokens that a token attends to; 0: all.
  bool predicts = false;           ///< Predicts a further token (ModelShape::mtp_layers).
};

struct Workload {
  std::string name;
  ir::ModelShape shape;
  std::int64_t sequence_length = 0;
  ir::Dtype dtype = ir::Dtype::bf16;
  std::vector<Block> blocks;  ///< Embedding first, head last.
  std::string hash;           ///< Content hash of shape, sequence length and dtype.

  int size() const { return static_cast<int>(blocks.size()); }
  const Block& block(BlockId id) const { return blocks[id.index()]; }
  /// Blocks that planners distribute: all but embedding and head.
  BlockId first_layer() const;
  BlockId last_layer() const;
};

/// Per token, in elements: what attention reads and writes. H each in most models.
struct AttentionWidths {
  double query = 0;
  double key = 0;
  double value = 0;
  double output = 0;
};
AttentionWidths attention_widths(const ir::ModelShape& shape);

/// Inner width of the feed-forward that all tokens take in a layer of this kind: of the shared
/// expert in one with experts (0: it has none).
int feed_forward_width(const ir::ModelShape& shape, ir::BlockKind kind);

/// Parameters of a block, of a range of blocks (both inclusive), of the whole model.
std::int64_t parameters(const Block& block);
std::int64_t parameters(const Workload& workload, BlockId first, BlockId last);
std::int64_t parameters(const Workload& workload);

/// Model FLOPs of one sample, forward and backward, without recompute (the numerator of MFU):
/// three times the forward FLOPs of all blocks. Recompute counts in HFU only [Korthikanti 2022].
Flops model_flops(const Workload& workload);

/// The work of a model at a sequence length: embedding, layers, those that predict further tokens,
/// head. Formulas and sources: docs/equations.md.
Workload build_workload(const ir::ModelShape& shape, std::int64_t sequence_length, ir::Dtype dtype);

}  // namespace orrery::models
