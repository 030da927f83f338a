/// Model descriptions on disk: `schema: orrery/model/1` YAML, and Hugging Face config.json.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/config/diagnostics.h"
#include "models/ir/model_shape.h"
#include "models/spec/workload.h"

namespace orrery::config {
class Visitor;
}

namespace orrery::models {

/// A run of equal blocks, given by numbers instead of transformer dimensions: for convolutional
/// networks. Everything per sample; activations in elements, so that the job's dtype sets the
/// bytes.
struct BlockSpec {
  ir::BlockKind kind = ir::BlockKind::convolution;
  int count = 1;
  Flops forward;
  std::vector<Parameter> parameters;
  std::int64_t input = 0;
  std::int64_t output = 0;
  std::int64_t kept_split = 0;
  std::int64_t kept_replicated = 0;
  std::int64_t traffic = 0;
  int tensor_collectives = 0;
};

/// A model YAML: the dimensions of a transformer, or a list of blocks (then the dimensions are 0).
struct ModelFile {
  ir::ModelShape shape;
  std::string source;
  std::vector<BlockSpec> blocks;
};

void describe(config::Visitor& v, Parameter& parameter);
void describe(config::Visitor& v, BlockSpec& block);
void describe(config::Visitor& v, ModelFile& file);

/// What is wrong with a dimension: `field` is the key of the model YAML.
struct ShapeProblem {
  const char* field;
  std::string what;
};
/// Dimensions that build_workload cannot use, or that contradict each other. A kv_heads or head_dim
/// of 0 must have been filled in before.
std::vector<ShapeProblem> check_shape(const ir::ModelShape& shape);

/// Reads a model YAML. kv_heads defaults to heads, head_dim to hidden / heads.
ModelFile load_model_file(const std::string& path, config::Diagnostics& diagnostics);

/// Reads a Hugging Face config.json: model_type llama, mistral, mixtral, qwen2, qwen3, qwen3_moe,
/// gpt_oss, nemotron, gpt2, opt, bert, gpt_neo, bloom or mpt; other types are a problem, and of
/// deepseek_v2, deepseek_v3 and llama4_text the fields that a ModelShape cannot say. The name is
/// `_name_or_path`, else the path. Missing and ill-typed fields are problems at their key. Not
/// modeled: biases that only some matrices have (Qwen2's QKV, GPT-Neo's lack of them there count as
/// none and as all), GPT-Neo's local attention (its FLOPs count as full attention), BERT's pooler
/// and token types.
ir::ModelShape load_huggingface(const std::string& path, config::Diagnostics& diagnostics);

/// The block list of a model file: build_workload(shape) for a transformer, else its own blocks.
Workload build_workload(const ModelFile& file, std::int64_t sequence_length, ir::Dtype dtype);

}  // namespace orrery::models
