#include "planners/modules/modules.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "models/base/file.h"
#include "models/base/hash.h"
#include "planners/catalog.h"
#include "planners/modules/add_to_catalog.h"
#include "planners/modules/module_stamp.h"
#include "planners/recovery/catalog.h"

namespace orrery::planners {
namespace {

namespace fs = std::filesystem;

std::vector<LoadedModule>& modules() {
  static auto* const all = new std::vector<LoadedModule>;
  return *all;
}

/// What a failed dlopen() or dlsym() says.
std::string last_error() {
  const char* text = dlerror();
  return text == nullptr ? "" : text;
}

/// Names of planners and policies are unique among their kind: the built-in ones come first.
template <class Entry, class Find>
void check_names(const std::vector<const Entry*>& entries, const char* kind, const Find& find,
                 const config::Position& at, config::Diagnostics& problems) {
  for (const Entry* entry : entries) {
    if (entry == nullptr || entry->name == nullptr || entry->options == nullptr ||
        entry->check == nullptr || entry->make == nullptr) {
      problems.add(at, fmt::format("a {} of the module is incomplete", kind),
                   "planner_entry<P>() and recovery_entry<P>() fill an entry in");
    } else if (find(entry->name) != nullptr) {
      const LoadedModule* other = module_with(entry->name);
      problems.add(at,
                   fmt::format("there is a {} '{}' already, {}", kind, entry->name,
                               other == nullptr ? "built in" : "from " + other->path),
                   "give it another name");
    }
  }
}

}  // namespace

const char* module_stamp() { return ORRERY_MODULE_STAMP; }

const std::vector<LoadedModule>& loaded_modules() { return modules(); }

const LoadedModule* module_with(const std::string& name) {
  const auto has = [&](const auto& entries) {
    for (const auto* entry : entries) {
      if (name == entry->name) return true;
    }
    return false;
  };
  for (const LoadedModule& one : modules()) {
    if (has(one.module.planners) || has(one.module.policies)) return &one;
  }
  return nullptr;
}

void load_module(const std::string& path, const config::Position& asked_at,
                 config::Diagnostics& problems) {
  std::error_code error;
  const std::string whole = fs::weakly_canonical(fs::absolute(path, error), error).string();
  std::string bytes;
  if (!fs::is_regular_file(whole, error) || read_file(whole, bytes)) {
    return problems.add(asked_at, fmt::format("cannot read the module '{}'", path));
  }
  for (const LoadedModule& one : modules()) {
    if (one.path == whole) return;
  }
  // Its own copy of the libraries serves the module; none of its names is seen by another one.
  void* const handle = dlopen(whole.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return problems.add(asked_at,
                        fmt::format("cannot load the module '{}': {}", path, last_error()));
  }
  const auto* const stamp = static_cast<const char*>(dlsym(handle, kModuleStamp));
  void* const function = dlsym(handle, kModuleFunction);
  if (stamp == nullptr || function == nullptr) {
    dlclose(handle);
    return problems.add(asked_at, fmt::format("'{}' is no module of Orrery", path),
                        "a module has one ORRERY_MODULE(...) (docs/howto/modules.md)");
  }
  if (std::string(stamp) != module_stamp()) {
    const std::string made_for = stamp;
    dlclose(handle);
    return problems.add(asked_at,
                        fmt::format("the module '{}' was built for Orrery {}, and this is {}", path,
                                    made_for, module_stamp()),
                        "build it again with the headers of this installation");
  }
  LoadedModule loaded{whole, content_hash(bytes), reinterpret_cast<Module (*)()>(function)()};
  config::Diagnostics found;
  check_names(loaded.module.planners, "planner", find_planner, asked_at, found);
  check_names(loaded.module.policies, "recovery policy", find_policy, asked_at, found);
  for (const config::Problem& problem : found.problems()) {
    problems.add(problem.at, problem.what, problem.hint);
  }
  if (!found.empty()) return;
  for (const PlannerEntry* entry : loaded.module.planners) add_to_catalog(*entry);
  for (const RecoveryEntry* entry : loaded.module.policies) add_to_catalog(*entry);
  modules().push_back(std::move(loaded));
}

void load_modules_of_environment(config::Diagnostics& problems) {
  const char* const given = std::getenv("ORRERY_MODULES");
  std::string paths = given == nullptr ? "" : given;
  for (std::size_t begin = 0; begin < paths.size();) {
    const std::size_t end = std::min(paths.find(':', begin), paths.size());
    if (end > begin) {
      load_module(paths.substr(begin, end - begin), {"ORRERY_MODULES", 0, 0}, problems);
    }
    begin = end + 1;
  }
}

}  // namespace orrery::planners
