#include "experiments/study/checks.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "experiments/study/files.h"
#include "experiments/study/store.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kData = "$ORRERY_DATA/";

std::string hash_of_file(const fs::path& path) {
  return content_hash(read_text_file(path.string()));
}

/// Pictures, texts, scripts and published values change no result.
bool decides_results(const fs::path& path) {
  static const std::set<std::string> kIgnored = {".md", ".py",  ".txt", ".cpp",
                                                 ".h",  ".pdf", ".png"};
  return !kIgnored.contains(path.extension().string()) && path.filename() != "published.csv" &&
         path.filename() != "CMakeLists.txt";
}

std::string hash_of_folder(const std::string& path, bool with_results) {
  std::set<fs::path> files;
  for (auto entry = fs::recursive_directory_iterator(path); entry != fs::end(entry); ++entry) {
    if (!with_results && entry->is_directory() &&
        Store::is_results_folder(entry->path().string())) {
      entry.disable_recursion_pending();
    } else if (entry->is_regular_file() && decides_results(entry->path())) {
      files.insert(entry->path());
    }
  }
  std::string text;
  for (const fs::path& file : files) {
    text += fmt::format("{} {}\n", file.lexically_relative(path).string(), hash_of_file(file));
  }
  return content_hash(text);
}

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

void describe_options(config::Visitor& v, std::map<std::string, std::string>& options,
                      std::map<std::string, config::Position>& positions, const char* doc) {
  config::Value given = config::Value::map({});
  for (const auto& [name, value] : options) given.append(name, config::Value::scalar(value));
  v.optional("options", given, doc);
  if (!v.reading()) return;
  options.clear();
  if (given.is_null()) return;
  if (!given.is_map()) {
    return v.problem("options", "expected a map, got " + config::kind_text(given));
  }
  for (const config::Value::Entry& entry : given.entries) {
    if (!entry.value.is_scalar()) {
      return v.problem("options", fmt::format("option '{}' is {}, not a value", entry.key,
                                              config::kind_text(entry.value)));
    }
    options[entry.key] = entry.value.text;
    positions[entry.key] = entry.value.at;
  }
}

std::optional<std::string> find_file(const config::Located<std::string>& name, const char* kind,
                                     const std::string& base_folder,
                                     config::Diagnostics& diagnostics) {
  const std::string path = (fs::path(base_folder) / name.value).string();
  std::error_code error;
  if (fs::is_regular_file(path, error)) return path;
  diagnostics.add(name.at, fmt::format("no such {} file '{}'", kind, path));
  return std::nullopt;
}

config::Located<std::string> beside_or_named(const config::Located<std::string>& name,
                                             const std::string& folder) {
  const std::string beside = (fs::path(folder) / name.value).string();
  std::error_code error;
  return fs::is_regular_file(beside, error) ? config::Located<std::string>{beside, name.at} : name;
}

void complete_job(config::Value& job, const std::string& folder, config::Diagnostics& problems) {
  if (job.is_map() && job.find("schema") == nullptr) {
    job.append("schema", config::Value::scalar("orrery/job/1"));
    job.entries.back().at = job.at;
    job.entries.back().value.at = job.at;
  }
  if (!job.is_scalar()) return;
  const std::string path = (fs::path(folder) / job.text).string();
  config::Diagnostics found;
  config::Value read = config::load_value(path, found);
  std::error_code error;
  if (!fs::exists(path, error)) {
    problems.add(job.at, fmt::format("no such job file '{}'", path));
  } else {
    for (const config::Problem& problem : found.problems()) {
      problems.add(problem.at, problem.what, problem.hint);
    }
  }
  job = std::move(read);
}

bool is_below_data(const std::string& path) { return path.rfind(kData, 0) == 0; }

std::string data_path(const std::string& path, const std::string& folder) {
  if (!is_below_data(path)) return (fs::path(folder) / path).string();
  const char* data = std::getenv("ORRERY_DATA");
  const fs::path root = data != nullptr && *data != '\0'
                            ? fs::path(data)
                            : fs::path(ORRERY_SOURCE_DIR).parent_path() / "shared";
  return (root / path.substr(std::string(kData).size())).string();
}

std::string hash_of_inputs(const std::string& path) {
  return fs::is_directory(path) ? hash_of_folder(path, true) : hash_of_file(path);
}

std::string hash_of_study(const std::string& folder) { return hash_of_folder(folder, false); }

}  // namespace orrery::experiments
