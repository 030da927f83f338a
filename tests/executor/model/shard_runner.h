/// Runs ModelShards of one tensor-parallel group, or of several that hold experts together, in
/// threads of one process, for tests.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "executor/model/shard.h"
#include "tests/executor/model/reference.h"

namespace orrery::executor {

/// A small model with the blocks of a Program's header.
ir::ProgramHeader small_header(int heads, int kv_heads, ir::Activation activation,
                               int vocabulary = 37);
/// With LayerNorm, biases and learned positions besides, and tied embeddings if asked for.
ir::ProgramHeader small_gpt(int heads, int kv_heads, ir::Activation activation, int vocabulary,
                            bool tied_embeddings);

/// With experts in place of each feed-forward.
ir::ProgramHeader with_experts(ir::ProgramHeader header, int experts, int top_k,
                               double capacity_factor);

/// Whole tensors of numbers large enough that every path matters.
reference::Weights random_weights(const ir::ProgramHeader& header, std::uint64_t seed);

struct Tokens {
  int samples = 0;
  std::vector<std::int32_t> tokens, targets;
};
Tokens random_tokens(const ir::ProgramHeader& header, int samples, std::uint64_t seed);

struct ShardRun {
  Precision precision = Precision::fp64;
  int degree = 1;
  bool sequence = false;  ///< Megatron's sequence parallelism.
  int expert_degree = 1;  ///< Groups that hold experts together and share the samples.
  ir::Recompute recompute = ir::Recompute::none;
  bool split_backward = false;
  /// Each run of blocks is a call of its own, as pipeline stages are.
  std::vector<std::pair<int, int>> stages = {};  ///< Empty: all blocks at once.
  int skipped_sum = -1;  ///< All members leave out the sum of this number: a mistake.
  double scale = 1;
};

/// A sum over the group, or another exchange in it, as one member saw it.
struct Sum {
  std::string pass;  ///< "forward", "backward".
  std::size_t elements = 0;
  bool maximum = false;
  bool wide = false;
  ir::CollectiveKind kind = ir::CollectiveKind::all_reduce;
};

struct ShardResult {
  reference::Result whole;        ///< Of all micro-batches; slices put together.
  std::vector<Sum> sums;          ///< Of the first member.
  std::vector<std::size_t> kept;  ///< Bytes after each micro-batch's forward pass, by stage.
  std::size_t kept_at_end = 0;    ///< Sum over all, after the backward passes.
  std::string unequal;            ///< What members should have equal and have not.
};

/// Each of the micro-batches forward and backward, in order.
ShardResult run_shards(const ir::ProgramHeader& header, const reference::Weights& weights,
                       const std::vector<Tokens>& batches, const ShardRun& how);

}  // namespace orrery::executor
