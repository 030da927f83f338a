#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "executor/model/shard.h"
#include "models/ir/op_traits.h"

namespace orrery::executor {
namespace {

using Problems = std::vector<std::string>;

void check_blocks(const ir::ProgramHeader& header, Problems& out) {
  const auto has = [&](ir::BlockKind kind) {
    return std::find(header.blocks.begin(), header.blocks.end(), kind) != header.blocks.end();
  };
  if (has(ir::BlockKind::convolution)) out.emplace_back("convolutional blocks");
  if (has(ir::BlockKind::moe) != (header.model.experts > 0) ||
      (has(ir::BlockKind::moe) && has(ir::BlockKind::transformer))) {
    out.emplace_back("layers with experts beside layers without");
  }
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
  if (s.positions > 0 && s.positions < header.sequence_length) {
    out.push_back(fmt::format("{} learned positions for sequences of {} tokens", s.positions,
                              header.sequence_length));
  }
  if (s.hidden < 1 || s.heads < 1 || s.kv_heads < 1 || s.head_dim < 1 || s.ffn < 1 ||
      s.vocabulary < 1 || header.sequence_length < 1) {
    out.emplace_back("a model without dimensions");
    return;
  }
  if (s.kv_rank > 0) out.emplace_back("latent attention");
  if (s.shared_ffn > 0) out.emplace_back("an expert that all tokens take");
  if (s.window > 0) out.emplace_back("attention to a window of tokens");
  if (s.mtp_layers > 0) out.emplace_back("layers that predict further tokens");
  if (s.heads % s.kv_heads != 0) {
    out.push_back(fmt::format("{} heads over {} key-value heads", s.heads, s.kv_heads));
  }
  if (s.experts > 0 && (s.top_k < 1 || s.top_k > s.experts)) {
    out.push_back(fmt::format("{} of {} experts for each token", s.top_k, s.experts));
  }
  if (s.positions == 0 && s.head_dim % 2 != 0) {
    out.push_back(fmt::format("rotary positions in heads of {} elements", s.head_dim));
  }
}

void check_segments(const ir::Program& program, Problems& out) {
  const ir::ModelShape& s = program.header.model;
  std::set<std::string> found;  // Many segments have the same trouble.
  for (const ir::SegmentInfo& segment : program.segments) {
    const int degree = segment.tensor_parallel;
    const bool megatron = segment.sequence == ir::SequenceParallelism::megatron;
    if ((segment.sequence != ir::SequenceParallelism::none && !megatron) ||
        segment.sequence_degree > 1) {
      found.emplace("Ulysses' or ring sequence parallelism");
    } else if (megatron && program.header.sequence_length < degree) {
      found.insert(fmt::format("sequence parallelism of {} tokens over {} ranks",
                               program.header.sequence_length, degree));
    }
    if (segment.expert_parallel > 1 &&
        (s.experts < 1 || (segment.experts == 0 && s.experts % segment.expert_parallel != 0))) {
      found.insert(
          fmt::format("expert parallelism {} with {} experts", segment.expert_parallel, s.experts));
    }
    if (segment.zero.shards_parameters() && s.tied_embeddings)
      found.emplace("ZeRO-3 with tied embeddings");
    if (degree < 1 || s.heads < 1 || s.kv_heads < 1 || s.ffn < 1) continue;
    const bool kv = s.kv_heads % degree == 0 || degree % s.kv_heads == 0;
    if (s.heads % degree != 0 || s.ffn % degree != 0 || !kv) {
      found.insert(fmt::format("tensor parallelism {} with {} heads, {} key-value heads, width {}",
                               degree, s.heads, s.kv_heads, s.ffn));
    }
  }
  out.insert(out.end(), found.begin(), found.end());
}

/// A rank keeps one slice of the tied matrix for both ends.
void check_tied_ends(const ir::Program& program, Problems& out) {
  if (!program.header.model.tied_embeddings) return;
  const std::int32_t last = static_cast<std::int32_t>(program.header.blocks.size()) - 1;
  std::map<RankId, int> degrees;
  for (const ir::Op& op : program.ops) {
    if (!ir::is_pass(op.kind)) continue;
    const ir::SegmentInfo& segment = program.segment_of(op);
    if (segment.first_block.value != 0 && segment.last_block.value != last) continue;
    const auto [at, fresh] = degrees.try_emplace(op.rank, segment.tensor_parallel);
    if (at->second == segment.tensor_parallel) continue;
    out.push_back(
        fmt::format("tied embeddings whose ends lie on one rank with tensor parallelism {} and {}",
                    at->second, segment.tensor_parallel));
    return;
  }
}

}  // namespace

std::vector<std::string> find_unsupported(const ir::Program& program) {
  Problems out;
  if (program.header.collapsed) {
    out.emplace_back("a collapsed program (one rank stands for a tensor-parallel group)");
  }
  if (program.header.optimizer_offload > 0) {
    out.emplace_back("optimizer states in host memory (optimizer_offload)");
  }
  for (const ir::SegmentInfo& segment : program.segments) {
    if (segment.recompute != ir::Recompute::experts) continue;
    out.emplace_back("recomputation of experts alone (recompute: experts)");
    break;
  }
  check_blocks(program.header, out);
  check_shape(program.header, out);
  check_segments(program, out);
  check_tied_ends(program, out);
  return out;
}

}  // namespace orrery::executor
