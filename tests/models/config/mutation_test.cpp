/// Whatever a file holds, reading ends with a value or with problems that have positions.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <string>

#include "tests/models/config/sample.h"

namespace {

using namespace orrery::config;

std::string mutate(std::string text, std::mt19937_64& random) {
  static const std::string kPieces[] = {"[",        "]",     "{",     "}",    ": ", "- ", "\n",
                                        "\n  ",     "&a ",   "*a",    "!!x ", "'",  "\"", "|\n",
                                        "? ",       "---\n", "...\n", "\t",   "#",  "%",  "\xff",
                                        "\xC3\xA9", "~",     "1e999", "nan",  ","};
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t edits = 1 + below(6); edits > 0; --edits) {
    const std::size_t at = below(text.size() + 1);
    switch (below(6)) {
      case 0:
        text.erase(at, 1 + below(5));
        break;
      case 1:
        text.insert(at, kPieces[below(std::size(kPieces))]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(below(256));
        break;
      case 3:  // repeat a part elsewhere
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      case 4:
        if (below(8) == 0) text.resize(at);
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(' ' + below(95));
    }
  }
  return text;
}

TEST(Mutations, NeverCrashAndAlwaysNameAPlaceInTheFile) {
  std::mt19937_64 random(20240607);
  int valid = 0;
  for (int i = 0; i < 2000; ++i) {
    const std::string text = mutate(sample::kCluster, random);
    Diagnostics d;
    const auto cluster = load_text<sample::Cluster>(text, "m.yaml", d);
    const int lines = 1 + static_cast<int>(std::count(text.begin(), text.end(), '\n'));
    for (const Problem& p : d.problems()) {
      ASSERT_EQ(p.at.file, "m.yaml") << p.what << "\n" << text;
      ASSERT_GE(p.at.line, 1) << p.what << "\n" << text;
      ASSERT_LE(p.at.line, lines + 1) << p.what << "\n" << text;
      ASSERT_GE(p.at.column, 1) << p.what << "\n" << text;
      ASSERT_FALSE(p.what.empty()) << text;
    }
    if (!d.empty()) continue;
    ++valid;
    Diagnostics none;
    const std::string once = dump(cluster);
    ASSERT_EQ(dump(load_text<sample::Cluster>(once, "d.yaml", none)), once) << text;
    ASSERT_TRUE(none.empty()) << to_string(none.problems()[0]) << "\n" << once;
  }
  EXPECT_GT(valid, 50) << "mutations must leave some documents valid";
  EXPECT_LT(valid, 1500) << "mutations must break some documents";
}

TEST(Mutations, EveryTruncationOfADocumentIsHandled) {
  const std::string text = sample::kCluster;
  for (std::size_t size = 0; size < text.size(); ++size) {
    Diagnostics d;
    load_text<sample::Cluster>(text.substr(0, size), "m.yaml", d);
    for (const Problem& p : d.problems()) ASSERT_GE(p.at.line, 1) << p.what << " at " << size;
  }
}

TEST(Mutations, RandomBytesAreHandled) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 500; ++i) {
    std::string text(random() % 300, ' ');
    for (char& c : text) c = static_cast<char>(i % 2 == 0 ? random() % 256 : ' ' + random() % 95);
    Diagnostics d;
    load_text<sample::Cluster>(text, "m.yaml", d);
    EXPECT_FALSE(d.empty()) << text;
  }
}

}  // namespace
