/// SkyPilot's spot traces (skypilot-org/spot-traces): {"metadata": {"gap_seconds": 300}, "data":
/// [16, ...]}: how many instances were available at each sample. A change happens at the
/// sample that shows it; the trace ends one gap after the last sample.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/base/file.h"
#include "models/config/json_text.h"
#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

using nlohmann::json;

/// The first that is no blank; 0: none. A long file of another format is not read to its end.
char first_character(const std::string& path) {
  std::ifstream file(path);
  char c = 0;
  return file >> c ? c : '\0';
}

Trace read_skypilot(const ImportInput& input) {
  const std::string& path = input.path;
  config::Diagnostics& diagnostics = input.diagnostics;
  if (input.options.most_lines > 0 && first_character(path) != '{') {
    diagnostics.add({path, 1, 1}, "this is no JSON");
    return {};
  }
  std::string text;
  if (const auto problem = read_file(path, text)) {
    diagnostics.add({path, 0, 0}, *problem);
    return {};
  }
  FileProblems problems(path, diagnostics, kMostImportProblems);
  if (text.empty()) {
    problems.add(1, 1, "the file is empty");
    return {};
  }
  json document;
  if (const auto fault = config::parse_json(text, document)) {
    const config::Position at = config::position_of_byte(path, text, fault->byte);
    problems.add(at.line, at.column, fault->what);
    return {};
  }
  const json gap =
      document.is_object() && document.contains("metadata") && document["metadata"].is_object()
          ? document["metadata"].value("gap_seconds", json())
          : json();
  if (!gap.is_number() || !(gap.get<double>() > 0) || gap.get<double>() > 1e9) {
    problems.add(1, 1, "no positive `gap_seconds` in `metadata`");
  }
  if (!document.is_object() || !document.contains("data") || !document["data"].is_array() ||
      document["data"].empty()) {
    problems.add(1, 1, "no list `data` of counts");
  }
  if (problems.any()) return {};
  std::vector<Count> counts;
  const Seconds step{gap.get<double>()};
  const auto samples = static_cast<double>(document["data"].size());
  if (step.value * samples > static_cast<double>(kLongestTime / kSecond)) {
    problems.add(1, 1,
                 fmt::format("{} samples every {} s are more than 100 years", samples, step.value));
    return {};
  }
  for (std::size_t i = 0; i < document["data"].size(); ++i) {
    const json& count = document["data"][i];
    if (!count.is_number() || !(count.get<double>() >= 0) || count.get<double>() > kMostInstances ||
        count.get<double>() != std::floor(count.get<double>())) {
      problems.add(
          1, 1,
          fmt::format("item {} of `data` is {}, not a number of instances", i + 1, count.dump()));
      continue;
    }
    counts.push_back({to_instant(step * static_cast<double>(i)), count.get<int>()});
  }
  const Instant end = to_instant(step * samples);
  return from_counts(counts, end, input);
}

}  // namespace

extern const TraceFormat kSkypilot;
const TraceFormat kSkypilot = {"skypilot", "JSON with gap_seconds and a list of counts",
                               read_skypilot};

}  // namespace orrery::traces
