#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "models/config/document.h"
#include "models/spec/library.h"
#include "models/spec/profile_yaml.h"

namespace orrery::models::layer_profile_test {
namespace {

const char* const kLayers = R"(schema: orrery/profile/1
name: measured
model_layers:
  - model: GPT3
    parameter_bytes: [393216000, 202383360, 393220096]
    optimizer_ms: 39.308977127075195
    batch_generator_ms: 0.9145021438598633
    profiles:
      - gpu: A100
        tensor_parallel: 2
        layer_ms: [0.2892017364501953, 29.507994651794434, 0.4100799560546875]
        layer_mb: [7820, 4146, 12132]
        forward_backward_ms: 292.7964687347412
    provenance: run 7
)";

ir::Profile read(const std::string& text, config::Diagnostics& problems) {
  return config::load_text<ir::Profile>(text, "p.yaml", problems);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
}

TEST(LayerProfileYaml, ReadsAndWritesTheSameBits) {
  config::Diagnostics problems;
  const ir::Profile profile = read(kLayers, problems);
  ASSERT_TRUE(problems.empty());
  const ir::ModelLayers& model = profile.model_layers.at(0);
  EXPECT_EQ(model.profiles.at(0).layer_ms,
            (std::vector<double>{0.2892017364501953, 29.507994651794434, 0.4100799560546875}));
  EXPECT_EQ(model.profiles[0].micro_batch_size, 1);
  EXPECT_EQ(model.optimizer_ms, 39.308977127075195);
  EXPECT_EQ(dump_profile(profile), kLayers);
}

TEST(LayerProfileYaml, EveryLayerNeedsATimeAndAMemory) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {replaced(kLayers, "layer_mb: [7820, 4146, 12132]", "layer_mb: [7820, 4146]"),
       "p.yaml:9:7: profile 0 has 3 times and 2 memory sizes for 3 layers"},
      {replaced(kLayers, "4146", "-1"), "p.yaml:12:19: layer 1 has -1 (must be zero or more)"},
      {replaced(kLayers, "393216000, 202383360, 393220096", ""), "p.yaml:5:22: the list is empty"},
  };
  for (const auto& [text, expected] : cases) {
    config::Diagnostics problems;
    read(text, problems);
    ASSERT_EQ(problems.problems().size(), 1u) << expected;
    EXPECT_EQ(config::to_string(problems.problems()[0]), expected);
  }
}

}  // namespace
}  // namespace orrery::models::layer_profile_test
