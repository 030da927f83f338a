#include "executor/bench/storage_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "executor/net/message.h"
#include "models/base/file.h"
#include "models/ir/measurement_text.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::storage_bench_test {
namespace {

namespace fs = std::filesystem;

/// Pages of the file that the system holds in memory.
long cached_pages(const fs::path& path) {
  const std::size_t bytes = fs::file_size(path);
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  void* mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) return -1;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> here((bytes + page - 1) / page);
  const bool known = ::mincore(mapped, bytes, here.data()) == 0;
  ::munmap(mapped, bytes);
  return known ? std::count_if(here.begin(), here.end(), [](unsigned char c) { return c & 1; })
               : -1;
}

/// Whether the file system forgets a file when it is asked to.
bool forgets(const fs::path& folder) {
  fs::create_directories(folder);
  const fs::path path = folder / "probe";
  if (write_file_atomically(path.string(), std::string(100'000, 'x'))) return false;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
  const bool forgot = cached_pages(path) == 0;
  fs::remove(path);
  return forgot;
}

/// The system's clock, which notes what is cached below a folder each time it is asked.
class WatchingClock final : public BenchClock {
 public:
  explicit WatchingClock(fs::path folder) : folder_(std::move(folder)) {}
  Seconds wall() override {
    long pages = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      if (entry.is_regular_file()) pages += cached_pages(entry.path());
    }
    cached.push_back(pages);
    return system_bench_clock().wall();
  }
  Seconds thread_cpu() override { return system_bench_clock().thread_cpu(); }
  void sleep(Seconds duration) override { system_bench_clock().sleep(duration); }

  std::vector<long> cached;

 private:
  fs::path folder_;
};

class StorageBench : public testing::Test {
 protected:
  StorageBench()
      : folder_(fs::temp_directory_path() /
                fmt::format("orrery-storage-bench-test-{}", ::getpid())) {}
  ~StorageBench() override { fs::remove_all(folder_); }

  std::vector<ir::Measurement> take(const BenchCase& one) {
    std::vector<ir::Measurement> out;
    BenchSink sink;
    sink.sample = [&](const ir::Measurement& sample) { out.push_back(sample); };
    time_checkpoint(one, folder_.string(), two_repetitions(), {}, system_bench_clock(), sink);
    return out;
  }

  fs::path folder_;
};

TEST_F(StorageBench, WritesAndReadsWithSamplesOfTheirKeysAndLeavesNothing) {
  BenchRequest request;
  request.model = tiny_model();
  request.devices = {{DeviceId{0}, "cpu", 1}};
  request.checkpoint_bytes = {100, 70'000};
  request.cloud_folder = true;
  request.kinds = {ir::MeasurementKind::checkpoint_write, ir::MeasurementKind::checkpoint_read};
  const std::vector<BenchCase> cases = list_cases(request);
  EXPECT_EQ(cases.size(), 8u);
  for (const BenchCase& one : cases) {
    const std::vector<ir::Measurement> samples = take(one);
    ASSERT_EQ(samples.size(), 2u) << to_message(one);
    for (const ir::Measurement& sample : samples) {
      EXPECT_EQ(ir::measurement_key(sample), ir::measurement_key(one.key));
      EXPECT_GT(sample.wall.value, 0);
      EXPECT_EQ(sample.cpu.value, 0);
    }
  }
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(StorageBench, ReadsAreOfFilesThatTheSystemHasForgotten) {
  if (!forgets(folder_)) GTEST_SKIP() << folder_ << " is on a file system that forgets no file";
  BenchCase one;
  one.key.kind = ir::MeasurementKind::checkpoint_read;
  one.key.location = ir::Location::nvme;
  one.key.bytes = Bytes{200'000};
  WatchingClock clock(folder_);
  BenchSink sink;
  sink.sample = [](const ir::Measurement&) {};
  sink.check = [] {};
  time_checkpoint(one, folder_.string(), two_repetitions(), {}, clock, sink);
  ASSERT_EQ(clock.cached.size(), 4u);  // Before and after each of two reads.
  for (std::size_t i = 0; i < 4; i += 2) {
    EXPECT_EQ(clock.cached[i], 0);
    EXPECT_GT(clock.cached[i + 1], 0);
  }
}

TEST_F(StorageBench, AFolderThatIsAFileIsAnError) {
  BenchCase one;
  one.key.kind = ir::MeasurementKind::checkpoint_write;
  one.key.bytes = Bytes{10};
  EXPECT_THROW(time_checkpoint(one, "/dev/null", two_repetitions(), {}, system_bench_clock(), {}),
               std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::storage_bench_test
