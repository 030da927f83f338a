/// A set of runs, as the sweep and its results folder see it: manifests (runner.h) and replay
/// studies (replay.h) are two of them.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "experiments/study/figure.h"

namespace orrery::experiments {

/// Wall-clock seconds that a run reports: go to timings.csv only.
struct RunSeconds {
  double planning = 0;
  double evaluation = 0;
};

class RunSet {
 public:
  virtual ~RunSet() = default;
  virtual std::size_t size() const = 0;
  /// Everything that the result of a run depends on, as a content hash; names the run's folder.
  virtual const std::string& hash(std::size_t run) const = 0;
  /// For progress and problems: "llama_30b hexiscale seed 1".
  virtual std::string in_words(std::size_t run) const = 0;
  /// Of runs.csv.
  virtual std::vector<std::string> columns() const = 0;
  /// Cells by column. `summary` is the text of the run's summary.json, or of a failure.
  virtual std::vector<std::string> row(std::size_t run, const std::string& summary) const = 0;
  /// False if the folder of a finished run lacks something that was asked for.
  virtual bool has_all(std::size_t run, const std::string& folder) const = 0;
  /// Does the run in this process, a forked child, and fills the folder, which is there;
  /// summary.json last. May tell now and then which share of the run is done. Throws
  /// std::system_error where a file cannot be written.
  virtual RunSeconds fill(std::size_t run, const std::string& folder,
                          const std::function<void(double)>& on_progress) const = 0;
  virtual FigureScript figure() const = 0;
};

}  // namespace orrery::experiments
