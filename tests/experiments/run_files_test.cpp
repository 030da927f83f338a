// Do the files of a run come back as they were, and nothing else from what are no such bytes?
#include "experiments/study/run_files.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "experiments/study/files.h"
#include "models/base/bytes.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::run_files_test {
namespace {

using support::contents;
using support::TempFolder;

TEST(RunFiles, ComeBackByteForByte) {
  const TempFolder folder;
  make_folders(folder / "run");
  write_text_file(folder / "run/summary.json", "{}\n");
  write_text_file(folder / "run/points.csv", std::string("a\0b", 3));
  write_text_file(folder / "run/log.txt", "");
  const auto packed = packed_files(folder / "run", {1.5, 0.25});
  ASSERT_TRUE(packed.has_value());
  const auto seconds = unpack_files(*packed, folder / "again");
  ASSERT_TRUE(seconds);
  EXPECT_EQ(seconds->planning, 1.5);  // As when the run was done.
  EXPECT_EQ(seconds->evaluation, 0.25);
  EXPECT_EQ(contents(folder / "again"), contents(folder / "run"));
  write_text_file(folder / "run/large", std::string(std::size_t{5} << 20, 'x'));
  EXPECT_FALSE(packed_files(folder / "run", {}).has_value());
  EXPECT_FALSE(packed_files(folder / "nowhere", {}).has_value());
}

TEST(RunFiles, OtherBytesWriteNothing) {
  const TempFolder folder;
  for (const char* name : {"../summary.json", "/tmp/summary.json", "..", ""}) {
    ByteWriter out;
    out.put(1.0);
    out.put(1.0);
    out.put(std::uint64_t{1});
    out.put(std::string_view(name));
    out.put(std::string_view("text"));
    EXPECT_FALSE(unpack_files(out.bytes(), folder / "run")) << name;
  }
  EXPECT_FALSE(unpack_files("", folder / "run"));
  EXPECT_FALSE(unpack_files("some other answer", folder / "run"));
  EXPECT_FALSE(support::fs::exists(folder / "run"));
}

}  // namespace
}  // namespace orrery::experiments::run_files_test
