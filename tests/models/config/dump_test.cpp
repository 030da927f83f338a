#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "tests/models/config/sample.h"

namespace {

using namespace orrery;
using namespace orrery::config;

template <class T>
T load(const std::string& text) {
  Diagnostics d;
  T out = load_text<T>(text, "dump.yaml", d);
  d.raise();
  return out;
}

TEST(Dump, ShowsEveryFieldWithDefaults) {
  sample::Cluster c;
  c.nodes.push_back({{"n0", {}}, {{"A100", 2}}, sample::Link{Seconds{1e-6}, BytesPerSecond{25e9}}});
  EXPECT_EQ(dump(c),
            "schema: orrery/sample/2\n"
            "title: unnamed\n"
            "nodes:\n"
            "  - name: n0\n"
            "    gpus:\n"
            "      - name: A100\n"
            "        count: 2\n"
            "    nic:\n"
            "      latency: 1 us\n"
            "      bandwidth: 25 GB/s\n"
            "links: {}\n"
            "schedule: gpipe\n"
            "tokens: 1024\n"
            "efficiency: 0.5\n"
            "recompute: false\n"
            "jitter: null\n"
            "devices: []\n"
            "memory: 80 GiB\n"
            "peak: 312 TFLOPS\n"
            "work: 1 PFLOP\n"
            "budget: 100 USD\n"
            "price: 1.5 USD/h\n"
            "overrides: null\n"
            "tree:\n"
            "  weight: 0\n"
            "  children: []\n");
}

TEST(Dump, IsReadBackEqual) {
  const std::string once = dump(load<sample::Cluster>(sample::kCluster));
  EXPECT_EQ(dump(load<sample::Cluster>(once)), once);
}

/// Random values of every field, awkward ones included.
class RandomConfig {
 public:
  explicit RandomConfig(unsigned seed) : random_(seed) {}

  sample::Cluster cluster() {
    sample::Cluster c;
    c.title = text();
    for (int i = below(3); i > 0; --i) {
      sample::Node node{{text(), {}}, {{text(), 1 + below(16)}}, {}};
      if (below(2) == 0) node.nic = link();
      c.nodes.push_back(node);
    }
    for (int i = below(3); i > 0; --i) c.links[text()] = link();
    c.schedule = static_cast<sample::Schedule>(below(3));
    c.tokens = static_cast<std::int64_t>(random_());
    c.efficiency = number();
    c.recompute = below(2) == 0;
    if (below(2) == 0) c.jitter = number();
    for (int i = below(5); i > 0; --i) c.devices.push_back({below(100)});
    c.memory = {number()};
    c.peak = {number()};
    c.work = {number()};
    c.budget = {number()};
    c.price = {number()};
    c.tree = tree(3);
    return c;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint64_t>(n)); }
  double number() {
    const double mantissa = static_cast<double>(random_() >> 11) * 0x1p-53 - 0.5;
    return below(2) == 0 ? below(1000) : std::ldexp(mantissa, below(200) - 100);
  }
  std::string text() {
    static const std::string kCharacters = "aZ0 :#-'\"\\\n\t{}[],&*!|>%@`~?=<$.\x01/_";
    std::string out;
    for (int i = below(12); i > 0; --i)
      out += below(8) == 0 ? "\xE2\x82\xAC"
                           : std::string(1, kCharacters[random_() % kCharacters.size()]);
    return out;
  }
  sample::Link link() { return {Seconds{number()}, BytesPerSecond{1 + std::abs(number())}}; }
  sample::Tree tree(int depth) {
    sample::Tree t;
    t.weight = static_cast<int>(random_());
    for (int i = depth > 0 ? below(3) : 0; i > 0; --i) t.children.push_back(tree(depth - 1));
    return t;
  }
  std::mt19937_64 random_;
};

TEST(Dump, RandomValuesAreReadBackEqual) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    const sample::Cluster c = RandomConfig(seed).cluster();
    const std::string once = dump(c);
    Diagnostics d;
    const auto again = load_text<sample::Cluster>(once, "dump.yaml", d);
    ASSERT_TRUE(d.empty()) << "seed " << seed << ": " << to_string(d.problems()[0]) << "\n" << once;
    ASSERT_EQ(dump(again), once) << "seed " << seed;
    ASSERT_EQ(again.title, c.title) << "seed " << seed;
    ASSERT_EQ(again.efficiency, c.efficiency) << "seed " << seed;
    ASSERT_EQ(again.price.value, c.price.value) << "seed " << seed;
    ASSERT_EQ(again.tokens, c.tokens) << "seed " << seed;
  }
}

TEST(JsonSchema, DescribesEveryKeyForEditors) {
  const auto schema = nlohmann::json::parse(json_schema<sample::Cluster>("Sample"));
  EXPECT_EQ(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
  EXPECT_EQ(schema["title"], "Sample");
  EXPECT_EQ(schema["description"], "A cluster for tests.");
  EXPECT_EQ(schema["type"], "object");
  EXPECT_EQ(schema["additionalProperties"], false);
  EXPECT_EQ(schema["required"], (nlohmann::json{"schema", "nodes"}));
  const auto& p = schema["properties"];
  const auto dumped = to_value(sample::Cluster{});
  for (const Value::Entry& entry : dumped.entries) EXPECT_TRUE(p.contains(entry.key)) << entry.key;
  EXPECT_EQ(p.size(), dumped.entries.size());
  EXPECT_EQ(p["schema"]["const"], "orrery/sample/2");
  EXPECT_EQ(p["title"]["type"], "string");
  EXPECT_EQ(p["title"]["default"], "unnamed");
  EXPECT_EQ(p["title"]["description"], "for figures");
  EXPECT_EQ(p["schedule"]["enum"], (nlohmann::json{"gpipe", "1f1b", "interleaved"}));
  EXPECT_EQ(p["tokens"]["type"], "integer");
  EXPECT_EQ(p["tokens"]["default"], 1024);
  EXPECT_EQ(p["efficiency"]["default"], 0.5);
  EXPECT_EQ(p["recompute"]["default"], false);
  EXPECT_EQ(p["jitter"]["anyOf"][0]["type"], "number");
  EXPECT_EQ(p["jitter"]["anyOf"][1]["type"], "null");
  EXPECT_EQ(p["nodes"]["type"], "array");
  const auto& gpu = p["nodes"]["items"]["properties"]["gpus"]["items"]["anyOf"];
  EXPECT_EQ(gpu[0]["type"], "string");
  EXPECT_EQ(gpu[1]["properties"]["count"]["default"], 1);
  EXPECT_EQ(p["links"]["additionalProperties"]["required"], nlohmann::json::array({"bandwidth"}));
  EXPECT_EQ(p["tree"]["properties"]["children"]["items"]["type"], "object");
}

TEST(JsonSchema, QuantityPatternsAcceptWhatTheReaderAccepts) {
  const auto schema = nlohmann::json::parse(json_schema<sample::Cluster>("Sample"));
  const auto matches = [&](const char* key, const char* text) {
    const std::string pattern = schema["properties"][key]["pattern"];
    return std::regex_match(text, std::regex(pattern));
  };
  EXPECT_TRUE(matches("memory", "80 GiB"));
  EXPECT_TRUE(matches("memory", "1.5e3MB"));
  EXPECT_FALSE(matches("memory", "80"));
  EXPECT_FALSE(matches("memory", "80 Gb"));
  EXPECT_TRUE(matches("budget", "$20"));
  EXPECT_TRUE(matches("budget", "20 USD"));
  EXPECT_TRUE(matches("price", "$2.5/h"));
  EXPECT_TRUE(matches("price", "2.5 $/h"));
  EXPECT_FALSE(matches("price", "2.5 $"));
}

TEST(ReferencePage, ListsKeyTypeDefaultAndMeaning) {
  const std::string page = reference_page<sample::Cluster>("Sample file");
  for (const char* line :
       {"# Sample file\n\nA cluster for tests.\n\n| key | type | default | meaning |\n",
        "| `schema` | `orrery/sample/2` | required | kind and version of the file |\n",
        "| `nodes` | list of: Node | required | all nodes |\n",
        "| `schedule` | one of `gpipe`, `1f1b`, `interleaved` | `gpipe` | pipeline schedule |\n",
        "| `jitter` | number, or `null` | `null` | relative deviation |\n",
        "| `gpus` | list of: string or Gpu | required | its GPUs |\n",
        "| `links` | map from name to: Link | `{}` | link classes by name |\n",
        "\n## Link\n\nOne class of links.\n", "| `weight` | integer | `0` | a \\| b |\n",
        "| `children` | list of: Tree | `[]` | below |\n"})
    EXPECT_NE(page.find(line), std::string::npos) << line << "is not in\n" << page;
  EXPECT_EQ(page.find("## Link"), page.rfind("## Link")) << "each struct is described once";
}

}  // namespace
