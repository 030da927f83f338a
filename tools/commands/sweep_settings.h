/// Settings and progress that all commands have in common which sweep runs
/// (experiments/study/sweep.h).
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "experiments/study/sweep.h"
#include "models/config/visitor.h"
#include "tools/cli/progress.h"

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
  bool dry_run = false;
  bool no_figure = false;
  bool quiet = false;

  experiments::RunnerOptions options() const;
};
void describe(config::Visitor& v, SweepSettings& settings);

/// Shows what a sweep tells on a line; nothing if it is quiet or a dry run.
class SweepProgress {
 public:
  explicit SweepProgress(const experiments::RunnerOptions& options);
  std::function<void(const experiments::Progress&)> listener();

 private:
  ProgressLine line_;
};

}  // namespace orrery::tools
