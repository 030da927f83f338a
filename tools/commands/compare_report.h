/// What `orrery compare` and `orrery twin` print of a comparison, and the CSV files that figures
/// are drawn from.
#pragma once
#include <string>
#include <vector>

#include "tools/commands/compare_run.h"

namespace orrery::tools {

/// Tables of all generations.
std::string comparison_text(const RunComparison& comparison);
/// One JSON document.
std::string comparison_json(const std::string& run, const RunComparison& comparison);

/// Rows side,rank,device,step,stream,kind,purpose,start_s,end_s,inner_s of the simulated iteration
/// and of the measured step whose length is the median: what tools/scripts/plot_compare.py draws.
std::string timeline_csv(const GenerationComparison& generation, int warm_up);

/// Where predicted times come from: those of ops, then those of checkpoints where there are any.
std::vector<std::string> comparison_prices(const GenerationComparison& generation);

/// +12.3 % or -4.0 %.
std::string error_cell(double error);

}  // namespace orrery::tools
