/// AWS step function (uclasystem/bamboo, doc/data/aws-*.csv): `seconds,count`, two lines per
/// change, the count before it and the count after it. Files with one line per change are read too.
#include <fmt/format.h>

#include "traces/import/slots.h"
#include "traces/names.h"

namespace orrery::traces {
namespace {

Trace read_aws(const ImportInput& input) {
  std::vector<Count> counts;
  for_each_row(input, 2, "seconds,count", "the file holds no counts", [&](const ForeignRow& row) {
    config::TextError error;
    const auto time = parse_time(row.cells[0].text, error);
    if (!time) row.add_problem(0, error.what, error.hint);
    const auto count = row.integer(1, kMostInstances);
    if (!time || !count) return;
    if (!counts.empty() && *time < counts.back().time.nanoseconds) {
      return row.add_problem(0, fmt::format("time goes back: {} s after {} s", format_time(*time),
                                            format_time(counts.back().time.nanoseconds)));
    }
    counts.push_back({{*time}, static_cast<int>(*count)});
  });
  const Instant end = counts.empty() ? Instant{} : counts.back().time;
  return from_counts(counts, end, input);
}

}  // namespace

extern const TraceFormat kAws;
const TraceFormat kAws = {"aws", "seconds,count: a step function, two lines per change", read_aws};

}  // namespace orrery::traces
