/// What plan, simulate and diff print about plans and their evaluation.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "experiments/study/exports.h"
#include "experiments/study/plan_text.h"
#include "models/ir/plan.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"

namespace orrery::tools {

/// Shows Perfetto and Chrome traces, in the browser.
inline constexpr const char* kTimelineViewer = "https://ui.perfetto.dev";

using experiments::block_ranges;
using experiments::by_group;
using experiments::by_segment;
using experiments::composition;
using experiments::id_ranges;
using experiments::tensor_parallel;

/// The text, unless it went to a file.
template <class Settings>
void print_text(const experiments::TextResult& result, const Settings&) {
  if (!result.file) print(result.text);
}

/// Sentence about cluster, model and job.
std::string job_line(const experiments::LoadedRun& run);

/// Sentence and a row for each stage. In a plan of more than kRowsShown stages, pipelines that are
/// equal but for their devices share their rows, with the devices of the first, unless `full`.
std::string plan_text(const ir::Plan& plan, const experiments::LoadedRun& run, bool full);
inline constexpr std::size_t kRowsShown = 24;

/// Pipelines, iteration time and where it goes, throughput, memory by GPU type. Pipelines that end
/// at equal times share a row; of more than kRowsShown rows the ends are shown, unless `full`.
std::string evaluation_text(const models::Evaluation& evaluation, const experiments::LoadedRun& run,
                            const ir::Plan& plan, bool full);

/// Heading and rows of the memory verdict.
std::string memory_text(const models::Evaluation& evaluation);

/// "fits", or the verdict's sentence, colored.
std::string verdict_text(const models::Evaluation& evaluation);

/// "+12.3 %", "-4.0 %" of a relative error; "-" where it is not finite.
std::string error_cell(double error);

/// "41.2 %"
std::string percent(double share);

/// "$1.234", "-" without prices.
std::string dollars(const models::Evaluation& evaluation);
double kwh_per_million_tokens(Joules per_token);

/// Sentence with the constraint and a witness.
std::string infeasible_text(const models::Infeasible& infeasible);

/// Prices that a report lists before it says how many more there are.
inline constexpr std::size_t kPricesShown = 12;

/// At most `most` lines, indented by two, and how many were left out.
std::string lines_text(const std::vector<std::string>& lines, std::size_t most);

}  // namespace orrery::tools
