/// The commands that studies repeat. Adding one: a file that defines its StudyCommand, and its name
/// in commands.cpp.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/points.h"
#include "experiments/study/study.h"
#include "experiments/study/sweep.h"
#include "experiments/study/task.h"
#include "models/config/document.h"
#include "models/spec/library.h"

namespace orrery::experiments {

/// What is known of a command's settings: of one type.
struct SettingsText {
  std::vector<config::FieldText> (*fields)();
  std::string (*schema)();
  std::string (*reference)();
};

struct StudyCommand {
  const char* name;
  const char* summary;
  /// Settings that take the seed; the second and later ones where the study does not give them.
  std::vector<const char*> seeds;
  /// The setting that is a choice of a catalog ({name, options}); null: none. Axes of options lead
  /// to it.
  const char* choice;
  /// Whether `job` may be the path of a file, whose settings axes then change; else it stays a
  /// path.
  bool job_files = true;
  SettingsText settings;  ///< Of one run.
  /// Replaces what is short for something else in the axes of a study (`all`); null: nothing is.
  void (*resolve)(Study&, config::Diagnostics&);
  /// CSV that each run leaves in its folder, besides its row of runs.csv; null: none (task.h).
  const char* table;
  /// The runs. Adds what is wrong with the settings of any point, and with the files that they
  /// name.
  TaskList (*tasks)(const Study&, std::vector<Point>, const models::Library&, const RunnerOptions&,
                    config::Diagnostics&);
};

template <class Settings>
constexpr SettingsText settings_text() {
  return {[] { return config::field_texts<Settings>(); },
          [] { return config::json_schema<Settings>("Settings"); },
          [] { return config::reference_page<Settings>("Settings"); }};
}

const std::vector<const StudyCommand*>& study_commands();
/// Null for an unknown name.
const StudyCommand* find_study_command(const std::string& name);

/// Keys of a run's settings, those of maps in them not included.
std::vector<std::string> setting_names(const StudyCommand& command);

}  // namespace orrery::experiments
