// The models of models/library: they load, say where they come from, and have their published
// sizes.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "models/spec/model_file.h"

namespace orrery::models::library_models_test {
namespace {

ModelFile load(const std::string& name) {
  config::Diagnostics problems;
  ModelFile file = load_model_file("models/library/models/" + name + ".yaml", problems);
  for (const config::Problem& problem : problems.problems()) ADD_FAILURE() << to_string(problem);
  return file;
}

std::int64_t size_of(const std::string& name) {
  return parameters(build_workload(load(name), 512, ir::Dtype::bf16));
}

TEST(LibraryModels, AllLoadWithASourceUnderTheirFileName) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("models/library/models")) {
    ASSERT_EQ(entry.path().extension(), ".yaml") << entry.path();
    const std::string name = entry.path().stem().string();
    const ModelFile file = load(name);
    EXPECT_EQ(file.shape.name, name);
    EXPECT_FALSE(file.source.empty()) << name;
    const Workload w = build_workload(file, 512, ir::Dtype::fp16);
    EXPECT_GE(w.size(), 3) << name;
    EXPECT_GT(model_flops(w).value, 0) << name;
    ++count;
  }
  EXPECT_GE(count, 30);
}

TEST(LibraryModels, ReleasedLlamasAndMixtralHaveTheirExactParameterCounts) {
  EXPECT_EQ(size_of("llama_7b"), 6738415616);
  EXPECT_EQ(size_of("llama_13b"), 13015864320);
  EXPECT_EQ(size_of("llama_30b"), 32528943616);
  EXPECT_EQ(size_of("llama_65b"), 65285660672);
  EXPECT_EQ(size_of("llama2_7b"), 6738415616);
  EXPECT_EQ(size_of("llama2_13b"), 13015864320);
  EXPECT_EQ(size_of("llama2_70b"), 68976648192);
  EXPECT_EQ(size_of("llama3_8b"), 8030261248);
  EXPECT_EQ(size_of("llama3_70b"), 70553706496);
  EXPECT_EQ(size_of("llama3_405b"), 405853388800);
  EXPECT_EQ(size_of("mixtral_8x7b"), 46702792704);
}

TEST(LibraryModels, OtherSizesAreWithinTheirPublishedRounding) {
  struct Published {
    const char* name;
    double low, high;
  };
  for (const Published& p : std::vector<Published>{{"gpt3_125m", 124e6, 126e6},
                                                   {"gpt3_350m", 345e6, 357e6},
                                                   {"gpt3_760m", 755e6, 765e6},
                                                   {"gpt3_1.3b", 1.29e9, 1.33e9},
                                                   {"gpt3_2.7b", 2.64e9, 2.71e9},
                                                   {"gpt3_6.7b", 6.6e9, 6.75e9},
                                                   {"gpt3_13b", 12.8e9, 13.1e9},
                                                   {"gpt3_175b", 174.5e9, 175.3e9},
                                                   {"bert_large", 333e6, 341e6},
                                                   {"gpt_neo_2.7b", 2.651e9, 2.652e9},
                                                   {"opt_175b", 174.5e9, 175.5e9},
                                                   {"bloom_176b", 176.24e9, 176.25e9},
                                                   {"mpt_7b", 6.64e9, 6.66e9},
                                                   {"mpt_30b", 29.95e9, 29.96e9},
                                                   {"mixtral_8x22b", 140.5e9, 141.5e9},
                                                   {"qwen3_8b", 8.18e9, 8.2e9},
                                                   {"qwen3_32b", 32.7e9, 32.8e9},
                                                   {"qwen3_30b_a3b", 30.5e9, 30.6e9},
                                                   {"qwen3_235b_a22b", 234.5e9, 235.5e9},
                                                   {"gpt_oss_120b", 116e9, 117e9},
                                                   {"deepseek_v3", 682e9, 685e9},
                                                   {"llama4_maverick", 400e9, 401e9},
                                                   {"llama4_scout", 107e9, 109e9},
                                                   {"grok1", 313.5e9, 316e9},
                                                   {"nemotron4_15b", 15e9, 16e9},
                                                   {"nemotron4_340b", 339e9, 342e9},
                                                   {"hetu_32b", 32e9, 33e9},
                                                   {"metis_gpt_2.6b", 2.6e9, 2.7e9},
                                                   {"metis_gpt_15b", 15e9, 16e9},
                                                   {"gshard_moe_1.3b", 1.25e9, 1.35e9},
                                                   {"gshard_moe_2.4b", 2.2e9, 2.45e9},
                                                   {"gshard_moe_10b", 9.5e9, 10.5e9},
                                                   {"gshard_moe_27b", 26e9, 27.5e9}}) {
    const auto size = static_cast<double>(size_of(p.name));
    EXPECT_GE(size, p.low) << p.name;
    EXPECT_LE(size, p.high) << p.name;
  }
}

// Layers of the profiled GPT of 24 x 1024 in the profiles that Sailor publishes: 12,596,224
// parameters of a transformer layer at tensor-parallel degree 1.
TEST(LibraryModels, OptLayerHasTheParametersThatSailorMeasured) {
  const Workload w = build_workload(load("opt_350m"), 2048, ir::Dtype::fp32);
  EXPECT_EQ(parameters(w.block(w.first_layer())), 12596224);
}

TEST(LibraryModels, WideResNetsMatchMetisTable2) {
  const std::vector<std::pair<const char*, double>> published = {
      {"wide_resnet_250m", 0.25e9}, {"wide_resnet_500m", 0.5e9}, {"wide_resnet_1b", 1e9},
      {"wide_resnet_2b", 2e9},      {"wide_resnet_4b", 4e9},     {"wide_resnet_6.8b", 6.8e9}};
  for (const auto& [name, size] : published) {
    const Workload w = build_workload(load(name), 1, ir::Dtype::fp32);
    EXPECT_EQ(w.size(), 18) << name;  // stem, 16 bottlenecks, classifier
    EXPECT_NEAR(static_cast<double>(parameters(w)) / size, 1, 0.02) << name;
  }
}

// Metis 5.2.1: the first layers of Wide-ResNet are cheap in parameters, not in time; what the
// activations weigh falls from stage to stage while the parameters grow fourfold.
TEST(LibraryModels, WideResNetStagesTradeActivationsForParameters) {
  const Workload w = build_workload(load("wide_resnet_1b"), 1, ir::Dtype::fp32);
  const Block& early = w.blocks[2];
  const Block& late = w.blocks[16];
  EXPECT_EQ(early.output_bytes.value / late.output_bytes.value, 8);
  EXPECT_NEAR(static_cast<double>(parameters(late)) / static_cast<double>(parameters(early)), 64,
              1);
  EXPECT_NEAR(early.forward_flops / late.forward_flops, 1, 1e-9);
}

}  // namespace
}  // namespace orrery::models::library_models_test
