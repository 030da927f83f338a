// Readers of files and of the command line.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calibration/importers/chakra.h"
#include "calibration/importers/infragraph.h"
#include "calibration/importers/kineto.h"
#include "calibration/importers/metis.h"
#include "calibration/importers/nccl_tests.h"
#include "calibration/importers/node_topology.h"
#include "calibration/importers/sailor.h"
#include "calibration/importers/slurm_topology.h"
#include "experiments/study/validate.h"
#include "models/check/validate.h"
#include "models/config/diagnostics.h"
#include "models/ir/wire.h"
#include "models/spec/library.h"
#include "models/spec/model_file.h"
#include "tests/fuzz/targets.h"
#include "tools/cli/command_line.h"
#include "tools/commands/catalog.h"
#include "traces/csv.h"
#include "traces/import/import.h"

namespace orrery::fuzz {
namespace {

/// Read once: it is most of the time of small files.
const models::Library& library() {
  static const models::Library kRead = [] {
    config::Diagnostics diagnostics;
    return models::load_library(models::default_library_root(), diagnostics);
  }();
  return kRead;
}

}  // namespace

void validate(Input input) {
  const MemoryFile file(text_of(input));
  experiments::ValidateSettings settings;
  settings.files = {file.path()};
  experiments::validate_files(settings, library(), {});
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

void document(Input input) {
  const Chosen chosen = choose(input);
  const MemoryFile file(chosen.content);
  const std::string& path = file.path();
  config::Diagnostics d;
  if (chosen.reader == "cluster") {
    models::load_cluster(path, library(), {path, 0, 0}, d);
  } else if (chosen.reader == "model") {
    models::Job job;
    job.global_batch = 1;
    job.sequence_length = 128;
    models::load_workload(path, job, library(), {path, 0, 0}, d);
  } else if (chosen.reader == "huggingface") {
    const ir::ModelShape shape = models::load_huggingface(path, d);
    if (d.problems().empty()) models::build_workload(shape, 128, ir::Dtype::bf16);
  } else if (chosen.reader == "job") {
    models::load_job(path, d);
  } else if (chosen.reader == "plan") {
    const ir::Plan plan = models::load_plan(path, d);
    if (d.problems().empty()) models::plan_hash(plan);
  } else if (chosen.reader == "profile") {
    const ir::Profile profile = models::load_profile(path, d);
    if (d.problems().empty()) models::dump_profile(profile);
  }
}

void import(Input input) {
  const Chosen chosen = choose(input);
  const MemoryFile file(chosen.content);
  config::Diagnostics d;
  if (chosen.reader == "nccl-tests") {
    const ir::Profile profile = calibration::import_nccl_tests({file.path()}, "infiniband-200", d);
    if (d.problems().empty()) models::dump_profile(profile);
  } else if (chosen.reader == "nvidia-topo" || chosen.reader == "nccl-topo") {
    const calibration::NodeTopology node = chosen.reader == "nvidia-topo"
                                               ? calibration::read_nvidia_topo(file.path(), d)
                                               : calibration::read_nccl_topo(file.path(), d);
    if (d.problems().empty()) {
      calibration::node_yaml(node,
                             {.gpu = "H100-80GB",
                              .nvlink = "nvlink3",
                              .pcie = "pcie4-x16",
                              .nic = "infiniband-200",
                              .source = "here"},
                             d);
    }
  } else if (chosen.reader == "slurm-topology") {
    // A hundred thousand nodes may be named in a few bytes; to write their cluster takes 15 s here.
    if (calibration::read_slurm_topology(file.path(), d).size() < 1000) {
      calibration::import_slurm_topology(file.path(), "models/library/clusters/a100_8.yaml",
                                         library(), d);
    }
  } else if (chosen.reader == "infragraph") {
    calibration::import_infragraph(file.path(), {{{"", "H100-80GB"}}, {{"pcie", "pcie5-x16"}}},
                                   library(), d);
  } else if (chosen.reader == "metis-profile" || chosen.reader == "sailor-profile") {
    // Importers read folders.
    static const MemoryFolder kFolder;
    const bool metis = chosen.reader == "metis-profile";
    std::vector<std::string> names = {"DeviceType.A100_tp1_bs1.json"};
    if (!metis) {
      names = {"layer_times.csv", "optimizer_times.csv", "layer_memory.csv",
               "network_bandwidth.csv", "models.json"};
    }
    // A byte 1 is between files.
    std::string_view rest = chosen.content;
    for (const std::string& name : names) {
      const std::size_t end = std::min(rest.find('\1'), rest.size());
      std::ofstream(kFolder.path() / name, std::ios::binary) << rest.substr(0, end);
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    const std::string path = kFolder.path().string();
    const ir::Profile profile = metis ? calibration::import_metis_profile(path, {}, d)
                                      : calibration::import_sailor_profile(path, {}, d);
    if (d.problems().empty()) models::dump_profile(profile);
    for (const std::string& name : names) std::filesystem::remove(kFolder.path() / name);
  } else if (chosen.reader == "metis-cluster") {
    // The content again in two parts, hosts and cluster.
    const Chosen parts = choose(
        {reinterpret_cast<const std::uint8_t*>(chosen.content.data()), chosen.content.size()});
    const MemoryFile hosts(parts.reader);
    const MemoryFile cluster(parts.content);
    calibration::import_metis_cluster(hosts.path(), cluster.path(), {{"", "H100-80GB"}},
                                      calibration::BandwidthUnit::gigabytes, library(), d);
  }
}

void recorded_run(Input input) {
  // Importers read folders.
  static const MemoryFolder kFolder;
  const Chosen chosen = choose(input);
  const std::filesystem::path file =
      kFolder.path() / (chosen.reader == "chakra" ? "trace.0.et" : "trace.0.json");
  std::ofstream(file, std::ios::binary) << chosen.content;
  config::Diagnostics d;
  const calibration::RecordedRun run = chosen.reader == "chakra"
                                           ? calibration::read_chakra(kFolder.path().string(), d)
                                           : calibration::read_kineto(kFolder.path().string(), d);
  if (d.empty()) {
    const calibration::RecordedProgram made = calibration::to_program(run, 1, d);
    if (d.empty()) calibration::replayed_as_recorded(made.program, made.log);
  }
  std::filesystem::remove(file);
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
  // To make all commands takes much longer than to read a line: those that it may mean are
  // enough, and now and then it is all of them.
  std::vector<const tools::Command*> known;
  const bool all = input.size() % 64 == 0;
  for (const tools::Command* command : tools::commands()) {
    if (all || (!words[1].empty() && std::string_view(command->name).starts_with(words[1]))) {
      known.push_back(command);
    }
  }
  tools::parse_command_line(known, tools::command_groups(), "0", static_cast<int>(arguments.size()),
                            arguments.data());
}

}  // namespace orrery::fuzz
