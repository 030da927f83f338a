/// `ms,add|remove,NAME`: Bamboo's traces (uclasystem/bamboo, traces/*.csv), Parcae's p3trace, and
/// Oobleck's (SymbioticLab/Oobleck, tools/simulator/traces). Several lines of one millisecond are
/// one burst.
#include <fmt/format.h>

#include <algorithm>

#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

Trace read_add_remove(const ImportInput& input) {
  std::vector<Change> changes;
  Instant end;
  for_each_row(
      input, 3, "milliseconds,add|remove,name", "the file holds no events",
      [&](const ForeignRow& row) {
        const auto ms = row.integer(0, kLatestMillisecond);
        const bool comes = row.cells[1].text == "add";
        if (!comes && row.cells[1].text != "remove") {
          row.add_problem(1, fmt::format("'{}' is neither add nor remove", row.cells[1].text));
        } else if (row.cells[2].text.empty()) {
          row.add_problem(2, "no name of a node");
        } else if (ms) {
          changes.push_back(
              {{*ms * kMillisecond}, comes, row.cells[2].text, row.line, row.cells[2].column});
          end = std::max(end, changes.back().time);
        }
      });
  return from_changes(std::move(changes), end, input);
}

}  // namespace

extern const TraceFormat kBamboo, kOobleck;
const TraceFormat kBamboo = {"bamboo", "milliseconds,add|remove,name: Bamboo, Parcae's p3trace",
                             read_add_remove};
const TraceFormat kOobleck = {"oobleck", "the same of Oobleck", read_add_remove};

}  // namespace orrery::traces
