/// Settings that all commands have in common which sweep runs
/// (experiments/study/sweep.h).
#pragma once
#include <optional>
#include <string>

#include "experiments/study/cache_setting.h"
#include "experiments/study/sweep.h"
#include "models/config/visitor.h"

namespace orrery::tools {

/// "2/4": every 4th run, from the 2nd on.
struct Shard {
  int index = 1;
  int count = 1;
};
void describe(config::Visitor& v, Shard& shard);
bool from_scalar(const std::string& text, Shard& out, std::string& error);

struct SweepSettings {
  std::string results = "results";
  std::optional<int> workers;
  std::optional<Shard> shard;
  std::optional<int> limit;
  bool dry_run = false;
  bool no_figure = false;
  bool quiet = false;
  experiments::CacheSetting cache;

  experiments::RunnerOptions options() const;
};
void describe(config::Visitor& v, SweepSettings& settings);

}  // namespace orrery::tools
