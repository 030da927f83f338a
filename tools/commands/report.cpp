/// orrery report: a plan, a run or a study as one HTML file.
#include "experiments/report/report.h"

#include <fmt/format.h>

#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace orrery::tools {
namespace {

void print_written(const experiments::ReportResult& result, const experiments::ReportSettings&) {
  std::string text = bold(result.page.title) + "\n";
  for (const std::string& sentence : result.page.sentences) text += sentence + "\n";
  for (const experiments::PlanPage& plan : result.page.plans) {
    if (result.page.plans.size() > 1) text += "\n" + bold(plan.name) + "\n";
    for (const std::string& sentence : plan.sentences) text += sentence + "\n";
  }
  text += fmt::format("\nreport: {} ({:.1f} MB; open it in a browser)\n", result.file,
                      static_cast<double>(result.bytes) / 1e6);
  print(text);
}

}  // namespace

extern const Command kReport;
const Command kReport = command<experiments::report, print_written>(
    "report", "Write plans, a run or the results of a study as one HTML file",
    "report experiments/hexiscale/case_study/plans/hexiscale.yaml --cluster hexiscale_case_study "
    "--model llama2_13b --sequence-length 4096 -o report.html",
    "The page is bundled on the first call of tools/orrery report, which needs npm.");

}  // namespace orrery::tools
