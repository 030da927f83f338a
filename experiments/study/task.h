/// One run of a study as sweep and results folder see it: what it is called, what its row of
/// runs.csv says of its inputs, and how it is done.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/study/figure.h"
#include "experiments/study/points.h"

namespace orrery::experiments {

/// Wall-clock seconds that a run reports: go to timings.csv only.
struct RunSeconds {
  double planning = 0;
  double evaluation = 0;
};

struct Task {
  Point point;
  /// Everything that the result depends on, as a content hash; names the run's folder. Tasks of
  /// equal hashes share a result.
  std::string hash;
  std::string in_words;  ///< For progress and problems: "llama_30b hexiscale seed 1".
  std::string about;     ///< What tables say above the results of this and similar runs; may be "".
  std::map<std::string, std::string> inputs;  ///< Cells of runs.csv by column.
  /// Does the run in this process, a forked child, and fills the folder, which is there;
  /// summary.json last. May tell now and then which share of the run is done. Throws
  /// std::system_error where a file cannot be written.
  std::function<RunSeconds(const std::string& folder, const std::function<void(double)>& progress)>
      fill;
  /// The hash decides every byte of the files: no clock, no program outside of this one. Then they
  /// may be remembered (run_files.h).
  bool repeatable = false;
  /// False if the folder of a finished run lacks something that was asked for; null: never.
  std::function<bool(const std::string& folder)> has_all = nullptr;
};

/// All runs of a study, and what becomes of their results.
struct TaskList {
  /// Cells of runs.csv: a task's input of that name, else what its summary.json says.
  std::vector<std::string> columns;
  /// What summaries say beyond that has columns too, in the order in which it comes.
  bool open_columns = false;
  std::vector<Task> tasks;
  std::vector<std::string> skipped;  ///< What cannot run for want of data, in words.
  /// CSV that each run leaves in its folder: the results folder's has the rows of all. "": none.
  std::string table;
  std::vector<std::string> publish;  ///< Files of runs that also go to the results folder itself.
  FigureScript figure;               ///< Drawn from the table if there is one, else from runs.csv.
};

}  // namespace orrery::experiments
