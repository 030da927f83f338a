/// Draws the figure of a sweep with the manifest's plot script.
#pragma once
#include <string>
#include <vector>

#include "experiments/runner/manifest.h"

namespace orrery::experiments {

struct FigureResult {
  std::vector<std::string> files;  ///< As the script prints them, one per line.
  std::string problem;             ///< "" when it went well.
};

/// Runs `/usr/bin/python3 <plot> --runs runs.csv --published published.csv --out <out_folder>`
/// (without --published if the manifest has none).
FigureResult draw_figure(const Manifest& manifest, const std::string& runs_csv,
                         const std::string& out_folder);

}  // namespace orrery::experiments
