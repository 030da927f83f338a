// Do readers survive everything that was ever found, and can they read what is right? Each file of
// corpus/TARGET goes through its target; whatever crashed once is kept there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/fuzz/targets.h"

namespace orrery::fuzz::replay_test {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::TestWithParam<Target> {};

TEST_P(Corpus, EndsWithoutACrash) {
  int files = 0;
  for (const auto& entry :
       fs::directory_iterator(fs::path("tests/fuzz/corpus") / GetParam().name)) {
    std::ifstream file(entry.path(), std::ios::binary);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    const std::string text = std::move(bytes).str();
    SCOPED_TRACE(entry.path().string());
    EXPECT_NO_THROW(
        GetParam().run({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}));
    ++files;
  }
  EXPECT_GT(files, 0);
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Corpus, testing::ValuesIn(targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace orrery::fuzz::replay_test
