#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/spec/profile_yaml.h"
#include "tests/models/spec/support.h"

namespace orrery::models::calibrated_profile_test {
namespace {

const char* const kCalibrated = R"(schema: orrery/profile/1
name: calibrated
links:
  - link_class: ib
    latency: 5125 ns
    bandwidth: 22 GB/s
    provenance:
      source: measured on cpu
      date: "2026-01-02T03:04:05Z"
      machine: two cores
      libraries: OpenBLAS 0.3.21
      samples: 108
      held_out_error: 0.03125
  - link_class: ib
    from_bytes: 64 KiB
    latency: 9 us
    bandwidth: 24 GB/s
    provenance: run 7
pass_overheads:
  - gpu: A100-80GB
    pass: backward_input
    time: 12 us
    provenance: run 7
overlap_losses:
  - gpu: A100-80GB
    share: 0.125
    provenance: run 7
exposed_collectives:
  - gpu: A100-80GB
    purpose: tensor_parallel
    share: 0.375
    provenance: run 7
optimizers:
  - gpu: A100-80GB
    dtype: fp32
    fixed: 30 us
    per_parameter: 0.0125 ns
    provenance: run 7
storage:
  - location: nvme
    write: false
    latency: 2 ms
    bandwidth: 3 GB/s
    provenance: run 7
  - location: nvme
    write: true
    latency: 0 ns
    bandwidth: 1 GB/s
    provenance: run 7
phases:
  - phase: detect
    time: 3 s
    provenance: run 7
kernels:
  - gpu: H100-80GB
    multiprocessors: 132
    products:
      - dtype: bf16
        best: 795 TFLOPS
        share: 0.8125
      - dtype: fp8
        best: 1403 TFLOPS
    attention: 0.5
    gap: 5 us
    routing: 30
    provenance: run 7
collective_ways:
  - link_class: nvlink4
    collective: all_reduce
    algorithm: ring
    protocol: ll128
    start: 15 us
    step: 1 us
    channels: 16
    channel_bandwidth: 8 GB/s
    provenance: run 7
)";

TEST(CalibratedProfile, ReadsAndWritesTheSameText) {
  config::Diagnostics problems;
  const ir::Profile profile = load_profile(file_with("calibrated.yaml", kCalibrated), problems);
  for (const config::Problem& problem : problems.problems()) {
    ADD_FAILURE() << config::to_string(problem);
  }
  ASSERT_EQ(profile.optimizers.size(), 1u);
  EXPECT_DOUBLE_EQ(profile.optimizers[0].per_parameter.value, 1.25e-11);
  EXPECT_EQ(profile.pass_overheads.at(0).pass, ir::Pass::backward_input);
  EXPECT_EQ(profile.storage.at(1).latency, Seconds{});
  EXPECT_EQ(profile.phases.at(0).time, Seconds{3});
  EXPECT_EQ(dump_profile(profile), kCalibrated);
}

TEST(CalibratedProfile, FittedNumbersReadBackEqual) {
  ir::Profile profile;
  profile.name = "fit";
  ir::Provenance from;
  from.source = "fit";
  for (int i = 1; i < 60; ++i) {
    const double odd = 1 + i / 7.0;
    profile.links.push_back({fmt::format("class{}", i), Bytes{8.0 * i}, Seconds{odd * 1e-6},
                             BytesPerSecond{1e9 / odd}, from});
    profile.optimizers.push_back({fmt::format("gpu{}", i), ir::Dtype::fp32, Seconds{odd * 1e-5},
                                  Seconds{odd * 1e-11}, from});
  }
  config::Diagnostics problems;
  const ir::Profile back = load_profile(file_with("fit.yaml", dump_profile(profile)), problems);
  EXPECT_TRUE(problems.empty());
  ASSERT_EQ(back.links.size(), profile.links.size());
  for (std::size_t i = 0; i < profile.links.size(); ++i) {
    EXPECT_EQ(back.links[i].latency.value, profile.links[i].latency.value);
    EXPECT_EQ(back.links[i].bandwidth.value, profile.links[i].bandwidth.value);
    EXPECT_EQ(back.optimizers[i].per_parameter.value, profile.optimizers[i].per_parameter.value);
  }
}

std::string problem_in(const std::string& body) {
  config::Diagnostics problems;
  config::load_text<ir::Profile>("schema: orrery/profile/1\nname: x\n" + body, "p.yaml", problems);
  return problems.empty() ? "" : config::to_string(problems.problems().front());
}

TEST(CalibratedProfile, UnknownNamesAreRefusedAtTheirPlace) {
  EXPECT_EQ(problem_in("collectives: [{collective: all_reduced, link_class: ib, ranks: 2, "
                       "factor: 1, provenance: x}]\n"),
            "p.yaml:3:28: no collective 'all_reduced' (one of all_reduce, reduce_scatter, "
            "all_gather, broadcast, all_to_all)");
  EXPECT_EQ(problem_in("storage: [{location: tape, write: true, bandwidth: 1 GB/s, "
                       "provenance: x}]\n"),
            "p.yaml:3:22: no storage 'tape' (one of host_memory, nvme, cloud)");
  EXPECT_NE(problem_in("pass_overheads: [{gpu: A, pass: sideways, time: 1 us, provenance: x}]\n")
                .find("p.yaml:3:33"),
            std::string::npos);
}

TEST(CalibratedProfile, ImpossibleValuesAreRefused) {
  EXPECT_NE(problem_in("storage: [{location: nvme, write: true, bandwidth: 0 GB/s, "
                       "provenance: x}]\n"),
            "");
  EXPECT_NE(problem_in("pass_overheads: [{gpu: A, pass: forward, time: -1 us, "
                       "provenance: x}]\n"),
            "");
  EXPECT_EQ(problem_in("overlap_losses: [{gpu: A, share: 0.9, provenance: x}]\n"),
            "p.yaml:3:34: must be from 0 to 0.8, is 0.9");
  EXPECT_NE(problem_in("overlap_losses: [{gpu: A, share: 0.1, provenance: x}, "
                       "{gpu: A, share: 0.2, provenance: x}]\n"),
            "");
  EXPECT_EQ(problem_in("exposed_collectives: [{gpu: A, purpose: data_parallel, share: 0.5, "
                       "provenance: x}]\n"),
            "p.yaml:3:41: unknown value 'data_parallel' (one of: tensor_parallel, "
            "sequence_parallel, expert_parallel, zero)");
  EXPECT_NE(problem_in("optimizers: [{gpu: A, per_parameter: 1 ns}]\n"), "") << "no source";
}

TEST(CalibratedProfile, KernelsWithoutSenseAreRefused) {
  const auto kernels = [](const std::string& products, const std::string& more = "") {
    return problem_in("kernels: [{gpu: A, multiprocessors: 8, products: [" + products + "]" + more +
                      ", provenance: x}]\n");
  };
  const std::string bf16 = "{dtype: bf16, best: 1 TFLOPS}";
  EXPECT_EQ(kernels(bf16), "");
  EXPECT_EQ(kernels("{dtype: fp8, best: 1 TFLOPS}"),
            "p.yaml:3:50: none in 16 bits (attention and the head compute in bf16)");
  EXPECT_EQ(kernels(bf16 + ", {dtype: tf32, best: 1 TFLOPS}"),
            "p.yaml:3:90: kernels have no products in tf32 (bf16, fp16, fp8, mxfp8 or fp4)");
  EXPECT_EQ(kernels(bf16 + ", " + bf16), "p.yaml:3:50: entries 0 and 1 are both about bf16");
  EXPECT_NE(kernels(bf16, ", memory: 0"), "");
  EXPECT_NE(kernels(bf16, ", attention: 3"), "");
  EXPECT_NE(kernels(bf16, ", gap: -1 us"), "");
  EXPECT_EQ(problem_in("collective_ways: [{link_class: a, collective: broadcast, algorithm: ring, "
                       "protocol: ll, start: 1 us, channel_bandwidth: 1 GB/s, provenance: x}]\n"),
            "p.yaml:3:47: no collective in ways 'broadcast' (one of all_reduce, all_gather, "
            "reduce_scatter)");
}

TEST(CalibratedProfile, TwoEntriesForOneThingAreRefused) {
  const std::string link =
      "{link_class: ib, from_bytes: 8 B, latency: 1 us, bandwidth: 1 GB/s, "
      "provenance: x}";
  EXPECT_EQ(problem_in("links: [" + link + ", " + link + "]\n"),
            "p.yaml:3:8: entries 0 and 1 are both about ib from 8 bytes");
  const std::string memory = "{gpu: A, fragmentation: 1.1, provenance: x}";
  EXPECT_EQ(problem_in("memory: [" + memory + ", " + memory + "]\n"),
            "p.yaml:3:9: entries 0 and 1 are both about A");
  const std::string curve = "{gpu: A, points: [{work: 1 TFLOP, efficiency: 0.5}], provenance: x}";
  EXPECT_EQ(problem_in("efficiencies: [" + curve + ", " + curve + "]\n"),
            "p.yaml:3:15: entries 0 and 1 are both about bf16 on A");
  const std::string block = "{gpu: A, pass: forward, sequence_length: 8, time: 1 ms, provenance: x";
  EXPECT_EQ(problem_in("block_times: [" + block + "}, " + block + ", micro_batch_size: 2}]\n"), "");
  EXPECT_EQ(problem_in("block_times: [" + block + "}, " + block + "}]\n"),
            "p.yaml:3:14: entries 0 and 1 are both about forward of transformer on A, tp 1, 1 "
            "samples of 8 tokens in bf16");
  EXPECT_NE(problem_in("phases: [{phase: detect, time: 1 s, provenance: x}, {phase: detect, "
                       "time: 2 s, provenance: x}]\n"),
            "");
}

}  // namespace
}  // namespace orrery::models::calibrated_profile_test
