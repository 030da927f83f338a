#include "executor/bench/compute_bench.h"

#include <gtest/gtest.h>

#include <map>
#include <tuple>
#include <vector>

#include "executor/engine/worker.h"
#include "executor/model/shard.h"
#include "executor/net/message.h"
#include "models/ir/measurement_text.h"
#include "models/ir/program.h"
#include "tests/executor/bench/tiny_model.h"

namespace orrery::executor::compute_bench_test {
namespace {

using ir::Measurement;
using ir::MeasurementKind;

BenchRequest compute_request() {
  BenchRequest request;
  request.model = tiny_model();
  request.devices = {{DeviceId{0}, "cpu", 1}};
  request.layers = {1, 3};
  request.tensor_parallel = {1, 2, 4};
  request.micro_batches = {1, 2};
  request.copy_bytes = {64, 4096};
  request.optimizer_parameters = {16, 100};
  return request;
}

std::vector<Measurement> measure(const BenchCase& one, Precision precision) {
  const auto backend = make_cpu_backend(precision);
  ComputeBench bench(*backend, tiny_model(), system_bench_clock());
  std::vector<Measurement> out;
  BenchSink sink;
  sink.sample = [&](const Measurement& sample) { out.push_back(sample); };
  bench.run(one, two_repetitions(), {}, sink);
  return out;
}

TEST(ComputeBench, EachCaseGivesSamplesOfItsKey) {
  for (const Precision precision : {Precision::fp32, Precision::fp64}) {
    const auto backend = make_cpu_backend(precision);
    ComputeBench bench(*backend, tiny_model(), system_bench_clock());
    int cases = 0;
    for (const BenchCase& one : list_cases(compute_request())) {
      std::vector<Measurement> samples;
      BenchSink sink;
      sink.sample = [&](const Measurement& sample) { samples.push_back(sample); };
      bench.run(one, two_repetitions(), {}, sink);
      const bool memory = one.key.kind == MeasurementKind::memory;
      ASSERT_EQ(samples.size(), memory ? 1u : 2u) << to_message(one);
      for (std::size_t i = 0; i < samples.size(); ++i) {
        EXPECT_EQ(ir::measurement_key(samples[i]), ir::measurement_key(one.key));
        EXPECT_EQ(samples[i].repetition, static_cast<int>(i));
        EXPECT_TRUE(memory || samples[i].wall.value > 0) << to_message(one);
        if (memory && one.key.block != ir::BlockKind::embedding) {
          EXPECT_GT(samples[i].bytes.value, 0) << to_message(one);
        }
      }
      ++cases;
    }
    EXPECT_GT(cases, 100);
  }
}

TEST(ComputeBench, KeptBytesGrowWithLayersAndSamplesAndShrinkWithRecompute) {
  std::map<std::tuple<int, int, int, ir::Recompute>, double> kept;
  BenchRequest request = compute_request();
  request.kinds = {MeasurementKind::memory};
  for (const BenchCase& one : list_cases(request)) {
    if (one.key.block != ir::BlockKind::transformer) continue;
    const std::vector<Measurement> samples = measure(one, Precision::fp32);
    kept[{one.key.layers, one.key.tensor_parallel, one.key.micro_batch_size, one.key.recompute}] =
        samples.front().bytes.value;
  }
  const double one = kept.at({1, 1, 1, ir::Recompute::full});
  // Only inputs: 8 tokens of 16 numbers of 4 bytes for each layer.
  EXPECT_EQ(one, 8 * 16 * 4);
  EXPECT_EQ(kept.at({3, 1, 1, ir::Recompute::full}), 3 * one);
  EXPECT_EQ(kept.at({1, 1, 2, ir::Recompute::full}), 2 * one);
  const double all = kept.at({1, 1, 1, ir::Recompute::none});
  EXPECT_GT(all, one);
  EXPECT_EQ(kept.at({3, 1, 1, ir::Recompute::none}), 3 * all);
  EXPECT_LT(kept.at({1, 2, 1, ir::Recompute::none}), all);
}

TEST(ComputeBench, SamplesThatAreThereAreNotTakenAgain) {
  BenchRequest request = compute_request();
  for (const BenchCase& one : list_cases(request)) {
    const auto backend = make_cpu_backend(Precision::fp32);
    ComputeBench bench(*backend, tiny_model(), system_bench_clock());
    Measurement there = one.key;
    there.wall = Seconds{1e-5};
    std::vector<Measurement> before = {there, there};
    before.back().repetition = 1;
    BenchSink sink;
    sink.sample = [&](const Measurement&) { ADD_FAILURE() << to_message(one); };
    bench.run(one, two_repetitions(), before, sink);
  }
}

TEST(ComputeBench, TheProgramThatDoesNothingIsWellFormedAndRuns) {
  const ir::Program program = empty_program(tiny_model(), 10);
  EXPECT_EQ(ir::find_defect(program), "");
  EXPECT_TRUE(find_unsupported(program).empty());
  EXPECT_TRUE(find_unrunnable(program).empty());
}

TEST(ComputeBench, AnInterruptionComesThroughBetweenRepetitions) {
  BenchRequest request = compute_request();
  request.kinds = {MeasurementKind::gemm};
  const BenchCase one = list_cases(request).front();
  const auto backend = make_cpu_backend(Precision::fp32);
  ComputeBench bench(*backend, tiny_model(), system_bench_clock());
  int samples = 0;
  BenchSink sink;
  sink.sample = [&](const Measurement&) { ++samples; };
  sink.check = [&] {
    if (samples == 1) throw BenchInterrupted();
  };
  EXPECT_THROW(bench.run(one, two_repetitions(), {}, sink), BenchInterrupted);
  EXPECT_EQ(samples, 1);
}

}  // namespace
}  // namespace orrery::executor::compute_bench_test
