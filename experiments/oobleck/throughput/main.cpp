// Oobleck's Figures 9 and 10: prints samples per second and shares of time of each model, trace and
// system, counted as the artifact does (compat.h) and by replay (honest.h). CSV for plot.py.
//
//   oobleck_throughput [DATA]      DATA: default $ORRERY_DATA, else shared/ next to the repository
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>

#include "experiments/oobleck/throughput/cases.h"

int main(int argc, char** argv) {
  using namespace orrery::experiments;
  const std::string data = argc > 1 ? argv[1] : data_folder(ORRERY_SOURCE_DIR);
  if (!std::filesystem::exists(data + "/traces/oobleck/throughput.csv")) {
    fmt::print(stderr, "skipped: no traces/oobleck/throughput.csv below {} (set ORRERY_DATA)\n",
               data);
    return 0;
  }
  try {
    fmt::print(
        "figure,trace,model,system,accounting,samples_per_second,effective,redundant,checkpoint,"
        "restart,fallback,idle\n");
    for (const OobleckRun& run : run_cases(data)) {
      const std::string key =
          fmt::format("{},{},{},{}", run.figure, run.trace, run.model, name_of(run.system));
      const CompatBreakdown& parts = run.compat.breakdown;
      const double sum = parts.sum();
      fmt::print("{},compat,{:.5f},{:.5f},{:.5f},{:.5f},{:.5f},{:.5f},\n", key,
                 run.compat.samples_per_second, parts.effective / sum, parts.redundant / sum,
                 parts.checkpoint / sum, parts.restart / sum, parts.fallback / sum);
      const HonestResult& own = run.honest;
      fmt::print("{},honest,{:.5f},{:.5f},,{:.5f},{:.5f},{:.5f},{:.5f}\n", key,
                 own.samples_per_second, own.effective, own.checkpoint, own.restart, own.fallback,
                 own.idle);
    }
  } catch (const std::exception& problem) {
    fmt::print(stderr, "{}\n", problem.what());
    return 2;
  }
  return 0;
}
