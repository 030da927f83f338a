/// orrery import: files of other systems as ours.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "calibration/metis_import.h"
#include "models/spec/library.h"
#include "tools/commands/commands.h"
#include "tools/commands/exports.h"
#include "tools/commands/inputs.h"
#include "tools/commands/output.h"

namespace orrery::tools {
namespace {

struct Kind {
  const char* name;
  std::size_t files;
  const char* usage;
};
constexpr Kind kKinds[] = {{"metis-profile", 1, "metis-profile FOLDER"},
                           {"metis-cluster", 2, "metis-cluster HOSTFILE CLUSTERFILE"}};

const Kind* kind_of(const ImportArgs& args, config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    known.emplace_back(kind.name);
    if (args.what != kind.name) continue;
    if (args.files.size() == kind.files) return &kind;
    diagnostics.add({args.what, 0, 0},
                    fmt::format("takes {} files, not {}", kind.files, args.files.size()),
                    fmt::format("orrery import {}", kind.usage));
    return nullptr;
  }
  diagnostics.add({"import", 0, 0}, fmt::format("unknown kind of file '{}'", args.what),
                  config::suggest(args.what, known, "kinds"));
  return nullptr;
}

/// "TYPE=NAME", or "NAME" for files that do not say their type.
calibration::GpuNames gpu_names(const ImportArgs& args, config::Diagnostics& diagnostics) {
  calibration::GpuNames names;
  for (const std::string& text : args.gpus) {
    const std::size_t equals = text.find('=');
    const std::string type = equals == std::string::npos ? "" : text.substr(0, equals);
    const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
    if (name.empty() || equals == 0) {
      diagnostics.add(at_flag("--gpu"), fmt::format("'{}' is not TYPE=NAME", text),
                      "as in --gpu A100=A100-80GB");
    } else if (!names.emplace(type, name).second) {
      diagnostics.add(at_flag("--gpu"), fmt::format("'{}' is given twice", type));
    }
  }
  return names;
}

calibration::BandwidthUnit bandwidth_unit(const ImportArgs& args,
                                          config::Diagnostics& diagnostics) {
  const std::string text = args.bandwidth_unit.value_or("GB/s");
  if (text == "B/s") return calibration::BandwidthUnit::bytes;
  if (text != "GB/s") {
    diagnostics.add(at_flag("--bandwidth-unit"), fmt::format("unknown value '{}'", text),
                    config::suggest(text, {"GB/s", "B/s"}, "values"));
  }
  return calibration::BandwidthUnit::gigabytes;
}

/// What would be overwritten: the files themselves, or those in a folder.
std::vector<std::string> inputs_of(const ImportArgs& args) {
  std::vector<std::string> files = args.files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(args.files.front(), error)) {
    files.push_back(entry.path().string());
  }
  return files;
}

}  // namespace

int execute(const ImportArgs& args) {
  config::Diagnostics diagnostics;
  const Kind* kind = kind_of(args, diagnostics);
  const calibration::GpuNames names = gpu_names(args, diagnostics);
  const calibration::BandwidthUnit unit = bandwidth_unit(args, diagnostics);
  if (kind == nullptr) diagnostics.raise();
  const std::vector<OutputFile> outputs = {{"--output", args.output}};
  check_outputs(outputs, inputs_of(args), diagnostics);
  std::string text;
  if (kind == &kKinds[0]) {
    text =
        models::dump_profile(calibration::import_metis_profile(args.files[0], names, diagnostics));
  } else {
    const models::Library library = open_library(diagnostics);
    text = calibration::import_metis_cluster(args.files[0], args.files[1], names, unit, library,
                                             diagnostics);
  }
  diagnostics.raise();
  probe_outputs(outputs);
  if (args.output) {
    write_file(*args.output, text);
  } else {
    print(text);
  }
  return 0;
}

}  // namespace orrery::tools
