#include "models/spec/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

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

/// The file that a cluster's name means: an entry of the library, or a path (with a slash or an
/// extension), seen from the current directory or else from the file that names it.
std::optional<std::string> find_cluster(const std::string& name, const Library& library,
                                        const config::Position& asked_at,
                                        config::Diagnostics& diagnostics) {
  if (const auto known = library.clusters.find(name); known != library.clusters.end()) {
    return known->second;
  }
  const fs::path path = name;
  if (name.find('/') == std::string::npos && path.extension() != ".yaml" &&
      path.extension() != ".yml") {
    std::vector<std::string> names;
    for (const auto& entry : library.clusters) names.push_back(entry.first);
    diagnostics.add(asked_at, fmt::format("unknown cluster '{}'", name),
                    config::suggest(name, names, "clusters"));
    return std::nullopt;
  }
  std::error_code error;
  if (fs::exists(path, error)) return name;
  const fs::path beside = fs::path(asked_at.file).parent_path() / path;
  if (path.is_relative() && fs::exists(beside, error)) return beside.string();
  diagnostics.add(asked_at, fmt::format("no such cluster file '{}'", name));
  return std::nullopt;
}

template <class T>
void name_entries(std::map<std::string, T>& entries) {
  for (auto& [name, entry] : entries) entry.name = name;
}

}  // namespace

std::string default_library_root() {
  const char* given = std::getenv("ORRERY_LIBRARY");
  if (given != nullptr && *given != '\0') return given;
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
  return library;
}

Cluster load_cluster(const std::string& name, const Library& library, config::Position asked_at,
                     config::Diagnostics& diagnostics) {
  const std::optional<std::string> path = find_cluster(name, library, asked_at, diagnostics);
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
