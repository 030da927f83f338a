#include "models/config/value.h"

#include <gtest/gtest.h>

#include "models/config/document.h"

namespace {

using namespace orrery::config;

Value parse(const std::string& text) {
  Diagnostics d;
  Value value = load_value_text(text, "v.yaml", d);
  d.raise();
  return value;
}

std::string merged(const std::string& base, const std::string& path, const Value& value) {
  Diagnostics d;
  const std::string out = to_flow(merge(parse(base), path, value, d));
  return d.empty() ? out : out + " | " + to_string(d.problems().at(0));
}

TEST(Merge, SetsReplacesAndCreates) {
  const Value eight = Value::scalar("8");
  EXPECT_EQ(merged("{job: {b: 1, c: 2}}", "job.b", eight), "{job: {b: 8, c: 2}}");
  EXPECT_EQ(merged("{job: {b: 1}}", "job", eight), "{job: 8}");
  EXPECT_EQ(merged("{job: {b: 1}}", "job.x.y", eight), "{job: {b: 1, x: {y: 8}}}");
  EXPECT_EQ(merged("{job: }", "job.x", eight), "{job: {x: 8}}");
  EXPECT_EQ(merged("{n: [{c: 1}, {c: 2}]}", "n.1.c", eight), "{n: [{c: 1}, {c: 8}]}");
  EXPECT_EQ(merged("{n: [1, 2]}", "n.0", eight), "{n: [8, 2]}");
  EXPECT_EQ(merged("{a: {b: 1}}", "a", parse("{c: 2}")), "{a: {c: 2}}");
}

TEST(Merge, PathsThatLeadNowhereAreProblemsAndChangeNothing) {
  const Value eight = Value::scalar("8", {"sweep.yaml", 3, 5});
  EXPECT_EQ(merged("{a: 1}", "a.b", eight),
            "{a: 1} | sweep.yaml:3:5: path 'a.b': '1' has nothing below it ('b' would have to be a "
            "key)");
  EXPECT_EQ(merged("{a: [1]}", "a.1", eight),
            "{a: [1]} | sweep.yaml:3:5: path 'a.1': no list item '1' (the list has 1 items, "
            "counted from 0)");
  EXPECT_EQ(merged("{a: [1]}", "a.x", eight),
            "{a: [1]} | sweep.yaml:3:5: path 'a.x': no list item 'x' (the list has 1 items, "
            "counted from 0)");
  for (const char* path : {"a..b", ".a", "c."})
    EXPECT_EQ(merged("{a: {}}", path, eight),
              "{a: {}} | sweep.yaml:3:5: path '" + std::string(path) +
                  "': empty segment (segments are separated by one dot)");
  EXPECT_EQ(merged("{a: 1}", "", eight),
            "{a: 1} | sweep.yaml:3:5: empty path (a path reads 'job.global_batch')");
}

TEST(ToYaml, WritesBlocksAndShortLists) {
  const Value v = parse("{a: 1, l: [1, x y], e: [], m: {}, n: [{b: 2, c: [[1]]}, [3, {d: }]]}");
  EXPECT_EQ(to_yaml(v),
            "a: 1\n"
            "l: [1, x y]\n"
            "e: []\n"
            "m: {}\n"
            "n:\n"
            "  - b: 2\n"
            "    c:\n"
            "      - [1]\n"
            "  - - 3\n"
            "    - d: null\n");
}

TEST(ToYaml, AwkwardTextSurvivesAsValueKeyAndListItem) {
  for (const std::string text : {"",
                                 " ",
                                 "a ",
                                 " a",
                                 "null",
                                 "~",
                                 "true",
                                 "a: b",
                                 "a #b",
                                 "#a",
                                 "- a",
                                 "-",
                                 "---",
                                 "...",
                                 "[x]",
                                 "{x}",
                                 "a,b",
                                 "*x",
                                 "&x",
                                 "!x",
                                 "|",
                                 ">",
                                 "%x",
                                 "@x",
                                 "`x",
                                 "'x'",
                                 "\"x\"",
                                 "a\\b",
                                 "line\nline\n",
                                 "tab\there",
                                 "\x01\x1f\x7f",
                                 "\xE2\x82\xAC",
                                 "?",
                                 "? x",
                                 ":",
                                 "a:",
                                 "=",
                                 "<<",
                                 "1e5",
                                 "-5",
                                 "+5",
                                 ".5",
                                 "0x1F",
                                 "-5 Gbps",
                                 "$5/h",
                                 "1:30",
                                 "2001-01-01",
                                 "a'b\"c"}) {
    Value scalar = Value::scalar(text);
    EXPECT_EQ(parse("k: " + to_flow(scalar)).find("k")->text, text);
    EXPECT_TRUE(parse("k: " + to_flow(scalar)).find("k")->is_scalar()) << text;
    Value map = Value::map({});
    map.append(text, scalar);
    map.append("z", Value::list({scalar, scalar}));
    map.append("deep", Value::list({map}));
    const Value again = parse(to_yaml(map));
    EXPECT_EQ(to_yaml(again), to_yaml(map)) << text;
    ASSERT_EQ(again.entries.size(), 3U) << text;
    EXPECT_EQ(again.entries[0].key, text);
    EXPECT_EQ(again.entries[0].value.text, text);
    EXPECT_EQ(again.entries[1].value.items.at(1).text, text);
  }
}

}  // namespace
