/// Small models and jobs for tests.
#pragma once
#include <cstdint>

#include "models/ir/model_shape.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::worlds {

/// Llama: RMSNorm, SwiGLU, rotary positions, a head of its own.
ir::ModelShape llama(int layers, int hidden, int heads, int kv_heads, int ffn, int vocabulary);

/// Published Llama shapes; `layers` replaces the number of layers where it is positive.
ir::ModelShape llama2_13b(int layers = 0);
ir::ModelShape llama_30b();
/// A small model: 1,024 wide, 16 heads.
ir::ModelShape small_model(int layers);

/// `blocks` equal transformer blocks: 1 ms forward per sample on one device, `activation` bytes
/// between blocks, two all-reduces of that size per block under tensor parallelism, and one matrix
/// of 4096 x 1024 that tensor parallelism splits.
models::Workload make_workload(int blocks, Bytes activation = Bytes{8 << 20});
inline constexpr double kBlockSeconds = 1e-3;

/// GPT: LayerNorm, GELU, biases, learned positions, feed-forward of four times the width, tied
/// embeddings.
ir::ModelShape gpt(int layers, int hidden, int heads, int vocabulary, int positions);

models::Job make_job(std::int64_t global_batch, std::int64_t sequence_length);

}  // namespace orrery::worlds
