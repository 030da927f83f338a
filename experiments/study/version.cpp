#include "experiments/study/version.h"

#include <algorithm>

#include "models/base/check.h"
#include "models/base/hash.h"
#include "planners/modules/modules.h"

namespace orrery::experiments {
namespace {

/// Digits that tell versions apart.
constexpr std::size_t kShown = 8;

const SourceHash* find_hash(const std::string& part) {
  const auto& all = source_hashes();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const SourceHash& one) { return one.part == part; });
  return found == all.end() ? nullptr : &*found;
}

std::string part_of_module(const planners::LoadedModule& module) {
  return "module " + module.digest;
}

CodeParts parts_of(const char* kind, const std::string& name) {
  if (const planners::LoadedModule* module = planners::module_with(name)) {
    return {part_of_module(*module)};
  }
  const std::string part = std::string(kind) + " " + name;
  const SourceHash* known = find_hash(part);
  if (known == nullptr) return {};
  return known->asks_all ? all_parts() : CodeParts{part};
}

}  // namespace

CodeParts parts_of_planner(const std::string& name) { return parts_of("planner", name); }

CodeParts parts_named_in(const config::Value& settings) {
  if (settings.is_scalar()) {
    CodeParts parts = parts_of_planner(settings.text);
    parts.merge(parts_of("policy", settings.text));
    return parts;
  }
  CodeParts parts;
  for (const config::Value& item : settings.items) parts.merge(parts_named_in(item));
  for (const config::Value::Entry& entry : settings.entries) {
    parts.merge(parts_named_in(entry.value));
  }
  return parts;
}

CodeParts all_parts() {
  CodeParts parts;
  for (const SourceHash& one : source_hashes()) {
    if (!one.part.empty()) parts.insert(one.part);
  }
  for (const planners::LoadedModule& module : planners::loaded_modules()) {
    parts.insert(part_of_module(module));
  }
  return parts;
}

std::string version_of(const CodeParts& parts) {
  const SourceHash* shared = find_hash("");
  ORRERY_CHECK(shared != nullptr, "the table of source hashes has no shared part");
  std::string all = shared->hash + "\n";
  for (const std::string& part : parts) {
    const SourceHash* known = find_hash(part);
    all +=
        part + " " + (known == nullptr ? "" : known->hash) + "\n";  // a module's name is its hash
  }
  return std::string(kVersionNumber) + "+" + content_hash(all).substr(0, kShown);
}

std::string program_version() { return version_of(all_parts()); }

}  // namespace orrery::experiments
