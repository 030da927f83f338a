#include <gtest/gtest.h>

#include <filesystem>

#include "models/spec/lengths.h"
#include "models/spec/library.h"
#include "models/spec/profile_yaml.h"
#include "tests/models/spec/support.h"

namespace orrery::models::job_profile_test {
namespace {

std::string job_problem(const std::string& more,
                        const std::string& head = "global_batch: 64\nsequence_length: 2048\n") {
  config::Diagnostics problems;
  config::load_text<Job>("schema: orrery/job/1\n" + head + more, "j.yaml", problems);
  return problems.empty() ? "" : config::to_string(problems.problems().front());
}

TEST(JobYaml, ReadsEveryField) {
  config::Diagnostics problems;
  const Job job = load_job(file_with("job.yaml", R"(schema: orrery/job/1
global_batch: 1536
sequence_length: 4096
lengths: [{longest: 1024, share: 0.75}, {longest: 4096, share: 0.25}]
dtype: fp16
state_bytes: {gradient: 4}
optimizer: sgd
allowed:
  recompute: [none, selective, full]
  zero_stages: [0, 1]
  sequence_parallel: true
  max_tensor_parallel: 8
  max_micro_batch_size: 4
  schedules: [gpipe, 1f1b]
)"),
                           problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(job.global_batch, 1536);
  ASSERT_TRUE(job.lengths.has_value());
  EXPECT_EQ(job.lengths->buckets[1].longest, 4096);
  EXPECT_EQ(job.dtype, ir::Dtype::fp16);
  EXPECT_EQ(job.state_bytes.total(), 2 + 4 + 4 + 8);
  EXPECT_EQ(job.optimizer, ir::Optimizer::sgd);
  EXPECT_EQ(job.allowed.recompute.size(), 3u);
  EXPECT_EQ(job.allowed.schedules.back(), ir::ScheduleKind::one_f_one_b);
}

TEST(JobYaml, DumpReadsBackEqual) {
  Job job;
  job.global_batch = 8;
  job.sequence_length = 128;
  job.lengths = LengthDistribution{{{64, 0.5}, {128, 0.5}}};
  config::Diagnostics problems;
  const Job back = config::load_text<Job>(config::dump(job), "j.yaml", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(config::dump(back), config::dump(job));
}

TEST(JobYaml, RoundsOfGradientSynchronizationAreANumberOrEveryMicroBatch) {
  const auto read = [](const std::string& value) {
    config::Diagnostics problems;
    const Job job = config::load_text<Job>(
        "schema: orrery/job/1\nglobal_batch: 64\nsequence_length: 2048\n" + value, "j.yaml",
        problems);
    EXPECT_TRUE(problems.empty()) << value;
    return job;
  };
  EXPECT_EQ(read("").gradient_synchronizations, 1);
  EXPECT_EQ(read("gradient_synchronizations: 4\n").gradient_synchronizations, 4);
  const Job every = read("gradient_synchronizations: every_micro_batch\n");
  EXPECT_EQ(every.gradient_synchronizations, kEveryMicroBatch);
  EXPECT_NE(config::dump(every).find("gradient_synchronizations: every_micro_batch"),
            std::string::npos);
  // A job that does not ask for them is written, and hashed, as if there were none.
  EXPECT_EQ(config::dump(read("")).find("gradient_synchronizations"), std::string::npos);
  EXPECT_EQ(job_problem("gradient_synchronizations: 0\n"),
            "j.yaml:4:28: expected a number from 1 or every_micro_batch, got '0'");
  EXPECT_EQ(job_problem("gradient_synchronizations: each\n"),
            "j.yaml:4:28: expected a number from 1 or every_micro_batch, got 'each'");
  EXPECT_EQ(job_problem("gradient_synchronizations: [2]\n"),
            "j.yaml:4:28: expected a number from 1 or every_micro_batch, got a list");
  EXPECT_EQ(job_problem("lengths: [{longest: 8, share: 1}]\ngradient_synchronizations: 2\n"),
            "j.yaml:5:28: steps of mixed lengths synchronize once (leave it or `lengths` out)");
}

TEST(JobYaml, LengthsMayBeNamedAndStandInTheDump) {
  config::Diagnostics problems;
  const std::string head = "schema: orrery/job/1\nglobal_batch: 8\nsequence_length: 16384\n";
  const Job named = config::load_text<Job>(head + "lengths: github_like\n", "j.yaml", problems);
  const LengthModel model = load_lengths("github_like", default_library_root(), {}, problems);
  ASSERT_TRUE(problems.empty()) << config::to_string(problems.problems().front());
  ASSERT_TRUE(named.lengths.has_value());
  ASSERT_EQ(named.lengths->buckets.size(), model.distribution.buckets.size());
  // Longer than sequence_length: such sequences are cut.
  EXPECT_EQ(named.lengths->buckets.back().longest, model.distribution.buckets.back().longest);
  const Job back = config::load_text<Job>(config::dump(named), "j.yaml", problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(config::dump(back), config::dump(named));
}

TEST(JobYaml, LengthsMayLieBesideTheJob) {
  const std::string path = file_with("own_lengths.yaml",
                                     "schema: orrery/lengths/1\nname: own\nsource: test\n"
                                     "multiple: 64\nlengths: [{longest: 640, share: 1}]\n");
  const std::string job = file_with("own_job.yaml",
                                    "schema: orrery/job/1\nglobal_batch: 8\n"
                                    "sequence_length: 640\nlengths: " +
                                        std::filesystem::path(path).filename().string() + "\n");
  config::Diagnostics problems;
  const Job read = load_job(job, problems);
  ASSERT_TRUE(problems.empty()) << config::to_string(problems.problems().front());
  ASSERT_TRUE(read.lengths.has_value());
  EXPECT_EQ(read.lengths->buckets.front().longest, 640);
}

TEST(JobYaml, ImpossibleValuesAreRefusedAtTheirPlace) {
  EXPECT_EQ(job_problem(""), "");
  EXPECT_EQ(job_problem("", "global_batch: 0\nsequence_length: 1\n"),
            "j.yaml:2:15: must be at least 1, is 0");
  EXPECT_EQ(job_problem("lengths: [{longest: 8, share: 0.5}]\n"),
            "j.yaml:4:10: shares add up to 0.5, not to 1");
  EXPECT_EQ(job_problem("lengths: [{longest: 8, share: 0.5}, {longest: 8, share: 0.5}]\n"),
            "j.yaml:4:10: lengths do not ascend");
  EXPECT_EQ(job_problem("lengths: [{longest: 0, share: 1}]\n"),
            "j.yaml:4:21: must be at least 1, is 0");
  EXPECT_EQ(job_problem("lengths: []\n"), "j.yaml:4:10: no buckets");
  EXPECT_EQ(job_problem("lengths: commoncrawl_lik\n"),
            "j.yaml:4:10: no lengths 'commoncrawl_lik' (did you mean 'commoncrawl_like'?)");
  EXPECT_NE(job_problem("lengths: {longest: 8}\n").find("j.yaml:4:10: expected the name"),
            std::string::npos);
  EXPECT_EQ(job_problem("allowed: {zero_stages: [4]}\n"), "j.yaml:4:24: must be from 0 to 3, is 4");
  EXPECT_EQ(job_problem("hidden_collectives: [tensor_parallel, zero]\n"), "");
  EXPECT_EQ(job_problem("hidden_collectives: [tensor_parallel, pipeline]\n"),
            "j.yaml:4:39: unknown value 'pipeline' (one of: tensor_parallel, sequence_parallel, "
            "expert_parallel, zero)");
  Job made;
  made.hidden_collectives = {ir::Purpose::pipeline};  // Named where the dump is read.
  EXPECT_NE(config::dump(made).find("[pipeline]"), std::string::npos);
  EXPECT_EQ(job_problem("allowed: {schedules: []}\n"), "j.yaml:4:22: nothing is allowed");
  EXPECT_NE(job_problem("dtype: bf61\n").find("did you mean 'bf16'?"), std::string::npos);
  EXPECT_EQ(job_problem("state_bytes: {weight: 1e308}\n"),
            "j.yaml:4:23: must be from 0 to 1024, is 1e+308");
  EXPECT_EQ(job_problem("state_bytes: {weight: 0}\n"), "j.yaml:4:23: must be positive, is 0");
}

const char* const kProfile = R"(schema: orrery/profile/1
name: measured
block_times:
  - gpu: A100-80GB
    block: transformer
    pass: forward
    tensor_parallel: 2
    sequence_length: 2048
    dtype: bf16
    time: 3250 us
    provenance: "vTrain, Table 2"
efficiencies:
  - gpu: A100-80GB
    dtype: bf16
    points:
      - work: 1 TFLOP
        efficiency: 0.25
      - work: 8 TFLOP
        efficiency: 0.5
    provenance:
      source: run 7
      samples: 12
      held_out_error: 0.03
links:
  - link_class: ib
    from_bytes: 1 MiB
    latency: 5 us
    bandwidth: 22 GB/s
    provenance: unverified
collectives:
  - collective: all_reduce
    link_class: ib
    ranks: 8
    factor: 1.1
    provenance: run 7
memory:
  - gpu: A100-80GB
    context: 1 GiB
    fragmentation: 1.05
    provenance: run 7
)";

TEST(ProfileYaml, ReadsAndWritesTheSameText) {
  config::Diagnostics problems;
  const ir::Profile profile = load_profile(file_with("profile.yaml", kProfile), problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(profile.block_times[0].time, Seconds{3.25e-3});
  EXPECT_EQ(profile.block_times[0].provenance.source, "vTrain, Table 2");
  EXPECT_EQ(profile.efficiencies[0].provenance.held_out_error, 0.03);
  EXPECT_EQ(dump_profile(profile), kProfile);
}

TEST(ProfileYaml, NumbersWithoutSourceAreRefused) {
  for (const char* provenance : {"\"\"", "{source: \"\"}", "{date: today}"}) {
    config::Diagnostics problems;
    config::load_text<ir::Profile>(std::string("schema: orrery/profile/1\nname: x\nmemory: [{gpu: "
                                               "A, provenance: ") +
                                       provenance + "}]\n",
                                   "p.yaml", problems);
    ASSERT_EQ(problems.problems().size(), 1u) << provenance;
    EXPECT_EQ(problems.problems()[0].at.line, 3);
  }
}

TEST(ProfileYaml, TimesThatNoRunCanHoldAreRefusedAtTheirPlace) {
  const auto problem = [](const std::string& list) {
    config::Diagnostics problems;
    config::load_text<ir::Profile>("schema: orrery/profile/1\nname: x\n" + list, "p.yaml",
                                   problems);
    return problems.empty() ? "" : config::to_string(problems.problems().front());
  };
  const std::string pass = "pass_overheads:\n  - {gpu: A, provenance: x, pass: forward, time: ";
  EXPECT_EQ(problem(pass + "1 ms}\n"), "");
  EXPECT_EQ(problem(pass + "1e300 s}\n").substr(0, 13), "p.yaml:4:50: ");
  const std::string optimizer = "optimizers:\n  - {gpu: A, provenance: x, per_parameter: ";
  EXPECT_EQ(problem(optimizer + "1 ns, fixed: 1 ms}\n"), "");
  EXPECT_EQ(problem(optimizer + "1e300 s}\n").substr(0, 13), "p.yaml:4:44: ");
  EXPECT_EQ(problem(optimizer + "1 ns, fixed: 1e300 s}\n").substr(0, 13), "p.yaml:4:57: ");
  EXPECT_EQ(
      problem("links:\n  - {link_class: ib, provenance: x, bandwidth: 1 GB/s, latency: 1e300 s}\n")
          .substr(0, 13),
      "p.yaml:4:65: ");
  EXPECT_EQ(problem("phases:\n  - {phase: decide, provenance: x, time: 1e300 s}\n").substr(0, 13),
            "p.yaml:4:42: ");
}

TEST(ProfileYaml, CurvesMustAscend) {
  config::Diagnostics problems;
  config::load_text<ir::Profile>(
      "schema: orrery/profile/1\nname: x\nefficiencies: [{gpu: A, provenance: x, points: "
      "[{work: 2 FLOP, efficiency: 0.5}, {work: 1 FLOP, efficiency: 0.5}]}]\n",
      "p.yaml", problems);
  ASSERT_EQ(problems.problems().size(), 1u);
  EXPECT_EQ(problems.problems()[0].what, "point 1 does not ascend in work");
}

}  // namespace
}  // namespace orrery::models::job_profile_test
