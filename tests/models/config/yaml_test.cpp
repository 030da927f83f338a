#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "models/config/schema_of.h"
#include "tests/models/config/sample.h"

namespace {

using namespace orrery::config;

std::string lines(const Diagnostics& d) {
  std::string text;
  for (const Problem& p : d.problems()) text += to_string(p) + "\n";
  return text;
}

std::string problems_of(const std::string& text) {
  Diagnostics d;
  load_value_text(text, "c.yaml", d);
  return lines(d);
}

TEST(Yaml, PositionsCountFromOne) {
  Diagnostics d;
  const Value v = load_value_text("a: 1\nb:\n  - x\n  - {c: y, d: }\n", "c.yaml", d);
  EXPECT_EQ(lines(d), "");
  EXPECT_EQ(to_string(v.at), "c.yaml:1:1");
  EXPECT_EQ(to_string(v.find("a")->at), "c.yaml:1:4");
  EXPECT_EQ(to_string(v.entries[1].at), "c.yaml:2:1");
  EXPECT_EQ(to_string(v.find("b")->items[0].at), "c.yaml:3:5");
  EXPECT_EQ(to_string(v.find("b")->items[1].find("c")->at), "c.yaml:4:9");
}

TEST(Yaml, AByteOrderMarkIsNoColumn) {
  Diagnostics d;
  const Value v = load_value_text(
      "\xEF\xBB\xBF"
      "a: 1\r\nb:\r\n  c: 2\r\n",
      "c.yaml", d);
  EXPECT_EQ(lines(d), "");
  ASSERT_EQ(v.entries.size(), 2U);
  EXPECT_EQ(to_string(v.find("a")->at), "c.yaml:1:4");
  EXPECT_EQ(to_string(v.find("b")->find("c")->at), "c.yaml:3:6");
  EXPECT_EQ(problems_of("\xEF\xBB\xBF"
                        "a: 1\na: 2\n"),
            "c.yaml:2:1: duplicate key 'a' (first at line 1)\n");
}

TEST(Yaml, IllFormedTextIsReportedWhereItBreaks) {
  EXPECT_EQ(problems_of("a: [1, 2\n"),
            "c.yaml:2:1: ill-formed YAML: did not find expected ',' or ']' while parsing a flow "
            "sequence\n");
  EXPECT_EQ(problems_of("a: {b: 1\n"),
            "c.yaml:2:1: ill-formed YAML: did not find expected ',' or '}' while parsing a flow "
            "mapping\n");
  EXPECT_EQ(problems_of("a: 'open\n"),
            "c.yaml:2:1: ill-formed YAML: found unexpected end of stream while scanning a quoted "
            "scalar\n");
  EXPECT_EQ(problems_of("a: b: c\n"),
            "c.yaml:1:5: ill-formed YAML: mapping values are not allowed in this context\n");
  EXPECT_EQ(problems_of("a: 1\n b: 2\n"),
            "c.yaml:2:3: ill-formed YAML: mapping values are not allowed in this context\n");
  EXPECT_EQ(problems_of("a: *x\n"),
            "c.yaml:1:4: alias '*x' without an anchor ('&x' must stand before it)\n");
}

TEST(Yaml, EmptyDocumentsAreAProblem) {
  for (const char* text :
       {"", "\n", "---\n...\n", "# only a comment\n", "---\n", "~\n", "\xEF\xBB\xBF"})
    EXPECT_EQ(problems_of(text), "c.yaml:1:1: the file is empty\n") << text;
}

TEST(Yaml, DuplicateKeysAreAProblemAtTheSecondAndTheFirstCounts) {
  Diagnostics d;
  const Value v = load_value_text("a: 1\nb: {x: 1, x: {y: 2}}\na: 3\n", "c.yaml", d);
  EXPECT_EQ(lines(d),
            "c.yaml:2:11: duplicate key 'x' (first at line 2)\n"
            "c.yaml:3:1: duplicate key 'a' (first at line 1)\n");
  EXPECT_EQ(to_flow(v), "{a: 1, b: {x: 1}}");
}

TEST(Yaml, KeysAreText) {
  EXPECT_EQ(problems_of("[a]: 1\n"), "c.yaml:1:1: a key must be text, got a list\n");
  EXPECT_EQ(problems_of("{a: 1}: 1\n"), "c.yaml:1:1: a key must be text, got a map\n");
  EXPECT_EQ(problems_of("~: 1\n"), "c.yaml:1:1: a key must be text, got nothing\n");
  EXPECT_EQ(problems_of("a: &x b\n*x : 1\n"), "c.yaml:2:1: a key must be text, not an alias\n");
}

TEST(Yaml, TagsAndFurtherDocumentsAreRefused) {
  EXPECT_EQ(problems_of("a: !secret b\n"),
            "c.yaml:1:4: unsupported YAML tag '!secret' (remove it)\n");
  EXPECT_EQ(problems_of("a: !!str 5\nb: !!int 5\nc: !!map {}\nd: !!seq []\n"), "");
  EXPECT_EQ(problems_of("a: 1\n---\nb: 2\n"),
            "c.yaml:2:1: content after the end of the document (a file holds one document)\n");
  EXPECT_NE(problems_of("a: 1\n]\n"), "");
  EXPECT_NE(problems_of("[1, 2] 3\n"), "");
  EXPECT_EQ(problems_of("---\na: 1\n...\n"), "");
}

TEST(Yaml, BinaryAndForeignEncodingsAreRefusedAtTheByte) {
  EXPECT_EQ(problems_of("a: 1\nb: \xff\n"),
            "c.yaml:2:4: not UTF-8: byte 0xff (is this a text file?)\n");
  EXPECT_EQ(problems_of(std::string("a: \0 1", 6)),
            "c.yaml:1:4: control character 0x00 (is this a text file?)\n");
  EXPECT_EQ(problems_of("a: \x1b[0m"),
            "c.yaml:1:4: control character 0x1b (is this a text file?)\n");
  for (const char* bad : {"\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xE2\x82", "\xF0\x80\x80\x80", "\x80"})
    EXPECT_NE(problems_of(bad).find("not UTF-8"), std::string::npos) << bad;
  EXPECT_EQ(problems_of("a: \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80\r\n"), "");
}

TEST(Yaml, TheSchemaIsKnownBeforeTheRestIsRead) {
  const auto path = std::filesystem::path(testing::TempDir()) / "orrery_schema.yaml";
  const auto schema = [&](const std::string& text) {
    std::ofstream(path) << text;
    return schema_of(path.string());
  };
  EXPECT_EQ(schema("a: {schema: no}\nb: [schema, no]\nschema: orrery/plan/1\nc: [1, 2"),
            "orrery/plan/1");
  EXPECT_EQ(schema("a: schema\nb: 1\n"), "");
  EXPECT_EQ(schema("schema: [no]\na: 1\n"), "");
  EXPECT_EQ(schema("- schema: no\n"), "");
  EXPECT_EQ(schema("a: [1"), "");
  std::filesystem::remove(path);
  EXPECT_EQ(schema_of(path.string()), "");
}

TEST(Yaml, AliasBombsAndDeepNestingStopEarly) {
  std::string bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 12; ++i)
    bomb +=
        fmt::format("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}, *a{1}]\n", i, i - 1);
  EXPECT_NE(problems_of(bomb).find("document is too large (at most 1000000 values, aliases "
                                   "expanded)"),
            std::string::npos);
  EXPECT_EQ(problems_of("k: " + std::string(200, '[') + std::string(200, ']')),
            "c.yaml:1:103: nested too deeply (at most 100 levels)\n");
  EXPECT_NE(problems_of(std::string(5000, '[')), "");
  EXPECT_NE(problems_of(std::string(100000, '{')), "");
  std::string dashes;
  for (int i = 0; i < 1000; ++i) dashes += "- ";
  EXPECT_NE(problems_of(dashes + "x").find("nested too deeply"), std::string::npos);
  std::string ladder = "a0: &a0 [x]\n";
  for (int i = 1; i < 200; ++i) ladder += fmt::format("a{0}: &a{0} [*a{1}]\n", i, i - 1);
  EXPECT_NE(problems_of(ladder).find("nested too deeply"), std::string::npos);
  EXPECT_EQ(problems_of("a: &a [*a]\n"),
            "c.yaml:1:8: alias refers to a node that holds it (write the value out)\n");
}

class Files : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "orrery_config_files";
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static std::string problems_of(const std::string& path) {
    Diagnostics d;
    load_file<sample::Tree>(path, d);
    return lines(d);
  }
  std::filesystem::path folder_;
};

TEST_F(Files, GoodFilesAreRead) {
  std::ofstream(path("good.yaml")) << "weight: 7\n";
  Diagnostics d;
  EXPECT_EQ(load_file<sample::Tree>(path("good.yaml"), d).weight, 7);
  EXPECT_EQ(lines(d), "");
}

TEST_F(Files, ProblemsCarryTheFileName) {
  std::ofstream(path("bad.yaml")) << "weight: x\n";
  EXPECT_EQ(problems_of(path("bad.yaml")),
            path("bad.yaml") + ":1:9: expected an integer, got 'x'\n");
}

TEST_F(Files, MissingFilesSuggestANeighbor) {
  std::ofstream(path("mixed.yaml")) << "weight: 7\n";
  EXPECT_EQ(problems_of(path("mixd.yaml")),
            path("mixd.yaml") + ": no such file (did you mean 'mixed.yaml'?)\n");
  EXPECT_EQ(problems_of(path("nowhere/mixed.yaml")), path("nowhere/mixed.yaml") +
                                                         ": no such file (there is no directory '" +
                                                         path("nowhere") + "')\n");
}

TEST_F(Files, DirectoriesAndEmptyFilesAreNamed) {
  EXPECT_EQ(problems_of(folder_.string()),
            folder_.string() + ": is a directory (a file is needed)\n");
  std::ofstream(path("empty.yaml")) << "";
  EXPECT_EQ(problems_of(path("empty.yaml")), path("empty.yaml") + ":1:1: the file is empty\n");
}

TEST_F(Files, ReadErrorsAreNamed) {
  EXPECT_EQ(problems_of("/proc/self/mem"), "/proc/self/mem: cannot be read (Input/output error)\n");
}

TEST_F(Files, EndlessFilesAreCutOff) {
  EXPECT_EQ(problems_of("/dev/zero"), "/dev/zero: file is too large (at most 64 MiB)\n");
}

}  // namespace
