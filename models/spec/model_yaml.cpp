#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "models/base/hash.h"
#include "models/config/document.h"
#include "models/config/visitor.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "models/spec/model_file.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

/// Bounds that keep all counts of elements within 63 bits; far above any model.
struct Bound {
  const char* field;
  int value;
  int low;
  int high;
  const char* needs = nullptr;  ///< The field without which it says nothing, if that is absent.
};

bool is_convolutional(const ModelFile& file) { return !file.blocks.empty(); }

void describe_dimensions(config::Visitor& v, ir::ModelShape& s) {
  v.optional("layers", s.layers, "transformer blocks; required unless `blocks` is given");
  v.optional("hidden", s.hidden, "width of the residual stream; required unless `blocks` is given");
  v.optional("heads", s.heads, "attention heads; required unless `blocks` is given");
  v.optional("kv_heads", s.kv_heads, "key-value heads (grouped-query attention); 0: as heads");
  v.optional("head_dim", s.head_dim, "width of a head; 0: hidden / heads");
  v.optional("ffn", s.ffn,
             "inner width of the feed-forward (of one expert); required unless `blocks` is given");
  v.optional("vocabulary", s.vocabulary, "tokens; required unless `blocks` is given");
  v.optional("positions", s.positions, "learned position embeddings; 0: rotary or none");
  v.optional("normalization", s.normalization, "layer_norm models train with dropout");
  v.optional("activation", s.activation, "swiglu has three feed-forward matrices, others two");
  v.optional("causal", s.causal, "false: every token sees every other (BERT)");
  v.optional("biases", s.biases, "linear layers have bias vectors");
  v.optional("tied_embeddings", s.tied_embeddings, "the head uses the embedding's matrix");
  v.optional("experts", s.experts, "experts of each block; 0: dense");
  v.optional("top_k", s.top_k, "experts per token");
  v.optional("capacity_factor", s.capacity_factor, "tokens per expert relative to an even share");
  v.optional("expert_imbalance", s.expert_imbalance, "load of the busiest expert / mean load");
  v.optional("shared_ffn", s.shared_ffn, "inner width of the expert that all tokens take");
  v.optional("dense_layers", s.dense_layers, "so many first layers have no experts");
  v.optional("moe_interval", s.moe_interval, "of the others every n-th has experts; 0: all");
  v.optional("dense_ffn", s.dense_ffn,
             "inner width of layers without experts among such with; 0: ffn");
  v.optional("window", s.window, "tokens that a token attends to; 0: all");
  v.optional("global_interval", s.global_interval,
             "every n-th layer attends to all tokens nevertheless; 0: none");
  v.optional("mtp_layers", s.mtp_layers, "layers that predict a further token each (DeepSeek-V3)");
  v.optional("kv_rank", s.kv_rank,
             "latent attention: numbers that keys and values are made of; 0: no latents");
  v.optional("query_rank", s.query_rank, "the same of queries; 0: made as usual");
  v.optional("rotary_dim", s.rotary_dim, "latent attention: of a head, beside head_dim");
  v.optional("value_dim", s.value_dim, "latent attention: width of a head's values; 0: head_dim");
}

void check_dimensions(config::Visitor& v, ir::ModelShape& s) {
  bool complete = true;
  for (const char* key : {"layers", "hidden", "heads", "ffn", "vocabulary"}) {
    if (v.given(key)) continue;
    v.problem("", fmt::format("missing key '{}'", key), "a model has dimensions or `blocks`");
    complete = false;
  }
  if (!complete) return;
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.head_dim == 0 && s.heads > 0) {
    s.head_dim = s.hidden / s.heads;
    if (s.hidden % s.heads != 0)
      return v.problem("heads",
                       fmt::format("hidden {} is no multiple of {} heads", s.hidden, s.heads),
                       "give head_dim");
  }
  for (const ShapeProblem& problem : check_shape(s)) {
    if (v.given(problem.field)) {
      v.problem(problem.field, problem.what);
    } else {
      v.problem("", fmt::format("{} {}", problem.field, problem.what));  // a derived one
    }
  }
}

void check_blocks(config::Visitor& v, const ModelFile& file) {
  const ir::ModelShape& shape = file.shape;
  for (const auto& [key, value] : {std::pair{"layers", shape.layers},
                                   {"hidden", shape.hidden},
                                   {"heads", shape.heads},
                                   {"ffn", shape.ffn},
                                   {"vocabulary", shape.vocabulary},
                                   {"positions", shape.positions},
                                   {"experts", shape.experts}})
    if (value != 0) v.problem(key, "a model with `blocks` has no dimensions of its own");
  const auto is = [](const BlockSpec& block, ir::BlockKind kind) {
    return block.kind == kind && block.count == 1;
  };
  if (file.blocks.size() < 3 || !is(file.blocks.front(), ir::BlockKind::embedding) ||
      !is(file.blocks.back(), ir::BlockKind::head))
    return v.problem("blocks",
                     "the first block must be one embedding (the stem), the last one head",
                     "at least one block is between them");
  std::int64_t total = 0;
  for (std::size_t i = 0; i < file.blocks.size(); ++i) {
    total += file.blocks[i].count;
    if (i > 0 && file.blocks[i].input != file.blocks[i - 1].output)
      v.problem("blocks", fmt::format("run {} takes {} elements, the one before gives {}", i,
                                      file.blocks[i].input, file.blocks[i - 1].output));
    if (file.blocks[i].count > 1 && file.blocks[i].input != file.blocks[i].output)
      v.problem("blocks", fmt::format("run {} repeats a block whose input and output differ", i));
  }
  if (total > 4096) v.problem("blocks", fmt::format("{} blocks, at most 4096", total));
}

Block make_block(const BlockSpec& spec, double element) {
  const auto bytes = [element](std::int64_t elements) {
    return Bytes{element * static_cast<double>(elements)};
  };
  Block block;
  block.kind = spec.kind;
  block.forward_flops = spec.forward;
  block.parameters = spec.parameters;
  block.input_bytes = bytes(spec.input);
  block.output_bytes = bytes(spec.output);
  block.kept_split = bytes(spec.kept_split);
  block.kept_replicated = bytes(spec.kept_replicated);
  block.memory_traffic = bytes(spec.traffic);
  block.tensor_collectives = spec.tensor_collectives;
  return block;
}

std::optional<ModelFile> load_any(const std::string& name, const Library& library,
                                  config::Position asked_at, config::Diagnostics& diagnostics) {
  const auto path = find_library_file(name, "model", library.models,
                                      std::array{".yaml", ".yml", ".json"}, asked_at, diagnostics);
  if (!path) return std::nullopt;
  const std::size_t before = diagnostics.problems().size();
  ModelFile file;
  if (fs::path(*path).extension() == ".json") {
    file.shape = load_huggingface(*path, diagnostics);
  } else {
    file = load_model_file(*path, diagnostics);
  }
  if (diagnostics.problems().size() != before) return std::nullopt;
  return file;
}

}  // namespace

void describe(config::Visitor& v, Parameter& parameter) {
  v.title("Parameter tensor");
  v.required("name", parameter.name, "unique within its block");
  v.required("elements", parameter.elements, "number of elements");
  v.optional("split_length", parameter.split_length,
             "length of the dimension that tensor parallelism splits; 0: replicated");
  v.optional("expert", parameter.expert, "belongs to the experts");
  v.between("elements", parameter.elements, std::int64_t{1}, std::int64_t{1} << 50);
  v.not_negative("split_length", parameter.split_length);
}

void describe(config::Visitor& v, BlockSpec& block) {
  v.title("Run of equal blocks");
  v.doc("Numbers per sample. Activations are counted in elements; the job's dtype sets the bytes.");
  v.optional("kind", block.kind, "embedding (the stem), convolution or head");
  v.optional("count", block.count, "equal blocks in a row");
  v.required("forward", block.forward, "FLOPs of the forward pass of one block");
  v.required("parameters", block.parameters, "tensors of one block");
  v.required("input", block.input, "elements received from the block before");
  v.required("output", block.output, "elements sent to the next block");
  v.optional("kept_split", block.kept_split,
             "elements kept for backward that tensor parallelism splits");
  v.optional("kept_replicated", block.kept_replicated,
             "elements kept for backward on every member of a tensor-parallel group");
  v.required("traffic", block.traffic, "elements read and written by the forward pass");
  v.optional("tensor_collectives", block.tensor_collectives,
             "all-reduces of output size in the forward pass under tensor parallelism");
  v.between("count", block.count, 1, 4096);
  v.not_negative("forward", block.forward);
  v.between("tensor_collectives", block.tensor_collectives, 0, 16);
  for (const auto& [key, value] : {std::pair{"input", block.input},
                                   {"output", block.output},
                                   {"kept_split", block.kept_split},
                                   {"kept_replicated", block.kept_replicated},
                                   {"traffic", block.traffic}})
    v.between(key, value, std::int64_t{0}, std::int64_t{1} << 50);
}

void describe(config::Visitor& v, ModelFile& file) {
  v.schema("orrery/model", 1);
  v.title("Model");
  v.doc("Dimensions of a transformer, or an explicit list of blocks (convolutional networks).");
  v.required("name", file.shape.name, "name of the model");
  v.required("source", file.source, "where the numbers come from");
  describe_dimensions(v, file.shape);
  v.optional("blocks", file.blocks, "block list of a model that is no transformer");
  if (!v.reading()) return;
  if (is_convolutional(file)) {
    check_blocks(v, file);
  } else {
    check_dimensions(v, file.shape);
  }
}

std::vector<ShapeProblem> check_shape(const ir::ModelShape& s) {
  std::vector<ShapeProblem> problems;
  const char* experts = s.experts > 0 ? nullptr : "experts";
  const char* latents = s.kv_rank > 0 ? nullptr : "kv_rank";
  for (const Bound& bound :
       {Bound{"layers", s.layers, 1, 4000},
        {"hidden", s.hidden, 1, 1 << 17},
        {"heads", s.heads, 1, 1 << 12},
        {"kv_heads", s.kv_heads, 1, 1 << 12},
        {"head_dim", s.head_dim, 1, 1 << 14},
        {"ffn", s.ffn, 1, 1 << 20},
        {"vocabulary", s.vocabulary, 1, 1 << 26},
        {"positions", s.positions, 0, 1 << 26},
        {"experts", s.experts, 0, 1 << 10},
        {"top_k", s.top_k, s.experts > 0 ? 1 : 0, s.experts},
        {"shared_ffn", s.shared_ffn, 0, 1 << 20, experts},
        {"dense_layers", s.dense_layers, 0, s.layers, experts},
        {"moe_interval", s.moe_interval, 0, s.layers, experts},
        {"dense_ffn", s.dense_ffn, 0, 1 << 20, experts},
        {"window", s.window, 0, 1 << 30},
        {"global_interval", s.global_interval, 0, s.layers, s.window > 0 ? nullptr : "window"},
        {"mtp_layers", s.mtp_layers, 0, 16},
        {"kv_rank", s.kv_rank, 0, 1 << 17},
        {"query_rank", s.query_rank, 0, 1 << 17, latents},
        {"rotary_dim", s.rotary_dim, 0, 1 << 14, latents},
        {"value_dim", s.value_dim, 0, 1 << 14, latents}}) {
    if (bound.needs != nullptr && bound.value != 0) {
      problems.push_back({bound.field, fmt::format("says nothing without {}", bound.needs)});
      continue;
    }
    if (bound.value < bound.low || bound.value > bound.high)
      problems.push_back({bound.field, fmt::format("must be from {} to {}, is {}", bound.low,
                                                   bound.high, bound.value)});
  }
  if (s.kv_rank > 0 && s.kv_heads != s.heads)
    problems.push_back({"kv_heads", "latent attention has keys and values for each head"});
  if (s.kv_heads > 0 && s.heads % s.kv_heads != 0)
    problems.push_back({"kv_heads", fmt::format("{} heads cannot share {} key-value heads evenly",
                                                s.heads, s.kv_heads)});
  if (!(s.capacity_factor > 0) || s.capacity_factor > 1e3)
    problems.push_back({"capacity_factor", "must be above 0 and at most 1000"});
  if (!(s.expert_imbalance >= 1) || s.expert_imbalance > 1e3)
    problems.push_back({"expert_imbalance", "must be from 1 to 1000"});
  return problems;
}

ModelFile load_model_file(const std::string& path, config::Diagnostics& diagnostics) {
  return config::load_file<ModelFile>(path, diagnostics);
}

Workload build_workload(const ModelFile& file, std::int64_t sequence_length, ir::Dtype dtype) {
  if (!is_convolutional(file)) return build_workload(file.shape, sequence_length, dtype);
  Workload workload;
  workload.name = file.shape.name;
  workload.shape = file.shape;
  workload.sequence_length = sequence_length;
  workload.dtype = dtype;
  for (const BlockSpec& spec : file.blocks)
    workload.blocks.insert(workload.blocks.end(), spec.count,
                           make_block(spec, ir::size_of(dtype).value));
  workload.hash = content_hash(fmt::format("workload 1|{}|{}|{}", config::dump(file.blocks),
                                           sequence_length, ir::name_of(dtype)));
  return workload;
}

ir::ModelShape load_model(const std::string& name, const Library& library,
                          config::Position asked_at, config::Diagnostics& diagnostics) {
  std::optional<ModelFile> file = load_any(name, library, std::move(asked_at), diagnostics);
  return file ? std::move(file->shape) : ir::ModelShape{};
}

Workload load_workload(const std::string& name, const Job& job, const Library& library,
                       config::Position asked_at, config::Diagnostics& diagnostics) {
  const std::optional<ModelFile> file = load_any(name, library, asked_at, diagnostics);
  if (!file || job.sequence_length <= 0) return {};  // The job's own problem is reported already.
  const int positions = file->shape.positions;
  if (positions > 0 && job.sequence_length > positions) {
    diagnostics.add(std::move(asked_at),
                    fmt::format("model '{}' has {} learned positions, the job's sequences "
                                "have {} tokens",
                                file->shape.name, positions, job.sequence_length));
    return {};
  }
  return build_workload(*file, job.sequence_length, job.dtype);
}

}  // namespace orrery::models
