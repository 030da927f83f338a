// Do readers survive everything that was ever found, and what is near it? Each file of
// corpus/TARGET goes through its target, whatever crashed once among them, and so do thousands of
// mutations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/targets.h"

namespace orrery::fuzz::replay_test {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {};

/// By name, so that mutations are the same everywhere.
std::map<std::string, std::string> corpus_of(const Target& target) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(fs::path("tests/fuzz/corpus") / target.name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    files[entry.path().filename()] = std::move(bytes).str();
  }
  return files;
}

void run(const Target& target, const std::string& text) {
  EXPECT_NO_THROW(target.run({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
}

TEST_P(Corpus, EndsWithoutACrash) {
  const auto files = corpus_of(GetParam());
  EXPECT_FALSE(files.empty());
  for (const auto& [name, text] : files) {
    SCOPED_TRACE(name);
    run(GetParam(), text);
  }
}

/// Draws that are the same with every standard library.
class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : bits_(seed) {}

  std::size_t below(std::size_t count) { return count == 0 ? 0 : bits_() % count; }

  /// One small change; `other` lends a part.
  void change(std::string& text, const std::string& other) {
    constexpr std::array kTelling = {"0", "-1", "9223372036854775807", "1e308", "nan", "\n",
                                     ",", ":"};
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = below(std::min<std::size_t>(text.size() - at, 16) + 1);
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(bits_());
        break;
      case 1:
        text.insert(at, 1, static_cast<char>(bits_()));
        break;
      case 2:
        text.erase(at, length);
        break;
      case 3:
        text.insert(below(text.size() + 1), text.substr(at, length));
        break;
      case 4:
        text.replace(at, length, kTelling[below(kTelling.size())]);
        break;
      default:
        text.replace(at, length, other.substr(below(other.size() + 1), 1 + below(64)));
    }
  }

 private:
  std::mt19937_64 bits_;
};

TEST_P(Corpus, WhatIsNearEndsWithoutACrash) {
  constexpr int kMutations = 5000;
  std::vector<std::string> texts;
  for (auto& [name, text] : corpus_of(GetParam())) {
    texts.push_back(std::move(text));
  }
  ASSERT_FALSE(texts.empty());
  for (int i = 0; i < kMutations; ++i) {
    Mutator mutator(static_cast<std::uint64_t>(i));
    std::string text = texts[mutator.below(texts.size())];
    const std::string& other = texts[mutator.below(texts.size())];
    for (std::size_t n = 1 + mutator.below(4); n > 0; --n) mutator.change(text, other);
    SCOPED_TRACE(i);
    run(GetParam(), text);
  }
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace orrery::fuzz::replay_test
