/// orrery validate: reads files as the other commands do and names every problem.
#include "experiments/study/validate.h"

#include <fmt/format.h>

#include "experiments/execution/twin_manifest.h"
#include "tools/cli/command.h"
#include "tools/cli/output.h"

namespace orrery::tools {
namespace {

using experiments::ValidateResult;
using experiments::ValidateSettings;

ValidateResult validate(const ValidateSettings& settings, const experiments::Call&) {
  const auto check_twin = [](const std::string& path, const models::Library&,
                             config::Diagnostics& diagnostics) {
    config::load_file<experiments::TwinManifest>(path, diagnostics);
    return std::string();
  };
  return experiments::validate_files(settings, {{"twin", check_twin}});
}

void print_validation(const ValidateResult& result, const ValidateSettings&) {
  config::Diagnostics all;
  for (const experiments::CheckedFile& file : result.files) {
    if (file.problems.empty()) {
      print(fmt::format("{}: {} ({})\n", file.path, good("ok"), file.content));
    }
    for (const config::Problem& each : file.problems) all.add(each.at, each.what, each.hint);
  }
  flush();
  all.raise();
}

}  // namespace

extern const Command kValidate;
const Command kValidate =
    command<validate, print_validation>("validate", "Check files: every problem with its place",
                                        "validate models/library/clusters/hexiscale_240.yaml "
                                        "models/library/gpus.yaml");

}  // namespace orrery::tools
