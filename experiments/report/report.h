/// `orrery report`: plans, a run, or the results of a study as one HTML file that opens without a
/// network.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "experiments/report/page.h"
#include "experiments/study/call.h"
#include "experiments/study/inputs.h"

namespace orrery::experiments {

struct ReportSettings {
  /// Plan files; or one folder: results of a study, a run of one, a run that was executed.
  std::vector<std::string> what;
  Text output;
  Text title;
  JobSettings job;      ///< Of plan files; of a run of a study they replace what it was given.
  JudgeSettings judge;  ///< Of plan files.
};
void describe(config::Visitor& v, ReportSettings& settings);

struct ReportResult {
  std::string file;
  std::int64_t bytes = 0;
  Page page;
};
void describe(config::Visitor& v, ReportResult& result);

/// The data of the page alone. Throws ConfigError for bad files.
Page report_page(const ReportSettings& settings, const Call& call,
                 config::Diagnostics problems = {});

/// Where the page that shows the data is: $ORRERY_REPORT_PAGE, or build/report/page.html of the
/// source tree, where `tools/orrery report` makes it.
std::string report_template();

/// Writes the report. Throws ConfigError for bad files, std::runtime_error where the page was never
/// built.
ReportResult report(const ReportSettings& settings, const Call& call,
                    config::Diagnostics problems = {});

}  // namespace orrery::experiments
