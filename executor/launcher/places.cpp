#include "executor/launcher/places.h"

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

std::vector<std::string> find_bad_places(const RunSettings& settings) {
  std::vector<std::string> out;
  const auto add = [&](std::string problem) {
    if (!problem.empty()) out.push_back(std::move(problem));
  };
  if (!settings.data.empty()) add(problem_of_data(settings));
  for (const std::string* folder : {&settings.local_checkpoints, &settings.cloud_checkpoints}) {
    if (!folder->empty()) add(problem_of_folder(*folder));
  }
  return out;
}

}  // namespace orrery::executor
