/// All cases of Figures 9 (losses at fixed intervals) and 10 (spot traces).
#pragma once
#include <string>
#include <vector>

#include "experiments/oobleck/throughput/compat.h"
#include "experiments/oobleck/throughput/honest.h"

namespace orrery::experiments {

struct OobleckRun {
  int figure = 9;
  std::string trace;  ///< 6h, 1h, 30m, 10m; p3, gcp.
  std::string model;  ///< Label.
  OobleckSystem system = OobleckSystem::oobleck;
  CompatResult compat;
  HonestResult honest;
};

/// From `data`/traces/oobleck; throws std::runtime_error on a file that is absent or broken.
std::vector<OobleckRun> run_cases(const std::string& data);

}  // namespace orrery::experiments
