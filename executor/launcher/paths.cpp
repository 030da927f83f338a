#include "executor/launcher/paths.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace orrery::executor {
namespace {

namespace fs = std::filesystem;

std::string problem_of_data(const RunSettings& settings) {
  const std::string& path = settings.data;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    return fmt::format("{}: {}", path, error ? error.message() : std::string("is no plain file"));
  }
  if (::access(path.c_str(), R_OK) != 0) {
    return fmt::format("{}: {}", path, std::strerror(errno));
  }
  const auto size = static_cast<std::int64_t>(fs::file_size(path, error));
  if (error) return fmt::format("{}: {}", path, error.message());
  if (size < settings.least_data_bytes) {
    return fmt::format("{}: {} bytes, a sample needs {}", path, size, settings.least_data_bytes);
  }
  return {};
}

std::string problem_of_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return fmt::format("{}: cannot be made: {}", path, error.message());
  if (::access(path.c_str(), R_OK | W_OK | X_OK) != 0) {
    return fmt::format("{}: {}", path, std::strerror(errno));
  }
  return {};
}

}  // namespace

std::vector<PathProblem> find_path_problems(const RunSettings& settings) {
  std::vector<PathProblem> out;
  const auto add = [&](const char* setting, std::string problem) {
    if (!problem.empty()) out.push_back({setting, std::move(problem)});
  };
  const auto add_folder = [&](const char* setting, const std::string& folder) {
    if (!folder.empty()) add(setting, problem_of_folder(folder));
  };
  if (!settings.data.empty()) add("data", problem_of_data(settings));
  add_folder("checkpoints", settings.local_checkpoints);
  add_folder("cloud", settings.cloud_checkpoints);
  return out;
}

}  // namespace orrery::executor
