/// What two plans do differently and what it costs: what `orrery diff` does.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"

namespace orrery::experiments {

struct DiffSettings {
  JobSettings job;
  JudgeSettings judge;
  std::string first;
  std::string second;
};
void describe(config::Visitor& v, DiffSettings& settings);

/// One thing that differs; "-" where a plan has no such thing.
struct Difference {
  std::string where;
  std::string what;
  std::string first;
  std::string second;
};

void describe(config::Visitor& v, Difference& difference);

struct DiffResult {
  std::string cluster;
  std::string model;
  std::vector<Difference> differences;
  std::vector<RunReport> plans;  ///< The first and the second.
  LoadedRun inputs;              ///< Of the first; not described.
};
void describe(config::Visitor& v, DiffResult& result);

/// `problems`: those found in the settings so far.
DiffResult diff(const DiffSettings& settings, const Call& call, config::Diagnostics problems = {});

}  // namespace orrery::experiments
