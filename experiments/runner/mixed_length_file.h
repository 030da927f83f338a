/// The file of a mixed-length experiment (`schema: orrery/mixed_length/1`): cluster, model and job,
/// the distributions of lengths, and for each context length the systems with their strategies.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/config/visitor.h"
#include "models/spec/job.h"
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
  std::int64_t context = 0;  ///< Tokens.
  std::vector<MixedLengthSystem> systems;
};

struct MixedLengthFile {
  std::string name;  ///< Folder under results/.
  std::string title;
  std::string about;
  config::Located<std::string> cluster;
  config::Located<std::string> model;  ///< In the library, or a path seen from the file.
  models::StateBytes state_bytes;
  std::vector<config::Located<std::string>> lengths;
  std::int64_t tokens_per_step = 0;
  int steps = 100;
  std::int64_t seed = 0;
  std::vector<MixedLengthCase> cases;
  std::vector<std::string> assumptions;
  std::string plot;
  std::string published;
};

void describe(config::Visitor& v, MixedLengthSystem& system);
void describe(config::Visitor& v, MixedLengthCase& one);
void describe(config::Visitor& v, MixedLengthFile& file);

}  // namespace orrery::experiments
