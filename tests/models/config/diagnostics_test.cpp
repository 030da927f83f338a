#include "models/config/diagnostics.h"

#include <gtest/gtest.h>

namespace {

using namespace orrery::config;

TEST(Diagnostics, PrintsFileLineColumnWhatAndHint) {
  const auto print = [](const Position& at, const std::string& hint) {
    Diagnostics d;
    d.add(at, "bad", hint);
    return to_string(d.problems()[0]);
  };
  EXPECT_EQ(print({"a.yaml", 3, 7}, "did you mean 'y'?"), "a.yaml:3:7: bad (did you mean 'y'?)");
  EXPECT_EQ(print({"a.yaml", 3, 7}, ""), "a.yaml:3:7: bad");
  EXPECT_EQ(print({"a.yaml", 3, 0}, ""), "a.yaml:3: bad");
  EXPECT_EQ(print({"a.yaml", 0, 0}, ""), "a.yaml: bad");
  EXPECT_EQ(print({}, ""), "bad");
}

TEST(Diagnostics, RaiseThrowsAllProblemsInFileOrder) {
  Diagnostics d;
  EXPECT_NO_THROW(d.raise());
  EXPECT_TRUE(d.empty());
  d.add({"b.yaml", 9, 1}, "third");
  d.add({"a.yaml", 1, 1}, "fourth");
  d.add({"b.yaml", 2, 5}, "second");
  d.add({"b.yaml", 2, 1}, "first", "hint");
  EXPECT_FALSE(d.empty());
  try {
    d.raise();
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "b.yaml:2:1: first (hint)\nb.yaml:2:5: second\nb.yaml:9:1: third\n"
                 "a.yaml:1:1: fourth");
    EXPECT_EQ(error.problems.size(), 4U);
  }
}

TEST(Diagnostics, WhatAnAliasRepeatsIsSaidOnce) {
  Diagnostics d;
  for (int reads = 0; reads < 2; ++reads) {
    d.add({"a.yaml", 3, 7}, "bad");
    d.add({"a.yaml", 3, 7}, "worse");
  }
  EXPECT_EQ(d.problems().size(), 4U);  // Each reading fails.
  try {
    d.raise();
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "a.yaml:3:7: bad\na.yaml:3:7: worse");
  }
}

TEST(Diagnostics, LongListsAreCutAtAHundredLines) {
  Diagnostics d;
  for (int i = 1; i <= 150; ++i) d.add({"a", i, 1}, "bad");
  try {
    d.raise();
    FAIL() << "nothing was thrown";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(std::string(error.what()).ends_with("a:100:1: bad\n... and 50 more problems"));
    EXPECT_EQ(error.problems.size(), 150U);
  }
}

TEST(Closest, FindsTyposSwapsCaseAndPrefixes) {
  const std::vector<std::string> names{"bandwidth", "latency", "gpus", "A100-80GB",
                                       "tensor_parallel"};
  EXPECT_EQ(closest("bandwith", names), "bandwidth");
  EXPECT_EQ(closest("latnecy", names), "latency");
  EXPECT_EQ(closest("GPUS", names), "gpus");
  EXPECT_EQ(closest("A100", names), "A100-80GB");
  EXPECT_EQ(closest("tensor_paralelism", names), "tensor_parallel");
  EXPECT_EQ(closest("color", names), "");
  EXPECT_EQ(closest("", names), "");
  EXPECT_EQ(closest("ab", {"cd"}), "");
  EXPECT_EQ(closest("tp", {"pp", "tp"}), "tp");
  EXPECT_EQ(closest("x", {}), "");
}

TEST(Closest, SuggestListsAllWhenNothingIsNear) {
  EXPECT_EQ(suggest("gpip", {"gpipe", "1f1b"}, "one of"), "did you mean 'gpipe'?");
  EXPECT_EQ(suggest("color", {"gpipe", "1f1b"}, "one of"), "one of: gpipe, 1f1b");
  EXPECT_EQ(suggest("color", {}, "one of"), "");
}

}  // namespace
