#include "models/spec/model_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/config/document.h"
#include "models/spec/library.h"

namespace orrery::models::model_file_test {
namespace {

namespace fs = std::filesystem;

/// A folder of files that goes away with the test; problems are printed with paths below it.
class ModelFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() /
              (std::string("orrery_model_") + test->name() + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  /// "line:col: what (hint)" of each problem.
  std::vector<std::string> texts() const {
    std::vector<std::string> out;
    for (const config::Problem& problem : problems_.problems()) {
      std::string text = to_string(problem);
      const std::string prefix = folder_.string() + "/";
      if (text.starts_with(prefix)) text = text.substr(text.find(':', prefix.size()) + 1);
      out.push_back(text);
    }
    return out;
  }
  ModelFile yaml(const std::string& text) {
    problems_ = {};
    return load_model_file(write("model.yaml", text), problems_);
  }
  ir::ModelShape json(const std::string& text) {
    problems_ = {};
    return load_huggingface(write("config.json", text), problems_);
  }

  fs::path folder_;
  config::Diagnostics problems_;
};

constexpr const char* kTiny =
    "schema: orrery/model/1\nname: tiny\nsource: test\nlayers: 2\nhidden: 64\nheads: 4\nffn: 96\n"
    "vocabulary: 100\n";

constexpr const char* kLlama =
    R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
 "vocab_size": 128256, "hidden_act": "silu", "max_position_embeddings": 8192,
 "rope_scaling": {"vocab_size": 7, "list": [1, {"hidden_size": "x"}]}, "tie_word_embeddings": false})";

using Texts = std::vector<std::string>;

TEST_F(ModelFiles, HeadDefaultsFollowHeadsAndHidden) {
  const ModelFile file = yaml(kTiny);
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(file.shape.kv_heads, 4);
  EXPECT_EQ(file.shape.head_dim, 16);
  EXPECT_EQ(file.shape.activation, ir::Activation::swiglu);
}

TEST_F(ModelFiles, DumpReadsBackEqual) {
  const ModelFile file = yaml(kTiny);
  const ModelFile again = yaml(config::dump(file));
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(again.shape, file.shape);
  config::Diagnostics problems;
  const ModelFile net = load_model_file("models/library/models/wide_resnet_1b.yaml", problems);
  const ModelFile same = yaml(config::dump(net));
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(build_workload(same, 1, ir::Dtype::fp32).hash,
            build_workload(net, 1, ir::Dtype::fp32).hash);
}

TEST_F(ModelFiles, ImpossibleDimensionsAreProblemsAtTheirKeys) {
  yaml(std::string(kTiny) + "kv_heads: 3\ntop_k: 2\nexpert_imbalance: 0.5\n");
  EXPECT_EQ(texts(), (Texts{"10:8: must be from 0 to 0, is 2",
                            "9:11: 4 heads cannot share 3 key-value heads evenly",
                            "11:19: must be from 1 to 1000"}));
}

TEST_F(ModelFiles, DimensionsThatSayNothingByThemselvesAreNamed) {
  yaml(std::string(kTiny) + "dense_layers: 1\nglobal_interval: 2\nvalue_dim: 16\n");
  EXPECT_EQ(texts(),
            (Texts{"9:15: says nothing without experts", "10:18: says nothing without window",
                   "11:12: says nothing without kv_rank"}));
}

TEST_F(ModelFiles, MissingDimensionsAndUnevenHeadsAreNamed) {
  yaml("schema: orrery/model/1\nname: x\nsource: y\nlayers: 2\nhidden: 64\nheads: 4\nffn: 96\n");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_NE(texts()[0].find("missing key 'vocabulary'"), std::string::npos) << texts()[0];
  std::string text = kTiny;
  text.replace(text.find("heads: 4"), 8, "heads: 5");
  yaml(text);
  EXPECT_EQ(texts(), (Texts{"6:8: hidden 64 is no multiple of 5 heads (give head_dim)"}));
  text.replace(text.find("heads: 5"), 8, "heads: 0");
  yaml(text);
  EXPECT_EQ(texts(), (Texts{"6:8: must be from 1 to 4096, is 0"}));
}

TEST_F(ModelFiles, UnknownKeyGetsASuggestion) {
  yaml(std::string(kTiny) + "vocabulery: 7\n");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_NE(texts()[0].find("did you mean 'vocabulary'"), std::string::npos) << texts()[0];
}

TEST_F(ModelFiles, BlockListMustChainFromEmbeddingToHead) {
  const std::string head = "schema: orrery/model/1\nname: net\nsource: test\nblocks:\n";
  const auto block = [](const std::string& kind, int in, int out) {
    return "  - {kind: " + kind +
           ", forward: 1 GFLOP, parameters: [{name: w, elements: 3}], input: " +
           std::to_string(in) + ", output: " + std::to_string(out) + ", traffic: 1}\n";
  };
  const ModelFile good =
      yaml(head + block("embedding", 0, 5) + block("convolution", 5, 4) + block("head", 4, 0));
  EXPECT_EQ(texts(), Texts{});
  const Workload w = build_workload(good, 1, ir::Dtype::fp32);
  EXPECT_EQ(w.blocks[0].output_bytes.value, 20);
  EXPECT_EQ(parameters(w), 9);
  EXPECT_NE(w.hash, build_workload(good, 1, ir::Dtype::fp16).hash);
  yaml(head + block("embedding", 0, 5) + block("convolution", 6, 4) + block("head", 4, 0));
  EXPECT_EQ(texts(), (Texts{"5:3: run 1 takes 6 elements, the one before gives 5"}));
  yaml(head + block("convolution", 0, 5) + block("convolution", 5, 4) + block("head", 4, 0));
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_NE(texts()[0].find("the first block must be one embedding"), std::string::npos);
}

TEST_F(ModelFiles, HuggingFaceLlamaBecomesItsShape) {
  const ir::ModelShape shape = json(kLlama);
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(shape.layers, 32);
  EXPECT_EQ(shape.hidden, 4096);
  EXPECT_EQ(shape.heads, 32);
  EXPECT_EQ(shape.kv_heads, 8);
  EXPECT_EQ(shape.head_dim, 128);
  EXPECT_EQ(shape.positions, 0);
  EXPECT_EQ(parameters(build_workload(shape, 8, ir::Dtype::bf16)), 8030261248);  // Llama 3 8B
}

TEST_F(ModelFiles, HuggingFaceMixtralHasItsPublishedSize) {
  const ir::ModelShape shape = json(
      R"({"model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
 "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000,
 "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": null})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(parameters(build_workload(shape, 8, ir::Dtype::bf16)), 46702792704);  // Mixtral 8x7B
}

TEST_F(ModelFiles, HuggingFaceModelsOfTodayHaveTheirPublishedSizes) {
  const auto size = [&](const std::string& text) {
    const ir::ModelShape shape = json(text);
    EXPECT_EQ(texts(), Texts{});
    return static_cast<double>(parameters(build_workload(shape, 8, ir::Dtype::bf16)));
  };
  EXPECT_NEAR(size(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
 "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32, "head_dim": 128,
 "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
 "decoder_sparse_step": 1, "mlp_only_layers": []})"),
              30.53e9, 0.01e9);
  EXPECT_NEAR(size(R"({"model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880,
 "num_hidden_layers": 36, "num_attention_heads": 64, "head_dim": 64, "num_key_value_heads": 8,
 "vocab_size": 201088, "num_local_experts": 128, "num_experts_per_tok": 4})"),
              116.8e9, 0.5e9);
  EXPECT_NEAR(size(R"({"model_type": "bloom", "n_layer": 70, "n_head": 112, "hidden_size": 14336,
 "vocab_size": 250880})"),
              176.25e9, 0.01e9);
  EXPECT_NEAR(size(R"({"model_type": "mpt", "n_layers": 32, "n_heads": 32, "d_model": 4096,
 "expansion_ratio": 4, "vocab_size": 50432, "no_bias": true})"),
              6.65e9, 0.01e9);
  EXPECT_NEAR(size(R"({"model_type": "nemotron", "num_hidden_layers": 96, "hidden_size": 18432,
 "num_attention_heads": 96, "num_key_value_heads": 8, "intermediate_size": 73728,
 "vocab_size": 256000, "hidden_act": "relu2"})"),
              341e9, 1e9);
  // Released weights also count 14,848 biases of the router, one for each of 58 x 256 experts.
  const std::string deepseek = R"({"model_type": "deepseek_v3", "hidden_size": 7168,
 "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61,
 "num_attention_heads": 128, "num_key_value_heads": 128, "vocab_size": 129280, "q_lora_rank": 1536,
 "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
 "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "hidden_act": "silu",
 "first_k_dense_replace": 3, "moe_layer_freq": 1)";
  EXPECT_EQ(size(deepseek + "}"), 671026419200 - 14848);
  EXPECT_NEAR(size(deepseek + R"(, "num_nextn_predict_layers": 1})"), 671e9 + 11.6e9, 0.1e9);
  EXPECT_NEAR(size(R"({"model_type": "llama4", "vision_config": {"hidden_size": 1408},
 "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
 "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
 "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 202048, "num_local_experts": 128,
 "num_experts_per_tok": 1, "interleave_moe_layer_step": 2, "attention_chunk_size": 8192}})"),
              400.7e9, 0.1e9);
}

TEST_F(ModelFiles, HuggingFaceWindowsAreOfEveryLayerButEveryNth) {
  const std::string model = R"({"model_type": "gpt_oss", "hidden_size": 2880,
 "intermediate_size": 2880, "num_hidden_layers": 4, "num_attention_heads": 64, "head_dim": 64,
 "num_key_value_heads": 8, "vocab_size": 201088, "num_local_experts": 128,
 "num_experts_per_tok": 4, "sliding_window": 128,
 "layer_types": )";
  const std::string window = "\"sliding_attention\"", all = "\"full_attention\"";
  const ir::ModelShape shape =
      json(model + "[" + window + "," + all + "," + window + "," + all + "]}");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(shape.window, 128);
  EXPECT_EQ(shape.global_interval, 2);
  const Workload made = build_workload(shape, 1024, ir::Dtype::bf16);
  EXPECT_EQ(made.blocks[1].window, 128);
  EXPECT_EQ(made.blocks[2].window, 0);
  EXPECT_EQ(made.blocks[1].attention_flops, 0.25 * made.blocks[2].attention_flops);
  json(model + "[" + window + "," + all + "," + all + "," + all + "]}");
  EXPECT_EQ(texts(), Texts{"5:2: layer 2 attends to all tokens, unlike every 2. of those before"});
}

TEST_F(ModelFiles, HuggingFaceQwenHasWindowsOnlyIfItSaysSo) {
  const std::string model = R"({"model_type": "qwen2", "hidden_size": 3584,
 "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
 "num_key_value_heads": 4, "vocab_size": 152064, "sliding_window": 4096)";
  EXPECT_EQ(json(model + "}").window, 0);
  EXPECT_EQ(json(model + R"(, "max_window_layers": 28})").window, 0);
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(json(model + R"(, "use_sliding_window": true})").window, 4096);
  std::string mistral = model + "}";
  mistral.replace(mistral.find("qwen2"), 5, "mistral");
  EXPECT_EQ(json(mistral).window, 4096);
  EXPECT_EQ(texts(), Texts{});
}

TEST_F(ModelFiles, HuggingFaceMptSaysHeadsAndPositionsInAttnConfig) {
  const std::string model = R"({"model_type": "mpt", "n_layers": 32, "n_heads": 24, "d_model": 3072,
 "vocab_size": 32768, "max_seq_len": 4096, "no_bias": true, "attn_config": )";
  const ir::ModelShape grouped =
      json(model + R"({"attn_type": "grouped_query_attention", "kv_n_heads": 8, "alibi": true}})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(grouped.kv_heads, 8);
  EXPECT_EQ(grouped.positions, 0);
  const ir::ModelShape single =
      json(model + R"({"attn_type": "multiquery_attention", "alibi": false}})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(single.kv_heads, 1);
  EXPECT_EQ(single.positions, 4096);
  EXPECT_EQ(json(model + R"({"alibi": false, "rope": true}})").positions, 0);
  EXPECT_EQ(json(model + R"({"alibi": false}, "learned_pos_emb": false})").positions, 0);
  EXPECT_EQ(texts(), Texts{});
  json(model + R"({"attn_type": "other"}})");
  EXPECT_EQ(texts(), Texts{"2:77: attention 'other' is not modeled (multihead_attention, "
                           "multiquery_attention, grouped_query_attention)"});
  json(model + "7}");
  EXPECT_EQ(texts(), Texts{"2:61: field 'attn_config' must be an object, is 7"});
}

TEST_F(ModelFiles, HuggingFaceFieldsThatDepartFromTheFamilyCount) {
  const std::string opt = R"({"model_type": "opt", "num_hidden_layers": 2, "hidden_size": 64,
 "ffn_dim": 256, "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64)";
  EXPECT_TRUE(json(opt + "}").biases);
  EXPECT_FALSE(json(opt + R"(, "enable_bias": false})").biases);
  const std::string bloom = R"({"model_type": "bloom", "n_layer": 2, "n_head": 4,
 "hidden_size": 64, "vocab_size": 100)";
  EXPECT_TRUE(json(bloom + "}").tied_embeddings);
  EXPECT_FALSE(json(bloom + R"(, "tie_word_embeddings": false})").tied_embeddings);
  EXPECT_FALSE(json(R"({"model_type": "mpt", "n_layers": 2, "n_heads": 4, "d_model": 64,
 "vocab_size": 100, "tie_word_embeddings": false})")
                   .tied_embeddings);
  const std::string nemotron = R"({"model_type": "nemotron", "num_hidden_layers": 2,
 "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 100)";
  EXPECT_FALSE(json(nemotron + "}").biases);
  EXPECT_TRUE(json(nemotron + R"(, "attention_bias": true, "mlp_bias": true})").biases);
  EXPECT_TRUE(json(R"({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 64,
 "num_attention_heads": 4, "intermediate_size": 256, "vocab_size": 100,
 "max_position_embeddings": 64, "is_decoder": true})")
                  .causal);
  EXPECT_EQ(texts(), Texts{});
}

TEST_F(ModelFiles, HuggingFaceFieldsThatAreNotUnderstoodAreNamed) {
  json(R"({"model_type": "llama4", "vocab_size": 8,
 "text_config": {"model_type": "llama4_text", "hidden_size": 5120, "intermediate_size": 8192,
 "num_hidden_layers": 48, "num_attention_heads": 40, "vocab_size": 202048, "moe_layers": [1, 3],
 "num_local_experts": 128, "num_experts_per_tok": 1}})");
  EXPECT_EQ(texts(), Texts{"3:76: field 'moe_layers' is not modeled: a list of the layers with "
                           "experts"});
  problems_ = {};
  json(R"({"model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144,
 "moe_intermediate_size": 768, "num_hidden_layers": 48, "num_attention_heads": 32,
 "num_key_value_heads": 4, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
 "mlp_only_layers": [0]})");
  ASSERT_EQ(texts().size(), 1U);
  EXPECT_TRUE(texts()[0].starts_with("4:2: field 'mlp_only_layers' is not modeled")) << texts()[0];
}
TEST_F(ModelFiles, HuggingFaceGptFamiliesHaveTheirPublishedSizes) {
  const ir::ModelShape gpt2 = json(
      R"({"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024,
 "vocab_size": 50257, "n_inner": null, "activation_function": "gelu_new"})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(gpt2.activation, ir::Activation::gelu);
  EXPECT_EQ(parameters(build_workload(gpt2, 8, ir::Dtype::fp16)), 124439808);
  const ir::ModelShape opt = json(
      R"({"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 2048, "ffn_dim": 8192,
 "num_attention_heads": 32, "vocab_size": 50272, "max_position_embeddings": 2048,
 "activation_function": "relu", "word_embed_proj_dim": 2048})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(opt.activation, ir::Activation::relu);
  EXPECT_EQ(parameters(build_workload(opt, 8, ir::Dtype::fp16)) + 4096, 1315758080);
  const ir::ModelShape bert = json(
      R"({"model_type": "bert", "num_hidden_layers": 24, "hidden_size": 1024,
 "num_attention_heads": 16, "intermediate_size": 4096, "vocab_size": 30522,
 "max_position_embeddings": 512, "hidden_act": "gelu"})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_FALSE(bert.causal);
  const ir::ModelShape neo = json(
      R"({"model_type": "gpt_neo", "num_layers": 32, "hidden_size": 2560, "num_heads": 20,
 "vocab_size": 50257, "max_position_embeddings": 2048})");
  EXPECT_EQ(texts(), Texts{});
  EXPECT_EQ(neo.ffn, 10240);
}

TEST_F(ModelFiles, HuggingFaceProblemsPointAtTheirFields) {
  std::string text = kLlama;
  text.replace(text.find("4096"), 4, "\"wide\"");
  text.replace(text.find("128256"), 6, "-3");
  json(text);
  EXPECT_EQ(texts(),
            (Texts{"1:25: field 'hidden_size' must be an integer from 1 to 2147483647, is \"wide\"",
                   "3:2: field 'vocab_size' must be an integer from 1 to 2147483647, is -3"}));
  text = kLlama;
  text.replace(text.find("intermediate_size"), 17, "intermediate_sise");
  json(text);
  EXPECT_EQ(texts(), Texts{"1:1: missing field 'intermediate_size'"});
  text = kLlama;
  text.replace(text.find("num_key_value_heads\": 8"), 23, "num_key_value_heads\": 7");
  json(text);
  EXPECT_EQ(texts(), Texts{"2:54: field 'num_key_value_heads': 32 heads cannot share 7 key-value "
                           "heads evenly"});
}

TEST_F(ModelFiles, HuggingFaceTypeIsCheckedWithASuggestion) {
  json(R"({"model_type": "lama"})");
  EXPECT_EQ(texts(), Texts{"1:2: model_type 'lama' is not modeled (did you mean 'llama'?)"});
  json("{}");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_NE(texts()[0].find("missing field 'model_type'"), std::string::npos);
  json(R"({"model_type": "opt", "num_hidden_layers": 24, "hidden_size": 1024, "ffn_dim": 4096,
"num_attention_heads": 16, "vocab_size": 50272, "max_position_embeddings": 2048,
"word_embed_proj_dim": 512})");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_TRUE(texts()[0].starts_with("3:1: embedding width 512 differs")) << texts()[0];
}

TEST_F(ModelFiles, IllFormedJsonHasAPosition) {
  json("{\"a\": 1,\n  \"b\": }");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_TRUE(texts()[0].starts_with("2:8: no JSON: unexpected '}'")) << texts()[0];
  json("");
  EXPECT_EQ(texts().size(), 1u);
  json("[1, 2]");
  ASSERT_EQ(texts().size(), 1u);
  EXPECT_TRUE(texts()[0].starts_with("1:1: expected an object")) << texts()[0];
  json("{\"hidden_size\": 1, \"hidden_size\": 2, \"model_type\": \"llama\"}");
  EXPECT_EQ(texts().front(), "1:20: duplicate field 'hidden_size'");
  json("{\"text_config\": {\"model_type\": \"llama\", \"hidden_size\": 1, \"hidden_size\": 2}}");
  EXPECT_EQ(texts().front(), "1:59: duplicate field 'hidden_size'");
  load_huggingface(folder_.string(), problems_);
  EXPECT_NE(to_string(problems_.problems().back()).find("is a directory"), std::string::npos);
}

TEST_F(ModelFiles, JsonNumbersBeyondDoubleAreProblemsAtTheirPlace) {
  json("{\"model_type\": \"llama\",\n \"hidden_size\": 1e999, \"vocab_size\": 256}");
  EXPECT_EQ(texts(), Texts{"2:17: number 1e999 is out of range"});
}

TEST_F(ModelFiles, EveryTruncationIsAProblemAndNeverACrash) {
  const std::string text = kLlama;
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    json(text.substr(0, cut));
    ASSERT_FALSE(problems_.empty()) << cut;
    const config::Position& at = problems_.problems()[0].at;
    EXPECT_GE(at.line, 1) << cut;
    EXPECT_GE(at.column, 1) << cut;
  }
}

TEST_F(ModelFiles, NamesResolveToLibraryYamlOrJson) {
  Library library;
  library.models["tiny"] = write("tiny.yaml", kTiny);
  const config::Position asked{(folder_ / "manifest.yaml").string(), 3, 8};
  EXPECT_EQ(load_model("tiny", library, asked, problems_).name, "tiny");
  EXPECT_EQ(load_model(library.models["tiny"], library, asked, problems_).hidden, 64);
  write("hf/config.json", kLlama);
  EXPECT_EQ(load_model("hf/config.json", library, asked, problems_).hidden, 4096);
  EXPECT_EQ(texts(), Texts{});
  load_model("tinny", library, asked, problems_);
  load_model("nowhere/config.json", library, asked, problems_);
  EXPECT_EQ(texts(), (Texts{"3:8: unknown model 'tinny' (did you mean 'tiny'?)",
                            "3:8: no such model file 'nowhere/config.json'"}));
  problems_ = {};
  load_model("quite different", library, asked, problems_);
  EXPECT_EQ(texts(), Texts{"3:8: unknown model 'quite different' (models: tiny)"});
}

TEST_F(ModelFiles, WorkloadNeedsPositionsForTheJobsSequences) {
  Library library;
  library.models["tiny"] = write("tiny.yaml", std::string(kTiny) + "positions: 512\n");
  Job job;
  job.sequence_length = 512;
  EXPECT_EQ(load_workload("tiny", job, library, {"m.yaml", 1, 2}, problems_).size(), 4);
  job.sequence_length = 513;
  load_workload("tiny", job, library, {"m.yaml", 1, 2}, problems_);
  EXPECT_EQ(texts(),
            Texts{"m.yaml:1:2: model 'tiny' has 512 learned positions, the job's sequences "
                  "have 513 tokens"});
}

}  // namespace
}  // namespace orrery::models::model_file_test
