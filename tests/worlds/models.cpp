#include "tests/worlds/models.h"

namespace orrery::worlds {

ir::ModelShape llama(int layers, int hidden, int heads, int kv_heads, int ffn, int vocabulary) {
  ir::ModelShape shape;
  shape.name = "llama";
  shape.layers = layers;
  shape.hidden = hidden;
  shape.heads = heads;
  shape.kv_heads = kv_heads;
  shape.head_dim = hidden / heads;
  shape.ffn = ffn;
  shape.vocabulary = vocabulary;
  return shape;
}

ir::ModelShape llama2_13b(int layers) {
  ir::ModelShape shape = llama(layers > 0 ? layers : 40, 5120, 40, 40, 13824, 32000);
  shape.name = "llama2_13b";
  return shape;
}

ir::ModelShape llama_30b() {
  ir::ModelShape shape = llama(60, 6656, 52, 52, 17920, 32000);
  shape.name = "llama_30b";
  return shape;
}

ir::ModelShape small_model(int layers) {
  ir::ModelShape shape = llama(layers, 1024, 16, 16, 4096, 32000);
  shape.name = "small";
  return shape;
}

ir::ModelShape gpt(int layers, int hidden, int heads, int vocabulary, int positions) {
  ir::ModelShape shape = llama(layers, hidden, heads, heads, 4 * hidden, vocabulary);
  shape.name = "gpt";
  shape.positions = positions;
  shape.normalization = ir::Normalization::layer_norm;
  shape.activation = ir::Activation::gelu;
  shape.biases = true;
  shape.tied_embeddings = true;
  return shape;
}

models::Workload make_workload(int blocks, Bytes activation) {
  models::Workload workload;
  workload.name = "test";
  workload.shape.name = "test";
  workload.shape.heads = workload.shape.kv_heads = 16;
  workload.sequence_length = 1024;
  models::Block block;
  block.forward_flops = Flops{kBlockSeconds * 5e13};
  block.parameters = {{"weight", 4096 * 1024, 1024, false}};
  block.input_bytes = block.output_bytes = activation;
  block.kept_split = 4 * activation;
  block.tensor_collectives = 2;
  workload.blocks.assign(blocks, block);
  workload.hash = "workload";
  return workload;
}

models::Job make_job(std::int64_t global_batch, std::int64_t sequence_length) {
  models::Job job;
  job.global_batch = global_batch;
  job.sequence_length = sequence_length;
  return job;
}

}  // namespace orrery::worlds
