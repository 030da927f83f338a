#include "experiments/study/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <stdexcept>

#include "sim/flow/fork.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::files_test {
namespace {

TEST(Files, AFullDiskLeavesFilesAsTheyWere) {
  const support::TempFolder folder;
  const std::string path = folder / "file";
  write_text_file(path, "before\n");
  const auto result = sim::run_forked([&]() -> std::string {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{64, 64};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::string problems;
    for (const auto write : {append_text_file, replace_text_file}) {
      try {
        write(path, std::string(100, 'x'));
      } catch (const std::runtime_error& error) {
        problems += error.what();
      }
    }
    return problems;
  });
  const auto* problems = std::get_if<std::string>(&result);
  ASSERT_NE(problems, nullptr);
  EXPECT_NE(problems->find("cannot write " + path), std::string::npos) << *problems;
  EXPECT_EQ(read_text_file(path), "before\n");
  EXPECT_EQ(support::names_in(folder.path()), std::vector<std::string>{"file"});
}

}  // namespace
}  // namespace orrery::experiments::files_test
