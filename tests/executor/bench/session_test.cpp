#include "executor/bench/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/net/message.h"
#include "models/ir/measurement_text.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::session_test {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

BenchSessionOptions options_of(int ranks) {
  BenchSessionOptions options;
  options.model = tiny_model();
  options.rule = two_repetitions();
  for (int d = 0; d < ranks; ++d) options.devices.push_back({d});
  return options;
}

BenchRequest request_of() {
  BenchRequest request;
  request.model = tiny_model();
  request.devices = {{DeviceId{1}, "cpu", 1}};
  request.pairs = {{DeviceId{0}, DeviceId{2}, "loopback"}, {DeviceId{2}, DeviceId{0}, "loopback"}};
  request.groups = {{{DeviceId{0}, DeviceId{1}}, "loopback"}};
  request.layers = {1};
  request.tensor_parallel = {1};
  request.micro_batches = {1};
  request.message_bytes = {8, 5000};
  request.collective_bytes = {1024};
  return request;
}

TEST(BenchSession, ProcessesTakeTheirCasesOneAfterTheOther) {
  BenchSession session(options_of(3));
  int cases = 0;
  for (const BenchCase& one : list_cases(request_of())) {
    std::vector<Measurement> samples;
    session.run(one, {}, [&](const Measurement& sample) { samples.push_back(sample); });
    const bool memory = one.key.kind == MeasurementKind::memory;
    ASSERT_EQ(samples.size(), memory ? 1u : 2u) << to_message(one);
    for (const Measurement& sample : samples) {
      EXPECT_EQ(ir::measurement_key(sample), ir::measurement_key(one.key));
    }
    ++cases;
    if (samples.size() < 2) continue;
    // With all that is needed there already, nothing is taken.
    session.run(one, samples, [&](const Measurement&) { ADD_FAILURE() << to_message(one); });
  }
  EXPECT_GT(cases, 15);
}

TEST(BenchSession, AProblemOfAProcessIsTheDriversProblem) {
  BenchSessionOptions options = options_of(2);
  options.settings.backend = "abacus";
  BenchSession session(options);
  BenchCase one;
  one.key.kind = MeasurementKind::op_overhead;
  one.devices = {DeviceId{1}};
  try {
    session.run(one, {}, [](const Measurement&) {});
    FAIL() << "computed on an abacus";
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_NE(what.find("device 1"), std::string::npos) << what;
    EXPECT_NE(what.find("abacus"), std::string::npos) << what;
  }
}

TEST(BenchSession, AFolderThatANodeCannotMakeIsTheDriversProblem) {
  BenchSessionOptions options = options_of(1);
  options.settings.local_checkpoints = "/dev/null";
  try {
    BenchSession session(options);
    FAIL() << "checkpoints in /dev/null";
  } catch (const std::runtime_error& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/null"), std::string::npos) << error.what();
  }
}

TEST(BenchSession, AnInterruptionEndsItAndAllProcesses) {
  std::atomic<bool> interrupted = false;
  BenchSessionOptions options = options_of(2);
  options.rule.least = 1000;
  options.rule.most = 100'000;
  options.interrupted = &interrupted;
  BenchSession session(options);
  BenchCase one;
  one.key.kind = MeasurementKind::point_to_point;
  one.key.source = DeviceId{0};
  one.key.destination = DeviceId{1};
  one.key.bytes = Bytes{8};
  one.devices = {DeviceId{0}, DeviceId{1}};
  int samples = 0;
  EXPECT_THROW(session.run(one, {},
                           [&](const Measurement&) {
                             ++samples;
                             interrupted = true;
                           }),
               BenchInterrupted);
  EXPECT_GT(samples, 0);
}

}  // namespace
}  // namespace orrery::executor::session_test
