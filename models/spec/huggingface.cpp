#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "models/config/json_text.h"
#include "models/spec/model_file.h"

namespace orrery::models {
namespace {

using nlohmann::json;

/// Positions of the keys of a JSON document's outermost object. nlohmann-json has no positions for
/// values, so the text, which it has accepted as JSON, is scanned once more.
class Keys {
 public:
  /// Of the first object from byte `begin` on.
  Keys(const std::string& text, const std::string& file, std::size_t begin = 0)
      : text_(text), file_(file), begin_(begin) {
    int depth = 0;
    for (std::size_t i = begin; i < text.size(); ++i) {
      const char c = text[i];
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && --depth == 0) break;
      if (c != '"') continue;
      const std::size_t end = end_of_string(i);
      const std::size_t next = text.find_first_not_of(" \t\r\n", end + 1);
      if (depth == 1 && next != std::string::npos && text[next] == ':')
        found_.emplace_back(text.substr(i + 1, end - i - 1), i);
      i = end;
    }
  }

  /// In file order, with repetitions.
  const std::vector<std::pair<std::string, std::size_t>>& found() const { return found_; }

  config::Position at(std::size_t offset) const {
    return config::position_of_byte(file_, text_, offset);
  }
  /// Position of a key; the start of the object if it is not there.
  config::Position at(const std::string& key) const {
    for (const auto& [name, offset] : found_)
      if (name == key) return at(offset);
    return at(std::min(text_.find('{', begin_), text_.size()));
  }
  /// Of the object that stands behind a key.
  Keys inside(const std::string& key) const {
    std::size_t begin = text_.size();
    for (const auto& [name, offset] : found_)
      if (name == key) begin = end_of_string(offset) + 1;
    return {text_, file_, begin};
  }

 private:
  std::size_t end_of_string(std::size_t quote) const {
    std::size_t i = quote + 1;
    while (i < text_.size() && text_[i] != '"') i += text_[i] == '\\' ? 2 : 1;
    return std::min(i, text_.size());
  }

  const std::string& text_;
  std::string file_;
  std::size_t begin_;
  std::vector<std::pair<std::string, std::size_t>> found_;
};

void refuse_duplicates(const Keys& keys, config::Diagnostics& problems) {
  std::set<std::string> seen;
  for (const auto& [key, offset] : keys.found())
    if (!seen.insert(key).second)
      problems.add(keys.at(offset), fmt::format("duplicate field '{}'", key));
}

/// Typed access to the fields. Remembers which key gave which dimension, so that a contradiction
/// found later is reported there.
class Reader {
 public:
  Reader(const json& object, const Keys& keys, config::Diagnostics& problems)
      : object_(object), keys_(keys), problems_(problems) {}

  /// A required integer of at least 1; `field` is the dimension's name in check_shape.
  int integer(const char* key, const char* field) {
    const std::optional<int> value = maybe_integer(key, field);
    if (!value && !present(key)) problem("", fmt::format("missing field '{}'", key));
    return value.value_or(0);
  }
  int integer(const char* key, const char* field, int otherwise) {
    return maybe_integer(key, field).value_or(otherwise);
  }
  /// An integer of which 0 means that there is none.
  int count(const char* key, const char* field) {
    keys_of_[field] = key;
    return says_something(key) ? integer(key, field) : 0;
  }
  /// The strings of a list; none where it is absent.
  std::vector<std::string> strings(const char* key) {
    std::vector<std::string> out;
    if (!present(key)) return out;
    const json& value = object_.at(key);
    const bool fits =
        value.is_array() &&
        std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); });
    if (!fits) {
      problem(key, fmt::format("field '{}' must be a list of strings, is {}", key, shown(value)));
      return out;
    }
    for (const json& one : value) out.push_back(one.get<std::string>());
    return out;
  }
  /// Whether the field is there and says something: neither null, false, 0 nor empty.
  bool says_something(const char* key) {
    if (!present(key)) return false;
    const json& value = object_.at(key);
    if (value.is_boolean()) return value.get<bool>();
    if (value.is_number()) return value.get<double>() != 0;
    return !value.empty();
  }
  bool boolean(const char* key, bool otherwise) {
    if (!present(key)) return otherwise;
    const json& value = object_.at(key);
    if (value.is_boolean()) return value.get<bool>();
    problem(key, fmt::format("field '{}' must be true or false, is {}", key, shown(value)));
    return otherwise;
  }
  /// A string; "" when it is absent.
  std::string string(const char* key) {
    if (!present(key)) return "";
    const json& value = object_.at(key);
    if (value.is_string()) return value.get<std::string>();
    problem(key, fmt::format("field '{}' must be a string, is {}", key, shown(value)));
    return "";
  }
  /// Calls read(Reader&) for the object of a field, where it is there.
  template <class Read>
  void object(const char* key, Read read) {
    if (!present(key)) return;
    const json& value = object_.at(key);
    if (!value.is_object())
      return problem(key, fmt::format("field '{}' must be an object, is {}", key, shown(value)));
    const Keys keys = keys_.inside(key);
    refuse_duplicates(keys, problems_);
    Reader inside(value, keys, problems_);
    read(inside);
  }
  void problem(const std::string& key, std::string what, std::string hint = "") {
    problems_.add(keys_.at(key), std::move(what), std::move(hint));
  }
  /// The key that gave a dimension.
  std::string key_of(const std::string& field) const {
    const auto key = keys_of_.find(field);
    return key == keys_of_.end() ? "" : key->second;
  }

 private:
  /// null counts as absent, as it does for Hugging Face.
  bool present(const char* key) const {
    return object_.contains(key) && !object_.at(key).is_null();
  }
  std::optional<int> maybe_integer(const char* key, const char* field) {
    keys_of_[field] = key;
    if (!present(key)) return std::nullopt;
    const json& value = object_.at(key);
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() ||
                       value.get<std::uint64_t>() <= std::numeric_limits<int>::max());
    if (fits && value.get<std::int64_t>() >= 1 &&
        value.get<std::int64_t>() <= std::numeric_limits<int>::max())
      return value.get<int>();
    problem(key, fmt::format("field '{}' must be an integer from 1 to {}, is {}", key,
                             std::numeric_limits<int>::max(), shown(value)));
    return std::nullopt;
  }
  static std::string shown(const json& value) {
    return value.is_structured() ? (value.is_array() ? "a list" : "an object")
                                 : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  const json& object_;
  const Keys& keys_;
  config::Diagnostics& problems_;
  std::map<std::string, std::string> keys_of_;
};

/// The two-matrix activations of GPT-like models.
ir::Activation plain_activation(Reader& in, const char* key, ir::Activation otherwise) {
  const std::string name = in.string(key);
  if (name.empty()) return otherwise;
  if (name == "relu") return ir::Activation::relu;
  if (name.starts_with("gelu")) return ir::Activation::gelu;
  in.problem(key, fmt::format("activation '{}' is not modeled", name), "gelu, gelu_new, relu");
  return otherwise;
}

/// Fields that change a model in a way that no ModelShape says: each one is a problem.
void refuse(Reader& in, std::initializer_list<std::pair<const char*, const char*>> fields) {
  for (const auto& [key, what] : fields) {
    if (in.says_something(key))
      in.problem(key, fmt::format("field '{}' is not modeled: {}", key, what));
  }
}

void read_experts(Reader& in, const std::string& type, ir::ModelShape& s) {
  const bool qwen = type == "qwen3_moe";
  s.experts = in.integer(qwen ? "num_experts" : "num_local_experts", "experts");
  s.top_k = in.integer("num_experts_per_tok", "top_k");
  if (!qwen) return;
  s.ffn = in.integer("moe_intermediate_size", "ffn");
  refuse(in, {{"mlp_only_layers", "layers without experts among layers with them"},
              {"shared_expert_intermediate_size", "an expert that all tokens share"}});
  if (in.integer("decoder_sparse_step", "", 1) != 1)
    in.problem("decoder_sparse_step",
               "layers without experts among layers with them are not modeled");
}

/// By the names that Llama gave them.
void read_dimensions(Reader& in, ir::ModelShape& s) {
  s.layers = in.integer("num_hidden_layers", "layers");
  s.hidden = in.integer("hidden_size", "hidden");
  s.heads = in.integer("num_attention_heads", "heads");
  s.kv_heads = in.integer("num_key_value_heads", "kv_heads", s.heads);
  s.head_dim = in.integer("head_dim", "head_dim", 0);
  s.ffn = in.integer("intermediate_size", "ffn");
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.tied_embeddings = in.boolean("tie_word_embeddings", false);
}

void read_swiglu(Reader& in) {
  const std::string activation = in.string("hidden_act");
  if (!activation.empty() && activation != "silu" && activation != "swish")
    in.problem("hidden_act", fmt::format("activation '{}' is not modeled", activation), "silu");
}

/// Layers that attend to a window of tokens, and every n-th that attends to all. Qwen's have none
/// unless they say so [huggingface/transformers, configuration_qwen2.py].
void read_windows(Reader& in, const std::string& type, ir::ModelShape& s) {
  const bool by_default = !type.starts_with("qwen");
  if (!in.says_something("sliding_window") || !in.boolean("use_sliding_window", by_default)) return;
  s.window = in.integer("sliding_window", "window");
  refuse(in, {{"max_window_layers", "so many first layers attend to all tokens"}});
  const std::vector<std::string> layers = in.strings("layer_types");
  const auto attends_to_all = [&](std::size_t i) { return layers[i] == "full_attention"; };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (!attends_to_all(i) && layers[i] != "sliding_attention")
      return in.problem("layer_types", fmt::format("layers of '{}' are not modeled", layers[i]));
    if (s.global_interval == 0 && attends_to_all(i)) s.global_interval = static_cast<int>(i) + 1;
  }
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const bool all = s.global_interval > 0 && (i + 1) % as_size(s.global_interval) == 0;
    if (all != attends_to_all(i))
      return in.problem("layer_types",
                        fmt::format("layer {} {} to all tokens, unlike every {}. of those before",
                                    i, all ? "does not attend" : "attends", s.global_interval));
  }
}

/// DeepSeek-V2 and V3 [DeepSeek-AI 2024, DeepSeek-V3 Technical Report, 2 and 4.2].
void read_deepseek(Reader& in, ir::ModelShape& s) {
  read_dimensions(in, s);
  read_swiglu(in);
  s.kv_heads = s.heads;
  s.kv_rank = in.integer("kv_lora_rank", "kv_rank");
  s.query_rank = in.count("q_lora_rank", "query_rank");
  s.head_dim = in.integer("qk_nope_head_dim", "head_dim");
  s.rotary_dim = in.integer("qk_rope_head_dim", "rotary_dim");
  s.value_dim = in.integer("v_head_dim", "value_dim");
  s.dense_ffn = s.ffn;
  s.experts = in.integer("n_routed_experts", "experts");
  s.top_k = in.integer("num_experts_per_tok", "top_k");
  s.ffn = in.integer("moe_intermediate_size", "ffn");
  const std::int64_t shared = std::int64_t{in.count("n_shared_experts", "shared_ffn")} * s.ffn;
  s.shared_ffn = static_cast<int>(std::min<std::int64_t>(shared, std::numeric_limits<int>::max()));
  s.dense_layers = in.count("first_k_dense_replace", "dense_layers");
  s.mtp_layers = in.count("num_nextn_predict_layers", "mtp_layers");
  if (in.integer("moe_layer_freq", "moe_interval", 1) != 1)
    in.problem("moe_layer_freq", "experts in every n-th layer only are not modeled");
}

/// Llama 4: experts with a shared one in every n-th layer, and attention inside of chunks, of which
/// a token sees half on the mean, in all layers but every fourth
/// [huggingface/transformers, modeling_llama4.py].
void read_llama4(Reader& in, ir::ModelShape& s) {
  read_dimensions(in, s);
  read_swiglu(in);
  s.experts = in.integer("num_local_experts", "experts");
  s.top_k = in.integer("num_experts_per_tok", "top_k");
  s.shared_ffn = s.ffn;
  s.dense_ffn = in.integer("intermediate_size_mlp", "dense_ffn", s.ffn);
  s.moe_interval = in.integer("interleave_moe_layer_step", "moe_interval", 1);
  refuse(in, {{"moe_layers", "a list of the layers with experts"}});
  if (!in.says_something("attention_chunk_size")) return;
  s.window = std::max(1, in.integer("attention_chunk_size", "window") / 2);
  s.global_interval = in.integer("no_rope_layer_interval", "global_interval", 4);
}

/// Those that only some matrices have count as none.
bool all_biases(Reader& in) {
  return in.boolean("attention_bias", false) && in.boolean("mlp_bias", false);
}

/// Llama, Mistral, Mixtral, Qwen2 and 3, gpt-oss: rotary positions, RMSNorm, SwiGLU, grouped-query
/// attention.
void read_llama_like(Reader& in, const std::string& type, ir::ModelShape& s) {
  read_dimensions(in, s);
  s.biases = all_biases(in);
  read_swiglu(in);
  read_windows(in, type, s);
  const bool in_turns = type == "gpt_oss" && s.window > 0;
  if (in_turns && !in.says_something("layer_types")) s.global_interval = 2;
  if (type == "mixtral" || type == "qwen3_moe" || type == "gpt_oss") read_experts(in, type, s);
}

/// Nemotron: LayerNorm, squared ReLU, grouped-query attention.
void read_nemotron(Reader& in, ir::ModelShape& s) {
  s.normalization = ir::Normalization::layer_norm;
  read_dimensions(in, s);
  s.biases = all_biases(in);
  s.activation = ir::Activation::relu;
  if (const std::string name = in.string("hidden_act"); !name.empty() && name != "relu2")
    in.problem("hidden_act", fmt::format("activation '{}' is not modeled", name), "relu2");
}

/// The default feed-forward width of GPT; no overflow for absurd widths, which check_shape refuses.
int four_times(int hidden) { return 4 * std::min(hidden, 1 << 20); }

void set_gpt_like(ir::ModelShape& s) {
  s.normalization = ir::Normalization::layer_norm;
  s.biases = true;
}

void read_gpt2(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.layers = in.integer("n_layer", "layers");
  s.hidden = in.integer("n_embd", "hidden");
  s.heads = in.integer("n_head", "heads");
  s.ffn = in.integer("n_inner", "ffn", four_times(s.hidden));
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.positions = in.integer("n_positions", "positions");
  s.activation = plain_activation(in, "activation_function", ir::Activation::gelu);
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
}

void read_gpt_neo(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.layers = in.integer("num_layers", "layers");
  s.hidden = in.integer("hidden_size", "hidden");
  s.heads = in.integer("num_heads", "heads");
  s.ffn = in.integer("intermediate_size", "ffn", four_times(s.hidden));
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.positions = in.integer("max_position_embeddings", "positions");
  s.activation = plain_activation(in, "activation_function", ir::Activation::gelu);
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
}

void read_bloom(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.layers = in.integer("n_layer", "layers");
  s.hidden = in.integer("hidden_size", "hidden");
  s.heads = in.integer("n_head", "heads");
  s.ffn = four_times(s.hidden);
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.activation = ir::Activation::gelu;
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
}

/// Fewer heads of keys and values than of queries, and positions, which are learned where neither
/// ALiBi nor rotation says them [mosaicml/llm-foundry, configuration_mpt.py].
void read_mpt_attention(Reader& in, ir::ModelShape& s) {
  in.object("attn_config", [&](Reader& attention) {
    const std::string type = attention.string("attn_type");
    if (type == "grouped_query_attention") {
      s.kv_heads = attention.integer("kv_n_heads", "kv_heads");
    } else if (type == "multiquery_attention") {
      s.kv_heads = 1;
    } else if (!type.empty() && type != "multihead_attention") {
      attention.problem("attn_type", fmt::format("attention '{}' is not modeled", type),
                        "multihead_attention, multiquery_attention, grouped_query_attention");
    }
    const bool said = attention.boolean("alibi", true) || attention.boolean("rope", false);
    if (!said && in.boolean("learned_pos_emb", true))
      s.positions = in.integer("max_seq_len", "positions");
  });
}

void read_mpt(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.biases = !in.boolean("no_bias", true);
  s.layers = in.integer("n_layers", "layers");
  s.hidden = in.integer("d_model", "hidden");
  s.heads = in.integer("n_heads", "heads");
  s.ffn = std::min(s.hidden, 1 << 20) * std::min(in.integer("expansion_ratio", "ffn", 4), 1 << 8);
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.activation = ir::Activation::gelu;
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
  read_mpt_attention(in, s);
}

void read_opt(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.biases = in.boolean("enable_bias", true);  // Galactica has none.
  s.layers = in.integer("num_hidden_layers", "layers");
  s.hidden = in.integer("hidden_size", "hidden");
  s.heads = in.integer("num_attention_heads", "heads");
  s.ffn = in.integer("ffn_dim", "ffn");
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.positions = in.integer("max_position_embeddings", "positions");
  s.activation = plain_activation(in, "activation_function", ir::Activation::relu);
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
  const int projected = in.integer("word_embed_proj_dim", "", s.hidden);
  if (projected != s.hidden)
    in.problem("word_embed_proj_dim",
               fmt::format("embedding width {} differs from hidden_size {}: the projections "
                           "between them are not modeled",
                           projected, s.hidden),
               "the library's opt_350m has embeddings of full width");
}

void read_bert(Reader& in, ir::ModelShape& s) {
  set_gpt_like(s);
  s.causal = in.boolean("is_decoder", false);
  s.layers = in.integer("num_hidden_layers", "layers");
  s.hidden = in.integer("hidden_size", "hidden");
  s.heads = in.integer("num_attention_heads", "heads");
  s.ffn = in.integer("intermediate_size", "ffn");
  s.vocabulary = in.integer("vocab_size", "vocabulary");
  s.positions = in.integer("max_position_embeddings", "positions");
  s.activation = plain_activation(in, "hidden_act", ir::Activation::gelu);
  s.tied_embeddings = in.boolean("tie_word_embeddings", true);
}

/// Readers by model_type.
using ReadShape = void (*)(Reader&, const std::string& type, ir::ModelShape&);
template <void (*kRead)(Reader&, ir::ModelShape&)>
void any_type(Reader& in, const std::string&, ir::ModelShape& shape) {
  kRead(in, shape);
}
constexpr std::pair<const char*, ReadShape> kTypes[] = {{"llama", read_llama_like},
                                                        {"mistral", read_llama_like},
                                                        {"mixtral", read_llama_like},
                                                        {"qwen2", read_llama_like},
                                                        {"qwen3", read_llama_like},
                                                        {"qwen3_moe", read_llama_like},
                                                        {"gpt_oss", read_llama_like},
                                                        {"deepseek_v2", any_type<read_deepseek>},
                                                        {"deepseek_v3", any_type<read_deepseek>},
                                                        {"llama4_text", any_type<read_llama4>},
                                                        {"nemotron", any_type<read_nemotron>},
                                                        {"gpt2", any_type<read_gpt2>},
                                                        {"opt", any_type<read_opt>},
                                                        {"bert", any_type<read_bert>},
                                                        {"gpt_neo", any_type<read_gpt_neo>},
                                                        {"bloom", any_type<read_bloom>},
                                                        {"mpt", any_type<read_mpt>}};

/// False if the type is unknown.
bool read_type(Reader& in, const std::string& type, ir::ModelShape& shape) {
  for (const auto& [name, read] : kTypes) {
    if (type != name) continue;
    read(in, type, shape);
    return true;
  }
  return false;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const auto& [name, read] : kTypes) names.push_back(name);
  return names;
}

std::optional<std::string> read_text(const std::string& path, config::Diagnostics& problems) {
  constexpr std::size_t kLargest = std::size_t{16} << 20;
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    problems.add({path, 0, 0}, "is a directory");
    return std::nullopt;
  }
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in) text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in || in.bad()) {
    problems.add({path, 0, 0}, "cannot be read");
    return std::nullopt;
  }
  if (text.size() <= kLargest) return text;
  problems.add({path, 0, 0}, "is larger than 16 MiB");
  return std::nullopt;
}

std::optional<json> parse(const std::string& text, const Keys& keys,
                          config::Diagnostics& problems) {
  json document;
  if (const auto fault = config::parse_json(text, document)) {
    problems.add(keys.at(fault->byte), fault->what);
    return std::nullopt;
  }
  if (document.is_object()) return document;
  problems.add(keys.at(0), "expected an object: a Hugging Face config.json");
  return std::nullopt;
}

void complete(Reader& in, ir::ModelShape& shape) {
  if (shape.kv_heads == 0) shape.kv_heads = shape.heads;
  if (shape.head_dim == 0) {
    shape.head_dim = shape.hidden / shape.heads;
    if (shape.hidden % shape.heads != 0)
      return in.problem(in.key_of("heads"), fmt::format("hidden size {} is no multiple of {} heads",
                                                        shape.hidden, shape.heads));
  }
  for (const ShapeProblem& problem : check_shape(shape)) {
    const std::string key = in.key_of(problem.field);
    in.problem(key, fmt::format("field '{}': {}", key.empty() ? problem.field : key, problem.what));
  }
}

}  // namespace

ir::ModelShape load_huggingface(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  const std::optional<std::string> text = read_text(path, diagnostics);
  if (!text) return {};
  const Keys keys(*text, path);
  const std::optional<json> document = parse(*text, keys, diagnostics);
  if (!document) return {};
  refuse_duplicates(keys, diagnostics);
  // A model of text and images has that of text inside.
  constexpr const char* kText = "text_config";
  const bool inside = document->contains(kText) && document->at(kText).is_object();
  const Keys inner = inside ? keys.inside(kText) : keys;
  if (inside) refuse_duplicates(inner, diagnostics);
  Reader in(inside ? document->at(kText) : *document, inner, diagnostics);
  ir::ModelShape shape;
  const std::string type = in.string("model_type");
  if (!read_type(in, type, shape) && diagnostics.problems().size() == before)
    in.problem("model_type",
               type.empty() ? "missing field 'model_type'"
                            : fmt::format("model_type '{}' is not modeled", type),
               config::suggest(type, type_names(), "types"));
  if (diagnostics.problems().size() == before) complete(in, shape);
  if (diagnostics.problems().size() != before) return {};
  shape.name = in.string("_name_or_path");
  if (shape.name.empty()) shape.name = path;
  return shape;
}

}  // namespace orrery::models
