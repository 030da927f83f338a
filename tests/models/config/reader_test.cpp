#include <gtest/gtest.h>

#include "tests/models/config/sample.h"

namespace {

using namespace orrery;
using namespace orrery::config;

/// All problems of reading `text` as a T, one a line, in file order.
template <class T>
std::string problems_of(const std::string& text) {
  Diagnostics d;
  load_text<T>(text, "c.yaml", d);
  try {
    d.raise();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

std::string cluster_problems(const std::string& body) {
  return problems_of<sample::Cluster>("schema: orrery/sample/2\n" + body);
}

template <class T>
struct One {
  T value{};
};
template <class T>
void describe(Visitor& v, One<T>& one) {
  v.required("k", one.value, "the value");
}
template <class T>
std::string one_problem(const std::string& yaml) {
  return problems_of<One<T>>("k: " + yaml + "\n");
}

TEST(Reader, ReadsEveryFieldType) {
  Diagnostics d;
  const auto c = load_text<sample::Cluster>(sample::kCluster, "c.yaml", d);
  d.raise();
  EXPECT_EQ(c.title, "two nodes: #1");
  ASSERT_EQ(c.nodes.size(), 2U);
  EXPECT_EQ(c.nodes[0].name.value, "n0");
  EXPECT_EQ(to_string(c.nodes[0].name.at), "c.yaml:5:11");
  ASSERT_EQ(c.nodes[0].gpus.size(), 2U);
  EXPECT_EQ(c.nodes[0].gpus[0].name, "A100");
  EXPECT_EQ(c.nodes[0].gpus[0].count, 2);
  EXPECT_EQ(c.nodes[0].gpus[1].name, "V100");
  EXPECT_EQ(c.nodes[0].gpus[1].count, 4);
  EXPECT_EQ(c.nodes[1].nic->bandwidth.value, 50e9);  // through an alias
  EXPECT_EQ(c.nodes[1].nic->latency.value, 2e-6);
  EXPECT_EQ(c.links.at("nvlink").latency.value, 5e-6);  // the member initializer
  EXPECT_EQ(c.links.at("odd: name").bandwidth.value, 0x1p30);
  EXPECT_EQ(c.schedule, sample::Schedule::one_f_one_b);
  EXPECT_EQ(c.tokens, 1000000000);
  EXPECT_EQ(c.efficiency, 0.45);
  EXPECT_TRUE(c.recompute);
  EXPECT_FALSE(c.jitter);
  EXPECT_EQ(c.devices, (std::vector<DeviceId>{{0}, {3}}));
  EXPECT_EQ(c.memory.value, 24e9);
  EXPECT_EQ(c.budget.value, 20);
  EXPECT_EQ(c.price.value, 2.5 / 3600);
  EXPECT_EQ(to_flow(c.overrides), "{job.batch: [1, 2, {a: \"3\", b: null}], x: null}");
  ASSERT_EQ(c.tree.children.size(), 2U);
  EXPECT_EQ(c.tree.children[1].children[0].weight, 3);
}

TEST(Reader, AbsentOptionalKeysKeepTheirInitializers) {
  Diagnostics d;
  const auto c = load_text<sample::Cluster>("schema: orrery/sample/2\nnodes: []\n", "c.yaml", d);
  d.raise();
  EXPECT_EQ(c.title, "unnamed");
  EXPECT_EQ(c.schedule, sample::Schedule::gpipe);
  EXPECT_EQ(c.memory.value, 80 * 0x1p30);
}

TEST(Reader, AllProblemsOfAFileAreReportedAtOnce) {
  EXPECT_EQ(cluster_problems("nodes:\n"
                             "  - name: a\n"
                             "    gpu: [H100]\n"
                             "  - name: b\n"
                             "    gpus: [H100*99]\n"
                             "    nic: {bandwidth: 400, latencie: 1 us}\n"
                             "links: {x: {}, y: 3, z: {bandwidth: 0 GB/s}}\n"
                             "schedule: gpip\n"
                             "tokens: 1.5\n"
                             "tokens: 2\n"
                             "memory: 24 Gb\n"),
            "c.yaml:3:5: missing key 'gpus' (its GPUs)\n"
            "c.yaml:4:5: unknown key 'gpu' (did you mean 'gpus'?)\n"
            "c.yaml:6:12: integer '99' is out of range\n"
            "c.yaml:7:22: missing unit after '400' (units: B/s, KB/s, KiB/s, MB/s, MiB/s, GB/s, "
            "GiB/s, TB/s, TiB/s, bps, Kbps, Mbps, Gbps, Tbps)\n"
            "c.yaml:7:27: unknown key 'latencie' (did you mean 'latency'?)\n"
            "c.yaml:8:12: missing key 'bandwidth' (per direction)\n"
            "c.yaml:8:19: expected a map, got '3'\n"
            "c.yaml:8:37: must be positive, is 0 B/s\n"
            "c.yaml:9:11: unknown value 'gpip' (did you mean 'gpipe'? one of: gpipe, 1f1b, "
            "interleaved)\n"
            "c.yaml:10:9: expected an integer, got '1.5'\n"
            "c.yaml:11:1: duplicate key 'tokens' (first at line 10)\n"
            "c.yaml:12:9: unknown unit 'Gb' (units: B, KB, KiB, MB, MiB, GB, GiB, TB, TiB, PB, "
            "PiB)");
}

TEST(Reader, UnknownKeysWithoutANeighborListTheKnownOnes) {
  EXPECT_EQ(problems_of<sample::Tree>("color: red\n"),
            "c.yaml:1:1: unknown key 'color' (known keys: weight, children)");
}

TEST(Reader, OnlyTheFirstThousandUnknownKeysGetASuggestion) {
  std::string text;
  for (int i = 0; i < 1100; ++i) text += "weigth" + std::to_string(i) + ": 1\n";
  Diagnostics d;
  load_text<sample::Tree>(text, "c.yaml", d);
  ASSERT_EQ(d.problems().size(), 1100u);
  EXPECT_EQ(d.problems()[0].hint, "did you mean 'weight'?");
  EXPECT_NE(d.problems()[999].hint, "");
  EXPECT_EQ(d.problems()[1000].hint, "");
  EXPECT_EQ(d.problems()[1099].what, "unknown key 'weigth1099'");
}

TEST(Reader, WrongKindsAreNamed) {
  EXPECT_EQ(one_problem<int>("[1]"), "c.yaml:1:4: expected an integer, got a list");
  EXPECT_EQ(one_problem<int>("{a: 1}"), "c.yaml:1:4: expected an integer, got a map");
  EXPECT_EQ(one_problem<int>(""), "c.yaml:1:1: expected an integer, got nothing");
  EXPECT_EQ(one_problem<int>("~"), "c.yaml:1:4: expected an integer, got nothing");
  EXPECT_EQ(one_problem<int>("\"8\""),
            "c.yaml:1:4: expected an integer, got the string '8' (remove the quotes)");
  EXPECT_EQ(one_problem<int>("eight"), "c.yaml:1:4: expected an integer, got 'eight'");
  EXPECT_EQ(one_problem<int>("3000000000"),
            "c.yaml:1:4: integer '3000000000' is out of range (-2147483648 to 2147483647)");
  EXPECT_EQ(one_problem<std::int64_t>("99999999999999999999"),
            "c.yaml:1:4: integer '99999999999999999999' is out of range (-9223372036854775808 to "
            "9223372036854775807)");
  EXPECT_EQ(one_problem<double>(".nan"), "c.yaml:1:4: expected a number, got '.nan'");
  EXPECT_EQ(one_problem<double>("1e999"), "c.yaml:1:4: number '1e999' is out of range");
  EXPECT_EQ(one_problem<bool>("maybe"), "c.yaml:1:4: expected true or false, got 'maybe'");
  EXPECT_EQ(one_problem<std::string>("[a]"), "c.yaml:1:4: expected a string, got a list");
  EXPECT_EQ(one_problem<std::vector<int>>("8"),
            "c.yaml:1:4: expected a list, got '8' (write [a, b], or one line '- a' for each item)");
  EXPECT_EQ(one_problem<std::vector<int>>("{a: 1}"),
            "c.yaml:1:4: expected a list, got a map (write [a, b], or one line '- a' for each "
            "item)");
  EXPECT_EQ((one_problem<std::map<std::string, int>>("[1]")),
            "c.yaml:1:4: expected a map, got a list (write one line 'name: value' for each entry)");
  EXPECT_EQ(one_problem<sample::Tree>("[1]"), "c.yaml:1:4: expected a map, got a list");
  EXPECT_EQ(one_problem<sample::Gpu>("[1]"), "c.yaml:1:4: expected a string or a map, got a list");
  EXPECT_EQ(one_problem<sample::Gpu>("'*2'"), "c.yaml:1:4: expected 'name' or 'name*count'");
  EXPECT_EQ(one_problem<sample::Schedule>("[gpipe]"),
            "c.yaml:1:4: expected a name, got a list (one of: gpipe, 1f1b, interleaved)");
  EXPECT_EQ(one_problem<sample::Schedule>("color"),
            "c.yaml:1:4: unknown value 'color' (one of: gpipe, 1f1b, interleaved)");
  EXPECT_EQ(one_problem<Seconds>("[1 s]"),
            "c.yaml:1:4: expected a number with a unit, got a list (units: ns, us, ms, s, min, h, "
            "day, days)");
  EXPECT_EQ(one_problem<std::vector<int>>("[1, x, 2, y]"),
            "c.yaml:1:8: expected an integer, got 'x'\nc.yaml:1:14: expected an integer, got 'y'");
  EXPECT_EQ(problems_of<sample::Tree>("- 1\n"), "c.yaml:1:1: expected a map, got a list");
  EXPECT_EQ(problems_of<sample::Tree>("word\n"), "c.yaml:1:1: expected a map, got 'word'");
}

TEST(Reader, SchemaKindAndVersionAreChecked) {
  EXPECT_EQ(problems_of<sample::Cluster>("nodes: []\n"),
            "c.yaml:1:1: missing key 'schema' (add 'schema: orrery/sample/2')");
  EXPECT_EQ(problems_of<sample::Cluster>("schema: orrery/sample/3\nfuture: 1\n"),
            "c.yaml:1:9: unsupported schema version 'orrery/sample/3' ('orrery/sample/2' is needed "
            "here)");
  EXPECT_EQ(problems_of<sample::Cluster>("layers: 3\nschema: orrery/model/1\n"),
            "c.yaml:2:9: wrong schema 'orrery/model/1' ('orrery/sample/2' is needed here)");
  EXPECT_EQ(problems_of<sample::Cluster>("schema: [1]\n"),
            "c.yaml:1:9: wrong schema a list ('orrery/sample/2' is needed here)");
}

TEST(Reader, SemanticProblemsStandAtTheirKeyAndDoNotFollowOthers) {
  EXPECT_EQ(cluster_problems("nodes: [{name: a, gpus: []}]\n"),
            "c.yaml:2:25: a node needs a GPU (add one)");
  EXPECT_EQ(cluster_problems("nodes: [{name: a}]\n"), "c.yaml:2:9: missing key 'gpus' (its GPUs)");
  EXPECT_EQ(cluster_problems("nodes: []\ndevices: [1, 2, 3, 4, 5]\n"),
            "c.yaml:1:1: too many devices (at most 4)");
  EXPECT_EQ(cluster_problems("nodes: []\ndevices: [1, 2, 3, 4, 5]\ntokens: x\n"),
            "c.yaml:4:9: expected an integer, got 'x'");
  EXPECT_EQ(problems_of<sample::Gpu>("name: a\ncount: 17\n"),
            "c.yaml:2:8: must be from 1 to 16, is 17");
}

struct Observed {
  bool given = false, good = false;
  std::string at;
  int k = 0;
};
void describe(Visitor& v, Observed& o) {
  v.required("k", o.k, "");
  if (!v.reading()) return;
  o.given = v.given("k");
  o.good = v.good();
  o.at = to_string(v.at("k")) + " " + to_string(v.at("absent")) + " " + to_string(v.at(""));
  v.at_least("k", o.k, 2);
  v.not_negative("k", o.k);
}

TEST(Reader, DescribeFunctionsCanAskWhatWasGivenAndWhere) {
  Diagnostics d;
  const auto o = load_text<Observed>("\n  k: -1\n", "c.yaml", d);
  EXPECT_TRUE(o.given);
  EXPECT_TRUE(o.good);
  EXPECT_EQ(o.at, "c.yaml:2:6 c.yaml:2:3 c.yaml:2:3");
  ASSERT_EQ(d.problems().size(), 1U) << "the second check of a key must stay silent";
  EXPECT_EQ(to_string(d.problems()[0]), "c.yaml:2:6: must be at least 2, is -1");
  const auto bad = load_text<Observed>("x: 1\n", "c.yaml", d);
  EXPECT_FALSE(bad.given);
  EXPECT_FALSE(bad.good);
}

TEST(Reader, ValuesAreDescribedLaterWithTheirPositions) {
  Diagnostics d;
  Value doc = load_value_text("job:\n  weight: 1\n  children: [{weight: 5}]\n", "m.yaml", d);
  doc = merge(std::move(doc), "job.children.0.weight", Value::scalar("x", {"sweep.yaml", 4, 2}), d);
  d.raise();
  sample::Tree tree;
  EXPECT_FALSE(describe_value(*doc.find("job"), tree, d));
  ASSERT_EQ(d.problems().size(), 1U);
  EXPECT_EQ(to_string(d.problems()[0]), "sweep.yaml:4:2: expected an integer, got 'x'");
  EXPECT_EQ(tree.weight, 1);
  std::vector<int> list;
  Diagnostics none;
  EXPECT_TRUE(describe_value(load_value_text("[1, 2]", "x", none), list, none));
  EXPECT_EQ(list, (std::vector<int>{1, 2}));
}

}  // namespace
