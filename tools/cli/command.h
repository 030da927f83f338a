/// A command: its name and texts, its settings as a described struct (models/config/visitor.h), and
/// what it does. Flags, their help and the messages about wrong values follow from the description
/// (tools/cli/flags.h). One file a command in tools/commands/, listed in
/// tools/commands/catalog.cpp.
#pragma once
#include "models/config/document.h"

namespace orrery::tools {

struct Command {
  const char* name;     ///< "plan"; of a group's command both words: "trace stats".
  const char* summary;  ///< One line.
  const char* example;  ///< Arguments behind "orrery".
  const char* notes;    ///< Exit codes and the like, above the example; may be "".
  /// Describes default settings.
  void (*describe)(config::Visitor&);
  /// Reads settings from a map that the flags gave, and runs. Returns the exit status; throws
  /// config::ConfigError for bad input.
  int (*run)(const config::Value& given);
};

/// `Run` gets the settings and the problems found in them so far: it may look for more before it
/// raises them.
template <class Settings, int (*Run)(const Settings&, config::Diagnostics&)>
constexpr Command command(const char* name, const char* summary, const char* example,
                          const char* notes = "") {
  return {name,
          summary,
          example,
          notes,
          [](config::Visitor& v) {
            Settings settings{};
            describe(v, settings);
          },
          [](const config::Value& given) {
            Settings settings{};
            config::Diagnostics problems;
            config::describe_value(given, settings, problems);
            return Run(settings, problems);
          }};
}

/// The same for a command that has nothing to add to the problems of its flags.
template <class Settings, int (*Run)(const Settings&)>
constexpr Command command(const char* name, const char* summary, const char* example,
                          const char* notes = "") {
  return {name,
          summary,
          example,
          notes,
          [](config::Visitor& v) {
            Settings settings{};
            describe(v, settings);
          },
          [](const config::Value& given) {
            Settings settings{};
            config::Diagnostics problems;
            config::describe_value(given, settings, problems);
            problems.raise();
            return Run(settings);
          }};
}

/// Commands with a common first word: "trace".
struct CommandGroup {
  const char* name;
  const char* summary;
  const char* example;
};

}  // namespace orrery::tools
