#include "executor/bench/storage_bench.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "executor/net/message.h"
#include "models/ir/measurement_text.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::storage_bench_test {
namespace {

namespace fs = std::filesystem;

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

TEST_F(StorageBench, AFolderThatIsAFileIsAnError) {
  BenchCase one;
  one.key.kind = ir::MeasurementKind::checkpoint_write;
  one.key.bytes = Bytes{10};
  EXPECT_THROW(time_checkpoint(one, "/dev/null", two_repetitions(), {}, system_bench_clock(), {}),
               std::runtime_error);
}

}  // namespace
}  // namespace orrery::executor::storage_bench_test
