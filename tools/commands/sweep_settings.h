/// Settings and progress that all commands have in common which sweep runs
/// (experiments/study/sweep.h).
#pragma once
#include <optional>
#include <string>

#include "experiments/study/cache_setting.h"
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
  std::optional<int> limit;
  bool dry_run = false;
  bool no_figure = false;
  bool quiet = false;
  experiments::CacheSetting cache;

  experiments::RunnerOptions options() const;
};
void describe(config::Visitor& v, SweepSettings& settings);

/// What a sweep on the command line is called with, as long as this lives: a line of progress
/// unless it is quiet, and Ctrl-C that keeps what is done.
class SweepCall {
 public:
  explicit SweepCall(bool quiet);
  SweepCall(const SweepCall&) = delete;
  SweepCall& operator=(const SweepCall&) = delete;
  const experiments::Call& call() const { return call_; }

 private:
  ProgressLine line_;
  experiments::Call call_;
  experiments::Cancellation::Listener listener_;
};

}  // namespace orrery::tools
