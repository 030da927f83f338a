/// Reads files as the other functions do and names every problem: what `orrery validate` does.
#pragma once
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/inputs.h"

namespace orrery::config {
void describe(Visitor& v, Problem& problem);
}

namespace orrery::experiments {

struct ValidateSettings {
  JobSettings job;
  std::vector<std::string> files;
};
void describe(config::Visitor& v, ValidateSettings& settings);

/// What was found in one file.
struct CheckedFile {
  std::string path;
  std::string content;  ///< Kind, and what is in it, in words; "" where there are problems.
  std::vector<config::Problem> problems;
};
void describe(config::Visitor& v, CheckedFile& file);

struct ValidateResult {
  std::vector<CheckedFile> files;
};
void describe(config::Visitor& v, ValidateResult& result);
int exit_status(const ValidateResult& result);

ValidateResult validate(const ValidateSettings& settings, const Call& call);
/// The same with a library that was read before.
ValidateResult validate_files(const ValidateSettings& settings, const models::Library& library,
                              const Call& call);

}  // namespace orrery::experiments
