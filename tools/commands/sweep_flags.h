/// Flags and progress that all commands have in common which sweep runs
/// (experiments/study/sweep.h).
#pragma once
#include <functional>

#include "experiments/study/sweep.h"
#include "models/config/diagnostics.h"
#include "tools/cli/args.h"
#include "tools/cli/progress.h"

namespace orrery::tools {

/// What the flags --results, --workers, --shard, --dry-run, --no-figure and --quiet say; problems
/// stand at their flags.
template <class Args>
experiments::RunnerOptions runner_options(const Args& args, config::Diagnostics& diagnostics);

extern template experiments::RunnerOptions runner_options(const RunArgs&, config::Diagnostics&);
extern template experiments::RunnerOptions runner_options(const ReplayArgs&, config::Diagnostics&);
extern template experiments::RunnerOptions runner_options(const MixedLengthArgs&,
                                                          config::Diagnostics&);

/// Shows what a sweep tells on a line; nothing if it is quiet or a dry run.
class SweepProgress {
 public:
  explicit SweepProgress(const experiments::RunnerOptions& options);
  std::function<void(const experiments::Progress&)> listener();

 private:
  ProgressLine line_;
};

}  // namespace orrery::tools
