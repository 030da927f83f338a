/// Python scripts as steps of studies: they lie next to the file of the study, import the package
/// `orrery` of this build tree and modules of their own from their folder and the folders above it
/// up to experiments/, and are run by Debian's Python.
#pragma once
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace orrery::experiments {

/// Whether the first word of a command is a script: "predict.py".
bool is_python_script(const std::string& word);

/// Why scripts cannot run here, in words, and what to do; none where the package is built.
struct PythonProblem {
  std::string what;
  std::string hint;
};
std::optional<PythonProblem> find_python_problem();

/// The words before the script's arguments. `script`: its path.
std::vector<std::string> python_command(const std::string& script);

/// Paths of the script and of all modules that it imports from its folder and those above, directly
/// or through each other. Throws std::runtime_error where one cannot be read.
std::set<std::string> script_files(const std::string& script);

/// Hash of the package and of script_files(). The package must be built.
std::string hash_of_python(const std::string& script);

}  // namespace orrery::experiments
