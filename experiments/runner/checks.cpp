#include "experiments/runner/checks.h"

#include <fmt/format.h>

#include <filesystem>

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

}  // namespace

bool is_result_name(const std::string& name) {
  constexpr const char* kAllowed =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
  if (name.empty() || name.find_first_not_of(kAllowed) != std::string::npos) return false;
  for (const fs::path& part : fs::path(name)) {
    if (part.string().empty() || part.string().front() == '.' || part == "/") return false;
  }
  return true;
}

void check_beside(config::Visitor& v, const char* key, const std::string& file) {
  if (!v.reading() || file.empty()) return;
  const fs::path path = fs::path(v.at("").file).parent_path() / file;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    v.problem(key, fmt::format("no such file '{}'", path.string()),
              "paths are relative to this file");
  }
}

void check_result_name(config::Visitor& v, const std::string& name) {
  if (!v.reading() || !v.given("name") || is_result_name(name)) return;
  v.problem("name", fmt::format("'{}' is no folder below results/", name),
            "letters, digits, '_', '-', '.' and '/'");
}

}  // namespace orrery::experiments
