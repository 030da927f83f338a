/// Planners and recovery policies out of shared libraries that were built apart from this program
/// (planners/modules/module.h): loaded once, before anything runs, and then found in the catalogs
/// by their names as those that are built in.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "planners/planner.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// What a module says of itself.
struct Module {
  std::vector<const PlannerEntry*> planners;
  std::vector<const RecoveryEntry*> policies;
};

/// Of this program: the version, and a hash of the headers that modules are compiled with and of
/// the compiler. A module has that of the installation that it was built with.
const char* module_stamp();

/// Names of what a module exports.
inline constexpr const char* kModuleStamp = "orrery_module_stamp";
inline constexpr const char* kModuleFunction = "orrery_module";

struct LoadedModule {
  std::string path;    ///< Absolute.
  std::string digest;  ///< Of the file, 16 hexadecimal digits.
  Module module;
};

/// Loads the module at `path` for the life of the process. Problems, at `asked_at`: no such file,
/// no module, one of another stamp, names that are taken. What is loaded already stays as it is.
void load_module(const std::string& path, const config::Position& asked_at,
                 config::Diagnostics& problems);
/// Those of $ORRERY_MODULES: paths with colons between them.
void load_modules_of_environment(config::Diagnostics& problems);

/// In the order in which they were loaded.
const std::vector<LoadedModule>& loaded_modules();
/// The module that brought the planner or policy; null: it is built in, or unknown.
const LoadedModule* module_with(const std::string& name);

}  // namespace orrery::planners
