// Readers of files and of the command line.
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "experiments/study/import.h"
#include "experiments/study/validate.h"
#include "models/check/validate.h"
#include "models/config/diagnostics.h"
#include "models/ir/wire.h"
#include "tests/fuzz/targets.h"
#include "tools/cli/command_line.h"
#include "tools/commands/catalog.h"
#include "traces/csv.h"
#include "traces/import/import.h"

namespace orrery::fuzz {

void validate(Input input) {
  const MemoryFile file(text_of(input));
  experiments::ValidateSettings settings;
  settings.files = {file.path()};
  experiments::validate(settings, {});
}

void program(Input input) {
  const auto parsed = ir::parse_program(text_of(input));
  if (const auto* found = std::get_if<ir::Program>(&parsed)) ir::serialize(*found);
}

void run_log(Input input) {
  const auto parsed = ir::parse_run_log(text_of(input));
  if (const auto* found = std::get_if<ir::RunLog>(&parsed)) ir::serialize(*found);
}

void trace(Input input) {
  const MemoryFile file(text_of(input));
  config::Diagnostics diagnostics;
  const traces::Trace read = traces::read_trace(file.path(), diagnostics);
  if (diagnostics.problems().empty()) traces::write_trace(read);
}

void trace_import(Input input) {
  const Chosen chosen = choose(input);
  const MemoryFile file(chosen.content);
  for (const traces::TraceFormat& format : traces::trace_formats()) {
    if (chosen.reader != format.name) continue;
    config::Diagnostics diagnostics;
    const traces::Trace read =
        traces::import_trace(format.name, file.path(), traces::ImportOptions(), diagnostics);
    if (diagnostics.problems().empty()) traces::write_trace(read);
  }
}

void import(Input input) {
  const Chosen chosen = choose(input);
  const MemoryFile file(chosen.content);
  experiments::ImportSettings settings;
  settings.what = chosen.reader;
  settings.files = {file.path()};
  settings.gpus = {"H100-80GB"};
  if (chosen.reader == "nccl-tests") {
    settings.links = {"infiniband-200"};
  } else {
    settings.links = {"nvlink=nvlink3", "pcie=pcie4-x16", "nic=infiniband-200"};
  }
  if (chosen.reader == "slurm-topology") {
    settings.links.clear();
    settings.gpus.clear();
    settings.files.push_back("models/library/clusters/a100_8.yaml");
  }
  try {
    experiments::import_files(settings, {});
  } catch (const config::ConfigError&) {
    // Refused.
  }
}

void command_line(Input input) {
  std::vector<std::string> words = {"orrery"};
  words.emplace_back();
  for (const char c : text_of(input)) {
    if (c == '\n') {
      words.emplace_back();
    } else if (c != '\0') {
      words.back() += c;
    }
  }
  std::vector<const char*> arguments;
  for (const std::string& word : words) arguments.push_back(word.c_str());
  tools::parse_command_line(tools::commands(), tools::command_groups(), "0",
                            static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace orrery::fuzz
