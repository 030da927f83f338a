/// Draws the figure of a sweep with the plot script of its file.
#pragma once
#include <atomic>
#include <string>
#include <vector>

namespace orrery::experiments {

/// What an experiment's file says about its figure.
struct FigureScript {
  std::string folder;     ///< Of the file.
  std::string plot;       ///< Script in that folder; empty: no figure.
  std::string published;  ///< CSV in that folder; empty: none.
};

struct FigureResult {
  std::vector<std::string> files;  ///< As the script prints them, one per line.
  std::string problem;             ///< "" when it went well.
};

/// Runs `/usr/bin/python3 <plot> --runs runs.csv --published published.csv --out <out_folder>`
/// (without --published if there is none). Once `interrupted` is set, the script is ended, and the
/// problem says so.
FigureResult draw_figure(const FigureScript& script, const std::string& runs_csv,
                         const std::string& out_folder,
                         const std::atomic<bool>* interrupted = nullptr);

}  // namespace orrery::experiments
