/// Are files replaced whole or not at all?
#include "models/base/file.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace orrery::file_test {
namespace {

namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "orrery-file-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const char* name) const { return (folder_ / name).string(); }
  std::string content(const std::string& path) const {
    std::string bytes;
    EXPECT_EQ(read_file(path, bytes), std::nullopt);
    return bytes;
  }
  std::ptrdiff_t files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  fs::path folder_;
};

TEST_F(File, HoldsWhatWasWritten) {
  std::string bytes(300000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7);
  EXPECT_EQ(write_file_atomically(path("a"), bytes), std::nullopt);
  EXPECT_EQ(content(path("a")), bytes);
  EXPECT_EQ(write_file_atomically(path("a"), ""), std::nullopt);
  EXPECT_EQ(content(path("a")), "");
  EXPECT_EQ(files(), 1);
}

TEST_F(File, ProblemsNameFileAndReason) {
  const std::string missing = path("no/such/folder/a");
  EXPECT_EQ(write_file_atomically(missing, "x"),
            "cannot write " + missing + ": No such file or directory");
  std::string bytes = "old";
  EXPECT_EQ(read_file(missing, bytes), "cannot read " + missing + ": No such file or directory");
  EXPECT_EQ(read_file(folder_.string(), bytes),
            "cannot read " + folder_.string() + ": Is a directory");
  fs::create_directory(path("folder"));
  EXPECT_EQ(write_file_atomically(path("folder"), "x"),
            "cannot write " + path("folder") + ": Is a directory");
  EXPECT_EQ(files(), 1) << "a temporary file was left";
}

/// A limit on file sizes makes writes fail half-way, as a full disk does.
TEST_F(File, AFullDiskLeavesTheOldFile) {
  ASSERT_EQ(write_file_atomically(path("a"), "old"), std::nullopt);
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const auto problem = write_file_atomically(path("a"), std::string(5000, 'x'));
    ::_exit(problem == "cannot write " + path("a") + ": File too large" ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the problem was not reported";
  EXPECT_EQ(content(path("a")), "old");
  EXPECT_EQ(files(), 1) << "a temporary file was left";
}

}  // namespace
}  // namespace orrery::file_test
