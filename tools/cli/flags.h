/// Flags of the command line from described settings: the field `global_batch` is the flag
/// `--global-batch VALUE`, its doc is its help. bool: a flag without a value; a list: the flag
/// repeated, or `a,b,c` (Face::commas); a map: `--option NAME=VALUE`, repeated.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/config/visitor.h"

namespace CLI {
class App;
}

namespace orrery::tools {

/// One flag, and what the command line gave it.
struct Flag {
  enum class Kind { toggle, value, list, comma_list, map };
  std::string key;      ///< Of the settings.
  std::string display;  ///< In messages: "--global-batch", or the name of a positional.
  Kind kind = Kind::value;
  bool given = false;              ///< Of a toggle.
  std::string text;                ///< Of value and comma_list.
  std::vector<std::string> texts;  ///< Of list and map.
};

/// The flags of one command. They live as long as the app that they are added to.
class Flags {
 public:
  /// Adds the flags of `describe` to the app.
  void add(void (*describe)(config::Visitor&), CLI::App& app);
  /// What was given, as the map that a file would give; positions name the flags. Malformed
  /// NAME=VALUE and names that are given twice are problems.
  config::Value given(const CLI::App& app, config::Diagnostics& problems) const;

 private:
  std::vector<std::unique_ptr<Flag>> flags_;
};

/// Position of a flag in messages.
config::Position at_flag(const char* flag);

}  // namespace orrery::tools
