// Published effective training times: by replay with the 99 % confidence interval of the mean,
// exact and additive closed form, and as published; Llama 3's interruptions in 54 days; Gemini's
// placement. CSV for plot.py.
//
//   llama3_ettr [SEEDS [FAILURES]]      default: 30 seeds of 2,000 failures
#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "experiments/llama3/ettr/ettr.h"
#include "planners/recovery/kit/checkpointing.h"

namespace {

using namespace orrery;
using namespace orrery::experiments;

/// 0: not a number in [2, 1e6].
int count_of(const char* text) {
  int count = 0;
  const auto result = std::from_chars(text, text + std::strlen(text), count);
  return result.ec == std::errc() && *result.ptr == 0 && count >= 2 && count <= 1'000'000 ? count
                                                                                          : 0;
}

void print_ettr(int seeds, int failures) {
  std::uint64_t seed = 0;
  for (const EttrPoint& point : ettr_points()) {
    std::vector<double> values;
    while (values.size() < static_cast<std::size_t>(seeds)) {
      values.push_back(replayed_ettr(point, ++seed, failures));
    }
    const MeanEstimate ours = estimate(values);
    const std::string interval = point.recovery == EttrRecovery::checkpoint
                                     ? fmt::format("{:.1f}", point.interval.value)
                                     : "";
    fmt::print("\"{}\",ettr,{},{:.1f},{:g},{},{:g},{},{:.5f},{:.5f},{:.5f},{:.5f},{},{},\"{}\"\n",
               point.name, point.gpus, mean_between_failures(point).value, point.restart.value,
               interval, point.stall.value, seeds, ours.mean, ours.half_width, exact_ettr(point),
               additive_ettr(point), point.published ? fmt::format("{:g}", *point.published) : "",
               point.published_is, point.source);
  }
}

void print_interruptions(int seeds) {
  std::vector<double> values;
  for (int seed = 1; seed <= seeds; ++seed) {
    values.push_back(static_cast<double>(llama3_interruptions(static_cast<std::uint64_t>(seed))));
  }
  const MeanEstimate ours = estimate(values);
  fmt::print("\"Llama 3, 54 days\",interruptions,16384,,,,,{},{:.2f},{:.2f},419,,419,measured,{}\n",
             seeds, ours.mean, ours.half_width, "arXiv 2407.21783");
}

void print_placement() {
  using planners::ReplicaPlacement;
  struct Row {
    const char* name;
    ReplicaPlacement placement;
    int lost;
    double published;
  };
  for (const Row& row : {Row{"Gemini, groups, 2 of 16 lost", ReplicaPlacement::mixed, 2, 0.933},
                         Row{"Gemini, groups, 3 of 16 lost", ReplicaPlacement::mixed, 3, 0.800},
                         Row{"Gemini, ring, 2 of 16 lost", ReplicaPlacement::ring, 2, 0.867}}) {
    fmt::print(
        "\"{}\",survival,,,,,,,{:.5f},,,,{:g},about,\"Gemini, SOSP 2023, 4.2 (unverified)\"\n",
        row.name, planners::replica_survival(16, 2, row.lost, row.placement), row.published);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int seeds = argc > 1 ? count_of(argv[1]) : 30;
  const int failures = argc > 2 ? count_of(argv[2]) : 2000;
  if (seeds == 0 || failures == 0 || argc > 3) {
    fmt::print(stderr, "usage: llama3_ettr [SEEDS [FAILURES]] (2 to 1000000 each)\n");
    return 2;
  }
  try {
    fmt::print(
        "point,quantity,gpus,mean_between_failures_s,restart_s,interval_s,stall_s,seeds,mean,"
        "half_width,exact,additive,published,published_is,source\n");
    print_ettr(seeds, failures);
    print_interruptions(seeds);
    print_placement();
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return 2;
  }
  return 0;
}
