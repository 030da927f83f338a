#include "experiments/study/python_script.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "experiments/study/files.h"
#include "models/base/hash.h"
#include "models/base/subprocess.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kInterpreter = "/usr/bin/python3";
constexpr const char* kLastFolder = "experiments";

/// What PYTHONPATH names: the folder of the package `orrery`, next to this program.
fs::path package_root() { return fs::path(own_executable()).parent_path() / "python"; }

/// The compiled part of the package; empty where it is not built.
fs::path compiled_module() {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(package_root() / "orrery", error)) {
    if (entry.path().extension() == ".so") return entry.path();
  }
  return {};
}

/// What a line imports: "import a, b.c" and "from a.b import c, d", whose c may be a module as
/// well.
std::vector<std::string> imported_names(std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == ',' || c == '(' || c == ')'; }, ' ');
  std::istringstream words(line);
  std::string word, prefix;
  std::vector<std::string> names;
  words >> word;
  if (word == "from" && words >> prefix >> word) {
    names.push_back(prefix);
    prefix += '.';
  }
  if (word != "import") return {};
  while (words >> word) names.push_back(prefix + word);
  return names;
}

/// The script's folder and those above it, up to experiments/.
std::vector<fs::path> search_folders(const fs::path& script) {
  std::vector<fs::path> folders;
  for (fs::path folder = script.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    folders.push_back(folder);
    if (folder.filename() == kLastFolder) return folders;
  }
  return {script.parent_path()};
}

void add_with_imports(const fs::path& file, const std::vector<fs::path>& folders,
                      std::set<std::string>& files) {
  if (!files.insert(file.string()).second) return;
  std::istringstream lines(read_text_file(file.string()));
  for (std::string line; std::getline(lines, line);) {
    for (std::string name : imported_names(line)) {
      std::replace(name.begin(), name.end(), '.', '/');
      for (const fs::path& folder : folders) {
        const fs::path module = folder / (name + ".py");
        if (fs::is_regular_file(module)) add_with_imports(module, folders, files);
      }
    }
  }
}

}  // namespace

bool is_python_script(const std::string& word) { return fs::path(word).extension() == ".py"; }

std::optional<PythonProblem> find_python_problem() {
  if (!compiled_module().empty()) return std::nullopt;
  return PythonProblem{
      fmt::format("the Python package is not built in {}", package_root().string()),
      fmt::format("ninja -C {} orrery_python",
                  package_root().parent_path().parent_path().string())};
}

std::vector<std::string> python_command(const std::string& script) {
  return {"/usr/bin/env", "PYTHONPATH=" + package_root().string(), kInterpreter, "-B",
          fs::absolute(script).string()};
}

std::set<std::string> script_files(const std::string& script) {
  const fs::path path = fs::weakly_canonical(script);
  std::set<std::string> files;
  add_with_imports(path, search_folders(path), files);
  return files;
}

std::string hash_of_python(const std::string& script) {
  std::set<std::string> files = script_files(script);
  for (const auto& entry : fs::directory_iterator(package_root() / "orrery")) {
    if (entry.path().extension() == ".py") files.insert(entry.path().string());
  }
  files.insert(compiled_module().string());
  std::string text;
  for (const std::string& file : files) {
    text += fmt::format("{} {}\n", fs::path(file).filename().string(),
                        content_hash(read_text_file(file)));
  }
  return content_hash(text);
}

}  // namespace orrery::experiments
