/// AWS step function (uclasystem/bamboo, doc/data/aws-*.csv): `seconds,count`, two lines per
/// change, the count before it and the count after it. Lines of one change per instant are read
/// too.
#include <fmt/format.h>

#include <algorithm>

#include "models/config/units.h"
#include "traces/import_slots.h"
#include "traces/lines.h"
#include "traces/names.h"

namespace orrery::traces {
namespace {

Trace read_aws(const std::string& path, const ImportOptions& options,
               config::Diagnostics& diagnostics) {
  std::vector<Count> counts;
  {
    LineReader lines(path, diagnostics, options.most_lines);
    FileProblems problems(path, diagnostics, kMostImportProblems);
    std::string line;
    std::vector<Cell> cells;
    while (!problems.too_many() && lines.next(line)) {
      if (trimmed(line).empty()) continue;
      if (!split_cells(line, lines.number(), cells, problems)) continue;
      if (cells.size() != 2) {
        problems.add(lines.number(), 1, fmt::format("{} cells instead of 2", cells.size()),
                     "seconds,count");
        continue;
      }
      config::TextError error;
      const auto time = parse_time(cells[0].text, error);
      if (!time) problems.add(lines.number(), cells[0].column, error.what, error.hint);
      const auto count = config::parse_integer(cells[1].text, 0, kMostInstances, error);
      if (!count) problems.add(lines.number(), cells[1].column, error.what, error.hint);
      if (!time || !count) continue;
      if (!counts.empty() && *time < counts.back().time.nanoseconds) {
        problems.add(lines.number(), cells[0].column,
                     fmt::format("time goes back: {} s after {} s", format_time(*time),
                                 format_time(counts.back().time.nanoseconds)));
        continue;
      }
      counts.push_back({{*time}, static_cast<int>(*count)});
    }
    if (counts.empty() && !problems.any() && !lines.failed())
      problems.add(1, 1, "the file holds no counts");
  }
  const Instant end = counts.empty() ? Instant{} : counts.back().time;
  return from_counts(counts, end, path, "aws", options, diagnostics);
}

}  // namespace

extern const TraceFormat kAwsFormat;
const TraceFormat kAwsFormat = {"aws", "seconds,count: a step function, two lines per change",
                                read_aws};

}  // namespace orrery::traces
