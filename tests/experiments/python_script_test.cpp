// What a script of a study depends on: all that it imports from the folders above it.
#include "experiments/study/python_script.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <string>

namespace orrery::experiments::python_script_test {
namespace {

namespace fs = std::filesystem;

class Scripts : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(root_); }
  void TearDown() override { fs::remove_all(root_); }
  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = root_ / "experiments" / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
    return path.string();
  }
  fs::path root_ = fs::path(testing::TempDir()) / "python_script_test";
};

TEST_F(Scripts, DependOnWhatTheyImportDirectlyAndThroughOthers) {
  const std::string script =
      write("a/b/run.py", "import os, near\nfrom shared import fit, row as r  # not: unused\n");
  write("a/b/near.py", "from far import name\n");
  write("a/shared/fit.py", "import near\n");
  write("a/shared/row.py", "");
  write("far.py", "import missing\n");
  write("a/unused.py", "");
  write("a/b/plot.py", "import near\n");
  std::set<std::string> names;
  for (const std::string& file : script_files(script)) {
    names.insert(fs::path(file).lexically_relative(fs::weakly_canonical(root_)).string());
  }
  EXPECT_EQ(names, (std::set<std::string>{"experiments/a/b/run.py", "experiments/a/b/near.py",
                                          "experiments/a/shared/fit.py",
                                          "experiments/a/shared/row.py", "experiments/far.py"}));
}

}  // namespace
}  // namespace orrery::experiments::python_script_test
