/// `ms,add|remove,NAME`: Bamboo's traces (uclasystem/bamboo, traces/*.csv), Parcae's p3trace, and
/// Oobleck's (SymbioticLab/Oobleck, tools/simulator/traces). Several lines of one millisecond are
/// one burst.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "models/config/units.h"
#include "traces/import_slots.h"
#include "traces/lines.h"

namespace orrery::traces {
namespace {

Trace read_add_remove(const std::string& path, const std::string& format,
                      const ImportOptions& options, config::Diagnostics& diagnostics) {
  std::vector<Change> changes;
  Instant end;
  {
    LineReader lines(path, diagnostics, options.most_lines);
    FileProblems problems(path, diagnostics, kMostImportProblems);
    std::string line;
    std::vector<Cell> cells;
    while (!problems.too_many() && lines.next(line)) {
      if (trimmed(line).empty()) continue;
      if (!split_cells(line, lines.number(), cells, problems)) continue;
      if (cells.size() != 3) {
        problems.add(lines.number(), 1, fmt::format("{} cells instead of 3", cells.size()),
                     "milliseconds,add|remove,name");
        continue;
      }
      config::TextError error;
      const auto ms = config::parse_integer(cells[0].text, 0, kLatestMillisecond, error);
      const bool comes = cells[1].text == "add";
      if (!ms) problems.add(lines.number(), cells[0].column, error.what, error.hint);
      if (!comes && cells[1].text != "remove") {
        problems.add(lines.number(), cells[1].column,
                     fmt::format("'{}' is neither add nor remove", cells[1].text));
      } else if (cells[2].text.empty()) {
        problems.add(lines.number(), cells[2].column, "no name of a node");
      } else if (ms) {
        changes.push_back(
            {{*ms * kMillisecond}, comes, cells[2].text, lines.number(), cells[2].column});
        end = std::max(end, changes.back().time);
      }
    }
    if (changes.empty() && !problems.any() && !lines.failed())
      problems.add(1, 1, "the file holds no events");
  }
  return from_changes(std::move(changes), end, path, format, options, diagnostics);
}

Trace read_bamboo(const std::string& path, const ImportOptions& options,
                  config::Diagnostics& diagnostics) {
  return read_add_remove(path, "bamboo", options, diagnostics);
}

Trace read_oobleck(const std::string& path, const ImportOptions& options,
                   config::Diagnostics& diagnostics) {
  return read_add_remove(path, "oobleck", options, diagnostics);
}

}  // namespace

extern const TraceFormat kBambooFormat;
extern const TraceFormat kOobleckFormat;
const TraceFormat kBambooFormat = {
    "bamboo", "milliseconds,add|remove,name: Bamboo, Parcae's p3trace", read_bamboo};
const TraceFormat kOobleckFormat = {"oobleck", "the same of Oobleck", read_oobleck};

}  // namespace orrery::traces
