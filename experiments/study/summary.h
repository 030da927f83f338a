/// What a run leaves behind, whatever its command: summary.json, effective.yaml, and the cells of
/// runs.csv.
#pragma once
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/config/value.h"
#include "models/interfaces/evaluator.h"

namespace orrery::experiments {

using Json = nlohmann::ordered_json;

/// Ten significant digits: what the models are good for, and equal across compilers.
inline double rounded(double value) {
  return std::strtod(fmt::format("{:.10g}", value).c_str(), nullptr);
}

/// A value of a summary as a cell of runs.csv; items of a list with bars between them.
std::string cell(const Json& value);

/// Begin of summary.json of a run that came to a result, or to a reason why there is none.
Json begin_summary(const std::string& hash, const std::optional<models::Infeasible>& infeasible);
/// summary.json of a run that came to nothing; `hash` names the run.
std::string failure_json(const std::string& hash, const std::string& reason);
/// As the file has it.
std::string summary_text(const Json& summary);
/// False for a text that is damaged or tells of another run than `hash`.
bool is_summary_of(const std::string& text, const std::string& hash);

using TextPairs = std::vector<std::pair<std::string, std::string>>;
/// A map of texts.
config::Value to_map(const TextPairs& entries);

/// Everything that the result of a run depends on.
struct Identity {
  config::Value settings;  ///< Every field, defaults included.
  TextPairs hashes;        ///< Contents of what the settings name; the version is added.
  /// The run may use any planner and policy, not only those that its settings name.
  bool uses_all = false;

  /// Of the code that the result depends on.
  std::string version() const;
  /// Names the run.
  std::string hash() const;
  /// effective.yaml: all of it, and SimGrid's settings.
  std::string effective_config(const TextPairs& simgrid) const;
};

/// Options of a planner or policy: "tau=3 rounds=50".
std::string options_text(const std::map<std::string, std::string>& options);

}  // namespace orrery::experiments
