/// Checks and parts that experiment files have in common.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "models/config/visitor.h"

namespace orrery::experiments {

/// A relative path of plain characters that stays below the results folder.
bool is_result_name(const std::string& name);

/// Reports `key` if its file does not exist next to the one that is read; nothing for "".
void check_beside(config::Visitor& v, const char* key, const std::string& file);

/// Reports `name` if it is no name of a result.
void check_result_name(config::Visitor& v, const std::string& name);

/// The key `options` of a planner or policy: a map of values, kept as text with their places.
void describe_options(config::Visitor& v, std::map<std::string, std::string>& options,
                      std::map<std::string, config::Position>& positions, const char* doc);

/// The path of a file that a spec names, seen from `base_folder`; a problem if it is not there.
std::optional<std::string> find_file(const config::Located<std::string>& name, const char* kind,
                                     const std::string& base_folder,
                                     config::Diagnostics& diagnostics);

/// The file of that name in `folder`, if there is one; else `name` as it is: of the library.
config::Located<std::string> beside_or_named(const config::Located<std::string>& name,
                                             const std::string& folder);

/// A job as an experiment file gives it: splices the job file that a scalar names, seen from
/// `folder`, or adds the `schema` that a job inside another file need not repeat.
void complete_job(config::Value& job, const std::string& folder, config::Diagnostics& problems);

/// `path` seen from `folder`; "$ORRERY_DATA/..." below that folder (default: ../shared next to the
/// source tree).
std::string data_path(const std::string& path, const std::string& folder);
bool is_below_data(const std::string& path);

/// Hash of a file, or of all files of a folder that decide results, with their names: not pictures,
/// texts, scripts and published values.
std::string hash_of_inputs(const std::string& path);
/// The same of a study's own folder, without results that are below it.
std::string hash_of_study(const std::string& folder);

/// As the file says it: one of enum_names().
template <class E>
const char* name_of_enum(E value) {
  for (const auto& [each, text] : enum_names(E{})) {
    if (each == value) return text;
  }
  return "";
}

}  // namespace orrery::experiments
