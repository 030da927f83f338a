/// JSON files as trees with positions, for importers of foreign formats.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/value.h"

namespace orrery::calibration {

/// Reads a JSON file (strictly: nothing that only YAML allows). False if that added problems.
bool load_json(const std::string& path, config::Value& root, config::Diagnostics& diagnostics);

/// Reads values below a tree; what is missing or of a wrong kind is reported with its position.
class JsonReader {
 public:
  /// Keeps references.
  JsonReader(const config::Value& root, config::Diagnostics& diagnostics)
      : root_(root), diagnostics_(diagnostics) {}

  /// The value at a dotted path; null, with a problem, where there is none.
  const config::Value* find(const std::string& path);
  std::string text(const std::string& path);
  /// A finite number of at least `low`, else `low`.
  double number(const std::string& path, double low);
  /// A finite number above 0, else 0.
  double positive(const std::string& path);
  /// As number(), a list of them, not empty.
  std::vector<double> numbers(const std::string& path, double low);
  void fail(const config::Value& at, std::string what, std::string hint = "");

 private:
  std::optional<double> parse(const config::Value& value, const std::string& path, double low);

  const config::Value& root_;
  config::Diagnostics& diagnostics_;
};

}  // namespace orrery::calibration
