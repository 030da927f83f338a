/// orrery import: files of other systems as ours.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "calibration/importers/metis.h"
#include "calibration/importers/nccl_tests.h"
#include "calibration/importers/node_topology.h"
#include "calibration/importers/sailor.h"
#include "calibration/importers/slurm_topology.h"
#include "models/spec/library.h"
#include "tools/cli/command.h"
#include "tools/cli/flags.h"
#include "tools/cli/output.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

/// Files of other systems as ours.
struct ImportSettings {
  std::string what;                ///< metis-profile, nvidia-topo, ...; orrery import --help.
  std::vector<std::string> files;  ///< Or a folder.
  std::vector<std::string> gpus;   ///< TYPE=NAME
  std::vector<std::string> links;  ///< KIND=CLASS, or CLASS
  Text cluster;                    ///< Whose names count beside the library's.
  Text bandwidth_unit;
  Text output;
};

void describe(config::Visitor& v, ImportSettings& settings) {
  v.required("what", settings.what,
             "metis-profile, metis-cluster, sailor-profile, nccl-tests, nvidia-topo, nccl-topo or "
             "slurm-topology",
             {.positional = true});
  v.required(
      "file", settings.files,
      "metis-profile, sailor-profile: the folder; metis-cluster: host file and cluster file; "
      "nccl-tests: outputs of tests; nvidia-topo: output of nvidia-smi topo -m; nccl-topo: file of "
      "NCCL_TOPO_DUMP_FILE; slurm-topology: topology.conf and a cluster file with one node",
      {.positional = true});
  v.optional("gpu", settings.gpus,
             "TYPE=NAME: our name of a GPU type; NAME for profiles that do not say their type; may "
             "be repeated");
  v.optional("link", settings.links,
             "nccl-tests: link class that the ring crosses; nvidia-topo, nccl-topo: nvlink=CLASS, "
             "pcie=CLASS and nic=CLASS; may be repeated");
  v.optional("cluster", settings.cluster,
             "cluster whose GPU types and link classes --gpu and --link may name, too");
  v.optional("bandwidth_unit", settings.bandwidth_unit,
             "of the cluster file: GB/s (default) or B/s");
  v.optional("output", settings.output, "write to this YAML file", {.letter = 'o'});
}

constexpr std::size_t kAny = 0;  ///< As many files as there are.
struct Kind {
  const char* name;
  std::size_t files;
  const char* usage;
};
constexpr Kind kKinds[] = {{"metis-profile", 1, "metis-profile FOLDER"},
                           {"metis-cluster", 2, "metis-cluster HOSTFILE CLUSTERFILE"},
                           {"sailor-profile", 1, "sailor-profile FOLDER"},
                           {"nccl-tests", kAny, "nccl-tests FILE... --link CLASS"},
                           {"nvidia-topo", 1, "nvidia-topo FILE --gpu NAME --link pcie=CLASS ..."},
                           {"nccl-topo", 1, "nccl-topo FILE --gpu NAME --link pcie=CLASS ..."},
                           {"slurm-topology", 2, "slurm-topology TOPOLOGY.CONF NODE.yaml"}};

const Kind* asked_kind(const ImportSettings& args, config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    known.emplace_back(kind.name);
    if (args.what != kind.name) continue;
    if (kind.files == kAny || args.files.size() == kind.files) return &kind;
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
calibration::GpuNames gpu_names(const ImportSettings& args, config::Diagnostics& diagnostics) {
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

calibration::BandwidthUnit bandwidth_unit(const ImportSettings& args,
                                          config::Diagnostics& diagnostics) {
  const std::string text = args.bandwidth_unit.value_or("GB/s");
  if (text == "B/s") return calibration::BandwidthUnit::bytes;
  if (text != "GB/s") {
    diagnostics.add(at_flag("--bandwidth-unit"), fmt::format("unknown value '{}'", text),
                    config::suggest(text, {"GB/s", "B/s"}, "values"));
  }
  return calibration::BandwidthUnit::gigabytes;
}

/// The class of --link KIND=CLASS; with KIND "" that of --link CLASS.
std::string link_class(const ImportSettings& args, const std::string& kind) {
  std::string found;
  for (const std::string& text : args.links) {
    const std::size_t equals = text.find('=');
    const std::string own = equals == std::string::npos ? "" : text.substr(0, equals);
    if (own == kind) found = equals == std::string::npos ? text : text.substr(equals + 1);
  }
  return found;
}

/// GPU types and link classes that a cluster file can name: of the library, and of --cluster.
struct KnownNames {
  std::vector<std::string> gpus;
  std::vector<std::string> links;
};

KnownNames known_names(const ImportSettings& args, config::Diagnostics& diagnostics) {
  const models::Library library = open_library(diagnostics);
  KnownNames known;
  for (const auto& [name, gpu] : library.gpus) known.gpus.push_back(name);
  for (const auto& [name, link] : library.links) known.links.push_back(name);
  if (!args.cluster) return known;
  const models::Cluster cluster =
      models::load_cluster(*args.cluster, library, at_flag("--cluster"), diagnostics);
  for (const models::GpuType& gpu : cluster.gpu_types) known.gpus.push_back(gpu.name);
  for (const auto& [name, link] : cluster.links) known.links.push_back(name);
  return known;
}

/// A name that nothing knows makes a profile that no cluster uses, or a cluster that cannot be
/// loaded.
void check_known(const char* flag, const std::string& name, const std::vector<std::string>& known,
                 const char* what, config::Diagnostics& diagnostics) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = config::closest(name, known);
  diagnostics.add(
      at_flag(flag), fmt::format("unknown {} '{}'", what, name),
      fmt::format("{}orrery list {}s; --cluster FILE adds those of a cluster",
                  near.empty() ? std::string() : fmt::format("did you mean '{}'? ", near),
                  std::string_view(flag).substr(2)));
}

void check_gpu_names(const ImportSettings& args, const calibration::GpuNames& gpus,
                     config::Diagnostics& diagnostics) {
  if (args.gpus.empty() && args.links.empty() && !args.cluster) return;
  const KnownNames known = known_names(args, diagnostics);
  for (const auto& [type, name] : gpus) {
    check_known("--gpu", name, known.gpus, "GPU type", diagnostics);
  }
  for (const std::string& text : args.links) {
    const std::size_t equals = text.find('=');
    check_known("--link", equals == std::string::npos ? text : text.substr(equals + 1), known.links,
                "link class", diagnostics);
  }
}

/// Every --link must name what the import asks for.
void check_links(const ImportSettings& args, const std::vector<std::string>& kinds,
                 config::Diagnostics& diagnostics) {
  for (const std::string& text : args.links) {
    const std::size_t equals = text.find('=');
    const std::string own = equals == std::string::npos ? "" : text.substr(0, equals);
    if (std::find(kinds.begin(), kinds.end(), own) != kinds.end()) continue;
    diagnostics.add(at_flag("--link"), fmt::format("'{}' is not asked for", text),
                    fmt::format("orrery import {} --help", args.what));
  }
}

std::string import_nccl_tests(const ImportSettings& args, config::Diagnostics& diagnostics) {
  check_links(args, {""}, diagnostics);
  const std::string link = link_class(args, "");
  if (link.empty()) {
    diagnostics.add(at_flag("--link"), "missing", "the link class that the ring crosses");
  }
  return models::dump_profile(calibration::import_nccl_tests(args.files, link, diagnostics));
}

std::string import_node(const ImportSettings& args, const calibration::GpuNames& gpus,
                        config::Diagnostics& diagnostics) {
  check_links(args, {"nvlink", "pcie", "nic"}, diagnostics);
  const auto gpu = gpus.find("");
  const bool matrix = args.what == "nvidia-topo";
  const calibration::NodeNames names{
      .gpu = gpu == gpus.end() ? "" : gpu->second,
      .nvlink = link_class(args, "nvlink"),
      .pcie = link_class(args, "pcie"),
      .nic = link_class(args, "nic"),
      .source = fmt::format("imported from {}, {}",
                            std::filesystem::path(args.files[0]).filename().string(),
                            matrix ? "nvidia-smi topo -m" : "NCCL's topology")};
  const std::string& file = args.files[0];
  const calibration::NodeTopology topology = matrix
                                                 ? calibration::read_nvidia_topo(file, diagnostics)
                                                 : calibration::read_nccl_topo(file, diagnostics);
  if (!diagnostics.empty()) return "";
  return calibration::node_yaml(topology, names, diagnostics);
}

/// What would be overwritten: the files themselves, or those in a folder.
std::vector<std::string> inputs_of(const ImportSettings& args) {
  std::vector<std::string> files = args.files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(args.files.front(), error)) {
    files.push_back(entry.path().string());
  }
  return files;
}

}  // namespace

namespace {

int run(const ImportSettings& args) {
  config::Diagnostics diagnostics;
  const Kind* kind = asked_kind(args, diagnostics);
  const calibration::GpuNames names = gpu_names(args, diagnostics);
  const calibration::BandwidthUnit unit = bandwidth_unit(args, diagnostics);
  check_gpu_names(args, names, diagnostics);
  if (kind == nullptr) diagnostics.raise();
  const std::vector<OutputFile> outputs = {{"--output", args.output}};
  check_outputs(outputs, inputs_of(args), diagnostics);
  std::string text;
  if (kind == &kKinds[0]) {
    text =
        models::dump_profile(calibration::import_metis_profile(args.files[0], names, diagnostics));
  } else if (kind == &kKinds[2]) {
    text =
        models::dump_profile(calibration::import_sailor_profile(args.files[0], names, diagnostics));
  } else if (kind == &kKinds[3]) {
    text = import_nccl_tests(args, diagnostics);
  } else if (kind == &kKinds[4] || kind == &kKinds[5]) {
    text = import_node(args, names, diagnostics);
  } else if (kind == &kKinds[6]) {
    text = calibration::import_slurm_topology(args.files[0], args.files[1], diagnostics);
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

}  // namespace

extern const Command kImport;
const Command kImport = printing_command<ImportSettings, run>(
    "import", "Read files of other systems: profiles, measurements, topologies",
    "import metis-cluster tests/calibration/metis/hostfile "
    "tests/calibration/metis/clusterfile.json");

}  // namespace orrery::tools
