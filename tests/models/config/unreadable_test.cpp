// A file that this user may not read; root may read every file.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "models/config/document.h"
#include "tests/models/config/sample.h"

namespace orrery::config::unreadable_test {
namespace {

TEST(UnreadableFile, IsNamedWithItsReason) {
  const auto path = std::filesystem::path(testing::TempDir()) / "orrery_unreadable.yaml";
  std::ofstream(path) << "weight: 7\n";
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const bool root = std::ifstream(path).good();
  Diagnostics diagnostics;
  if (!root) load_file<sample::Tree>(path.string(), diagnostics);
  std::filesystem::remove(path);
  if (root) GTEST_SKIP() << "this user may read every file";
  ASSERT_EQ(diagnostics.problems().size(), 1u);
  EXPECT_EQ(diagnostics.problems()[0].what, "cannot be read (Permission denied)");
}

}  // namespace
}  // namespace orrery::config::unreadable_test
