/// Which code a result depends on. Sources that decide results fall into parts: one that all runs
/// share, and one for each planner and recovery policy, so that adding or changing one of these
/// says nothing about the results of the others. A loaded module (planners/modules/modules.h) is a
/// part, too.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "models/config/value.h"

namespace orrery::experiments {

/// Parts besides the shared one: "planner metis", "policy varuna", "module <digest of its file>".
using CodeParts = std::set<std::string>;

/// The planner itself, and those that it asks. Nothing for a class of Python or another name.
CodeParts parts_of_planner(const std::string& name);
/// All planners and policies whose names are values in the settings: what a run with them may use.
CodeParts parts_named_in(const config::Value& settings);
/// All that there is, for what may use any of it.
CodeParts all_parts();

/// Version of the program and hash of the shared part and of these: in every run's identity, so
/// that results of other code are not taken for its own.
std::string version_of(const CodeParts& parts);
/// version_of(all_parts()).
std::string program_version();

/// The table behind it, written at build time (cmake/source_hash.cmake).
struct SourceHash {
  std::string part;  ///< "": the shared one.
  std::string hash;
  bool asks_all = false;  ///< A planner that asks all others of the catalog.
};
const std::vector<SourceHash>& source_hashes();
extern const char* const kVersionNumber;

}  // namespace orrery::experiments
