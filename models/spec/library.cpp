#include "models/spec/library.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "models/base/subprocess.h"
#include "models/config/document.h"
#include "models/spec/cluster_file.h"

namespace orrery::models {
namespace {

namespace fs = std::filesystem;

/// YAML files of a folder by stem.
std::map<std::string, std::string> yaml_files(const fs::path& folder) {
  std::map<std::string, std::string> files;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".yaml") {
      files[entry.path().stem().string()] = entry.path().string();
    }
  }
  return files;
}

template <class T>
void name_entries(std::map<std::string, T>& entries) {
  for (auto& [name, entry] : entries) entry.name = name;
}

}  // namespace

std::string default_library_root() {
  const char* given = std::getenv("ORRERY_LIBRARY");
  if (given != nullptr && *given != '\0') return given;
  const fs::path program = own_executable();
  const fs::path installed = program.parent_path().parent_path() / "share/orrery/library";
  std::error_code error;
  if (fs::exists(installed / "gpus.yaml", error)) return installed;
  return ORRERY_SOURCE_DIR "/models/library";
}

Library load_library(const std::string& root, config::Diagnostics& diagnostics) {
  Library library;
  library.root = root;
  const fs::path folder = root;
  library.gpus = config::load_file<GpuFile>((folder / "gpus.yaml").string(), diagnostics).gpus;
  library.links = config::load_file<LinkFile>((folder / "links.yaml").string(), diagnostics).links;
  name_entries(library.gpus);
  name_entries(library.links);
  library.models = yaml_files(folder / "models");
  library.clusters = yaml_files(folder / "clusters");
  library.profiles = yaml_files(folder / "profiles");
  return library;
}

std::optional<std::string> find_library_file(const std::string& name, const char* kind,
                                             const std::map<std::string, std::string>& entries,
                                             std::span<const char* const> extensions,
                                             const config::Position& asked_at,
                                             config::Diagnostics& diagnostics) {
  if (const auto known = entries.find(name); known != entries.end()) return known->second;
  const fs::path path = name;
  const bool named_as_file =
      name.find('/') != std::string::npos ||
      std::find(extensions.begin(), extensions.end(), path.extension()) != extensions.end();
  if (!named_as_file) {
    std::vector<std::string> names;
    for (const auto& entry : entries) names.push_back(entry.first);
    diagnostics.add(asked_at, fmt::format("unknown {} '{}'", kind, name),
                    config::suggest(name, names, fmt::format("{}s", kind)));
    return std::nullopt;
  }
  std::error_code error;
  if (fs::exists(path, error)) return name;
  const fs::path next_to_it = fs::path(asked_at.file).parent_path() / path;
  if (path.is_relative() && fs::exists(next_to_it, error)) return next_to_it.string();
  diagnostics.add(asked_at, fmt::format("no such {} file '{}'", kind, name));
  return std::nullopt;
}

Cluster load_cluster(const std::string& name, const Library& library, config::Position asked_at,
                     config::Diagnostics& diagnostics) {
  const auto path = find_library_file(name, "cluster", library.clusters,
                                      std::array{".yaml", ".yml"}, asked_at, diagnostics);
  if (!path) return {};
  const std::size_t before = diagnostics.problems().size();
  config::Value tree = config::load_value(*path, diagnostics);
  if (tree.is_null() && diagnostics.problems().size() != before) return {};
  ClusterFile file;
  if (!read_cluster_file(std::move(tree), file, diagnostics)) return {};
  if (diagnostics.problems().size() != before) return {};
  return resolve(file, library, diagnostics);
}

}  // namespace orrery::models
