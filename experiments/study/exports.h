/// Files that a simulated iteration leaves behind: timeline, run log, program.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// Paths; "" writes none.
struct Exports {
  std::string timeline;  ///< Perfetto (.perfetto-trace) or Chrome JSON (.json).
  std::string log;       ///< ir::RunLog.
  std::string program;   ///< ir::Program.
  bool any() const { return !timeline.empty() || !log.empty() || !program.empty(); }
};

/// Reports a timeline whose name has another ending, and files that a closed form cannot give.
void check_exports(const Exports& exports, CostModel cost, config::Diagnostics& diagnostics);

/// Where a command's main output goes when its setting names no file.
inline constexpr const char* kStandardOutput = "-";
/// The file of such a setting; none where it is standard output.
inline Text file_of(const Text& output) {
  return output && *output == kStandardOutput ? Text{} : output;
}

/// A text for a file, or for whoever asked where no file is named.
struct TextResult {
  std::string text;
  Text file;  ///< Where it was written.
};
void describe(config::Visitor& v, TextResult& result);

/// Writes the text if `output` names a file. Throws std::runtime_error if it cannot be written.
TextResult delivered_to(const Text& output, std::string text);

/// A file that a setting asks for.
struct OutputFile {
  const char* key;  ///< Of the setting.
  Text path;
};

/// Files that a job's settings name, for check_outputs().
std::vector<std::string> input_files(const JobSettings& job);

/// Reports empty paths, two settings for one file, and files that would overwrite an input.
void check_outputs(const std::vector<OutputFile>& outputs, const std::vector<std::string>& inputs,
                   config::Diagnostics& diagnostics);

/// Throws std::runtime_error if a file certainly cannot be written: before the work, not after it.
void probe_outputs(const std::vector<OutputFile>& outputs);

/// Reports a folder that is not there and cannot be made, or in which no file can be made. Makes
/// nothing.
void check_out_folder(const char* key, const std::string& path, config::Diagnostics& diagnostics);

/// Throws std::runtime_error if a file cannot be written.
void write_exports(const Exports& exports, const models::Cluster& cluster,
                   const ir::Program& program, const ir::RunLog& log);

}  // namespace orrery::experiments
