#include "experiments/study/study_files.h"

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <system_error>

#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

bool found(const std::string& path, config::Diagnostics& diagnostics) {
  std::error_code error;
  if (fs::exists(path, error)) return true;
  diagnostics.add({}, fmt::format("no such file or folder '{}'", path),
                  "orrery list experiments shows what there is");
  return false;
}

}  // namespace

std::string study_file(const std::string& given, config::Diagnostics& diagnostics) {
  found(given, diagnostics);
  std::error_code error;
  return fs::is_directory(given, error) ? (fs::path(given) / kStudyFile).string() : given;
}

Study load_study_of(const std::string& file, const std::string& command,
                    config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Study study = load_study(file, diagnostics);
  if (diagnostics.problems().size() == before && study.command.value != command) {
    diagnostics.add(study.command.at,
                    fmt::format("a study of `{}`, not of `{}`", study.command.value, command),
                    "orrery run runs all kinds");
  }
  return study;
}

std::string command_of_file(const std::string& file) {
  config::Diagnostics ignored;  // its reader says what is wrong with it
  const config::Value tree = config::load_value(file, ignored);
  const config::Value* value = tree.find("command");
  return value == nullptr ? "" : value->text;
}

std::vector<std::string> studies_below(const std::string& path, config::Diagnostics& diagnostics) {
  if (!found(path, diagnostics)) return {};
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::set<std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(path, error)) {
    if (entry.path().filename() == kStudyFile) files.insert(entry.path().string());
  }
  if (files.empty()) {
    diagnostics.add({}, fmt::format("no experiment in '{}' nor below it", path),
                    "orrery list experiments shows what there is");
  }
  return {files.begin(), files.end()};
}

}  // namespace orrery::experiments
