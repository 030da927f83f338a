/// The file of a mixed-length experiment (`schema: orrery/mixed_length/1`): cluster and model, and
/// for each case a job with a distribution of lengths, and the systems with their strategies.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/subject.h"
#include "models/config/visitor.h"
#include "planners/mixed_length/strategy.h"

namespace orrery::experiments {

/// Bounds that keep a run within minutes.
inline constexpr int kMostSteps = 10'000;
inline constexpr std::int64_t kMostTokens = 10'000'000;

struct MixedLengthSystem {
  std::string name;                      ///< For tables and figures.
  config::Located<std::string> planner;  ///< Step planner.
  planners::StrategySet set;
};

struct MixedLengthCase {
  std::string name;
  /// The path of a job file seen from this one, or a job. `sequence_length` is the context: longer
  /// sequences are cut. `allowed` is not looked at: what may be used stands with each system; nor
  /// is `global_batch` beside tokens_per_step, and then it may be left out.
  config::Value job;
  std::vector<MixedLengthSystem> systems;
};

struct MixedLengthFile : Subject {
  config::Located<std::string> cluster;
  config::Located<std::string> model;  ///< In the library, or a path seen from the file.
  /// A step holds exactly so many; its last sequence is cut there. Without: as many sequences as
  /// the job's global batch says.
  std::optional<std::int64_t> tokens_per_step;
  int steps = 100;
  std::int64_t seed = 0;
  std::vector<MixedLengthCase> cases;
};

void describe(config::Visitor& v, MixedLengthSystem& system);
void describe(config::Visitor& v, MixedLengthCase& one);
void describe(config::Visitor& v, MixedLengthFile& file);

}  // namespace orrery::experiments
