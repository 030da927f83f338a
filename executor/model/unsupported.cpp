#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "executor/model/shard.h"

namespace orrery::executor {
namespace {

using Problems = std::vector<std::string>;

void check_blocks(const ir::ProgramHeader& header, Problems& out) {
  const auto has = [&](ir::BlockKind kind) {
    return std::find(header.blocks.begin(), header.blocks.end(), kind) != header.blocks.end();
  };
  if (has(ir::BlockKind::convolution)) out.emplace_back("convolutional blocks");
  if (has(ir::BlockKind::moe) || header.model.experts > 0) out.emplace_back("experts");
  const std::size_t size = header.blocks.size();
  bool in_order = size >= 3 && size == static_cast<std::size_t>(header.model.layers) + 2;
  for (std::size_t b = 0; b < size; ++b) {
    const ir::BlockKind kind = header.blocks[b];
    in_order = in_order && (kind == ir::BlockKind::embedding) == (b == 0) &&
               (kind == ir::BlockKind::head) == (b + 1 == size);
  }
  if (!in_order) {
    out.push_back(fmt::format("{} blocks that are not an embedding, {} layers and a head", size,
                              header.model.layers));
  }
}

void check_shape(const ir::ProgramHeader& header, Problems& out) {
  const ir::ModelShape& s = header.model;
  if (s.normalization != ir::Normalization::rms_norm) out.emplace_back("layer norm");
  if (s.activation == ir::Activation::relu) out.emplace_back("the activation relu");
  if (s.biases) out.emplace_back("biases");
  if (s.tied_embeddings) out.emplace_back("tied embeddings");
  if (s.positions > 0) out.emplace_back("learned positions");
  if (s.hidden < 1 || s.heads < 1 || s.kv_heads < 1 || s.head_dim < 1 || s.ffn < 1 ||
      s.vocabulary < 1 || header.sequence_length < 1) {
    out.emplace_back("a model without dimensions");
    return;
  }
  if (s.heads % s.kv_heads != 0) {
    out.push_back(fmt::format("{} heads over {} key-value heads", s.heads, s.kv_heads));
  }
  if (s.positions == 0 && s.head_dim % 2 != 0) {
    out.push_back(fmt::format("rotary positions in heads of {} elements", s.head_dim));
  }
}

void check_segments(const ir::Program& program, Problems& out) {
  const ir::ModelShape& s = program.header.model;
  std::set<std::string> found;  // Many segments have the same trouble.
  for (const ir::SegmentInfo& segment : program.segments) {
    if (segment.sequence != ir::SequenceParallelism::none || segment.sequence_degree > 1) {
      found.emplace("sequence parallelism");
    }
    if (segment.expert_parallel > 1) found.emplace("expert parallelism");
    const int degree = segment.tensor_parallel;
    if (segment.zero.shards_parameters() && degree > 1)
      found.emplace("ZeRO-3 with tensor parallelism");
    if (degree < 1 || s.heads < 1 || s.kv_heads < 1 || s.ffn < 1) continue;
    const bool kv = s.kv_heads % degree == 0 || degree % s.kv_heads == 0;
    if (s.heads % degree != 0 || s.ffn % degree != 0 || !kv) {
      found.insert(fmt::format("tensor parallelism {} with {} heads, {} key-value heads, width {}",
                               degree, s.heads, s.kv_heads, s.ffn));
    }
  }
  out.insert(out.end(), found.begin(), found.end());
}

}  // namespace

std::vector<std::string> find_unsupported(const ir::Program& program) {
  Problems out;
  if (program.header.collapsed) {
    out.emplace_back("a collapsed program (one rank stands for a tensor-parallel group)");
  }
  check_blocks(program.header, out);
  check_shape(program.header, out);
  check_segments(program, out);
  return out;
}

}  // namespace orrery::executor
