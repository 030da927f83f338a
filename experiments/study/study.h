/// A study: a command carried out at every point of some axes, and the figure that its results end
/// in. The file of a study is called manifest.yaml (`schema: orrery/study/1`).
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "experiments/study/figure.h"
#include "models/config/diagnostics.h"
#include "models/config/value.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

inline constexpr const char* kStudyFile = "manifest.yaml";

struct StudyCommand;

/// As written. `settings` are those of the command (commands.h) for every run; an axis is
///   a setting           `model: [gpt3_125m, gpt3_1.3b]`, `job.global_batch: [8, 16]`
///   named cases         `case: [{name: small, model: gpt3_125m, job.global_batch: 8}, ...]`: maps
///                       of settings; a case may have `axes` of its own, which multiply with it
///                       alone and take the place of the study's of the same name
///   an option           `hexiscale.rounds: [10, 100]`: of the planner or policy of that name on
///                       another axis; runs of others do not multiply
struct Study {
  std::string name;   ///< Folder under results/, for example hexiscale/large_scale.
  std::string title;  ///< Of the figure.
  std::string about;  ///< What the paper did, what comes out.
  std::vector<std::string> assumptions;
  config::Located<std::string> command;
  std::string
      base;  ///< Assumptions of the paper (assumptions.h) in its folder or above; empty: none.
  config::Value settings = config::Value::map({});  ///< On top of the base's.
  config::Value axes = config::Value::map({});
  /// Points to leave out: values of some axes, the others are free.
  std::vector<config::Located<std::map<std::string, config::Value>>> exclude;
  config::Located<std::vector<std::int64_t>> seeds{{0}, {}};
  /// Planners that draw no random numbers: they run with the first seed only.
  std::vector<config::Located<std::string>> unseeded;
  std::vector<std::string> needs;    ///< Data below $ORRERY_DATA without which nothing runs.
  std::vector<std::string> publish;  ///< Files of runs that also go to the results folder itself.
  std::string plot;                  ///< Script next to the file; empty: no figure.
  std::string published;             ///< CSV next to the file; empty: none.

  std::string path;                ///< Of the file itself.
  std::string folder;              ///< That it lies in: paths are seen from here.
  std::string hash;                ///< Content hash of the file and its base.
  std::vector<std::string> notes;  ///< For people who read the results.

  FigureScript figure() const { return {folder, plot, published}; }
  /// Gives all runs a setting, over what settings, axes and cases say of it.
  void set(const std::string& setting, const config::Value& value);
  /// Gives the study an axis, in place of those of that name.
  void set_axis(const std::string& axis, std::vector<config::Value> values);
  /// The same, made of what the file says: of the study, and of each case with an axis of its own.
  void change_axis(
      const std::string& axis,
      const std::function<std::vector<config::Value>(const std::vector<config::Value>&)>& change);
  /// Removes axes of options, but of these planners or policies.
  void drop_option_axes(const std::vector<std::string>& keep);
};

void describe(config::Visitor& v, Study& study);

/// Problems: those of the file, an unknown command, scripts or published values that are not there.
/// Files of former schemas are told what to write.
Study load_study(const std::string& path, config::Diagnostics& diagnostics);

/// Writes out what is short for something else in a study that was made or changed here, as
/// load_study() does.
void resolve(Study& study, config::Diagnostics& diagnostics);

/// The command of a loaded study.
const StudyCommand& command_of(const Study& study);

/// JSON Schema (draft 2020-12) of studies, for editors.
std::string study_schema();
/// Markdown tables of the keys of studies and of the settings of each command.
std::string study_reference();

/// The former kinds of files, by their schema: "orrery/replay/1" and the like; "" for others. What
/// to write now, in words.
std::string former_schema_hint(const std::string& schema);

}  // namespace orrery::experiments
