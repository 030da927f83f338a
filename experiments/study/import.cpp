#include "experiments/study/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "calibration/importers/chakra.h"
#include "calibration/importers/infragraph.h"
#include "calibration/importers/kineto.h"
#include "calibration/importers/metis.h"
#include "calibration/importers/nccl_tests.h"
#include "calibration/importers/node_topology.h"
#include "calibration/importers/sailor.h"
#include "calibration/importers/slurm_topology.h"
#include "experiments/study/recorded.h"
#include "models/base/text.h"
#include "models/ir/op_traits.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

/// "TYPE=NAME", or "NAME" for files that do not say their type.
calibration::GpuNames gpu_names(const ImportSettings& args, config::Diagnostics& diagnostics) {
  calibration::GpuNames names;
  for (const std::string& text : args.gpus) {
    const std::size_t equals = text.find('=');
    const std::string type = equals == std::string::npos ? "" : text.substr(0, equals);
    const std::string name = equals == std::string::npos ? text : text.substr(equals + 1);
    if (name.empty() || equals == 0) {
      diagnostics.add(at_setting("gpu"), fmt::format("'{}' is not TYPE=NAME", text),
                      "as in --gpu A100=A100-80GB");
    } else if (!names.emplace(type, name).second) {
      diagnostics.add(at_setting("gpu"), fmt::format("'{}' is given twice", type));
    }
  }
  return names;
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
      models::load_cluster(*args.cluster, library, at_setting("cluster"), diagnostics);
  for (const models::GpuType& gpu : cluster.gpu_types) known.gpus.push_back(gpu.name);
  for (const auto& [name, link] : cluster.links) known.links.push_back(name);
  return known;
}

/// A name that nothing knows makes a profile that no cluster uses, or a cluster that cannot be
/// loaded.
void check_known(const char* key, const std::string& name, const std::vector<std::string>& known,
                 const char* what, config::Diagnostics& diagnostics) {
  if (name.empty() || std::find(known.begin(), known.end(), name) != known.end()) return;
  const std::string near = config::closest(name, known);
  diagnostics.add(
      at_setting(key), fmt::format("unknown {} '{}'", what, name),
      fmt::format("{}orrery list {}s; --cluster FILE adds those of a cluster",
                  near.empty() ? std::string() : fmt::format("did you mean '{}'? ", near), key));
}

void check_gpu_names(const ImportSettings& args, const calibration::GpuNames& gpus,
                     config::Diagnostics& diagnostics) {
  if (args.gpus.empty() && args.links.empty() && !args.cluster) return;
  const KnownNames known = known_names(args, diagnostics);
  for (const auto& [type, name] : gpus) {
    check_known("gpu", name, known.gpus, "GPU type", diagnostics);
  }
  for (const std::string& text : args.links) {
    const std::size_t equals = text.find('=');
    check_known("link", equals == std::string::npos ? text : text.substr(equals + 1), known.links,
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
    diagnostics.add(at_setting("link"), fmt::format("'{}' is not asked for", text),
                    fmt::format("orrery import {} --help", args.what));
  }
}

std::string import_nccl_tests(const ImportSettings& args, const calibration::GpuNames&, const Call&,
                              config::Diagnostics& diagnostics) {
  check_links(args, {""}, diagnostics);
  const std::string link = link_class(args, "");
  if (link.empty()) {
    diagnostics.add(at_setting("link"), "missing", "the link class that the ring crosses");
  }
  return models::dump_profile(calibration::import_nccl_tests(args.files, link, diagnostics));
}

std::string import_node(const ImportSettings& args, const calibration::GpuNames& gpus, const Call&,
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

std::string import_infragraph(const ImportSettings& args, const calibration::GpuNames& gpus,
                              const Call& call, config::Diagnostics& diagnostics) {
  calibration::InfraNames names{gpus, {}};
  for (const std::string& text : args.links) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      diagnostics.add(at_setting("link"), fmt::format("'{}' is not LINK=CLASS", text),
                      "as in --link nvlink=nvlink4");
    } else if (!names.links.emplace(text.substr(0, equals), text.substr(equals + 1)).second) {
      diagnostics.add(at_setting("link"),
                      fmt::format("'{}' is given twice", text.substr(0, equals)));
    }
  }
  calibration::ImportedCluster cluster =
      calibration::import_infragraph(args.files[0], names, open_library(diagnostics), diagnostics);
  if (diagnostics.empty()) {
    for (const std::string& note : cluster.notes) call.note(note);
  }
  return std::move(cluster.yaml);
}

void check_bandwidth_unit(const ImportSettings& args, config::Diagnostics& diagnostics) {
  const std::string text = args.bandwidth_unit.value_or("GB/s");
  if (text == "B/s" || text == "GB/s") return;
  diagnostics.add(at_setting("bandwidth_unit"), fmt::format("unknown value '{}'", text),
                  config::suggest(text, {"GB/s", "B/s"}, "values"));
}

constexpr std::size_t kAny = 0;  ///< As many files as there are.
struct Kind {
  const char* name;
  std::size_t files;
  const char* usage;
  std::string (*text)(const ImportSettings&, const calibration::GpuNames&, const Call&,
                      config::Diagnostics&);
};
constexpr Kind kKinds[] = {
    {"metis-profile", 1, "metis-profile FOLDER",
     [](const ImportSettings& args, const calibration::GpuNames& names, const Call&,
        config::Diagnostics& d) {
       return models::dump_profile(calibration::import_metis_profile(args.files[0], names, d));
     }},
    {"metis-cluster", 2, "metis-cluster HOSTFILE CLUSTERFILE",
     [](const ImportSettings& args, const calibration::GpuNames& names, const Call&,
        config::Diagnostics& d) {
       const models::Library library = open_library(d);
       return calibration::import_metis_cluster(args.files[0], args.files[1], names,
                                                args.bandwidth_unit == "B/s"
                                                    ? calibration::BandwidthUnit::bytes
                                                    : calibration::BandwidthUnit::gigabytes,
                                                library, d);
     }},
    {"sailor-profile", 1, "sailor-profile FOLDER",
     [](const ImportSettings& args, const calibration::GpuNames& names, const Call&,
        config::Diagnostics& d) {
       return models::dump_profile(calibration::import_sailor_profile(args.files[0], names, d));
     }},
    {"nccl-tests", kAny, "nccl-tests FILE... --link CLASS", import_nccl_tests},
    {"nvidia-topo", 1, "nvidia-topo FILE --gpu NAME --link pcie=CLASS ...", import_node},
    {"nccl-topo", 1, "nccl-topo FILE --gpu NAME --link pcie=CLASS ...", import_node},
    {"slurm-topology", 2, "slurm-topology TOPOLOGY.CONF NODE.yaml",
     [](const ImportSettings& args, const calibration::GpuNames&, const Call&,
        config::Diagnostics& d) {
       const models::Library library = open_library(d);
       return calibration::import_slurm_topology(args.files[0], args.files[1], library, d);
     }},
    {"infragraph", 1, "infragraph FILE --gpu DEVICE=NAME --link LINK=CLASS ...", import_infragraph},
    {"chakra", 1, "chakra FOLDER --cluster CLUSTER --output RUN", nullptr},
    {"kineto", 1, "kineto FOLDER --cluster CLUSTER --output RUN", nullptr}};

/// What was read, and what was not.
std::string summary_of(const calibration::RecordedRun& run, const calibration::RecordedProgram& out,
                       const std::string& folder) {
  std::map<ir::OpKind, std::int64_t> counts;
  for (const ir::Op& op : out.program.ops) ++counts[op.kind];
  std::string text =
      fmt::format("{} ranks, {} kernels, {} collectives, {} messages in {} process groups\n",
                  run.ranks.size(), counts[ir::OpKind::kernel], out.program.collectives.size(),
                  counts[ir::OpKind::send], out.program.groups.size());
  for (const std::string& note : run.notes) text += fmt::format("note: {}\n", note);
  if (out.log.iterations.empty()) {
    text += "no start times: nothing to compare a replay with\n";
  } else {
    const ir::IterationMark& mark = out.log.iterations.front();
    const Seconds recorded = to_seconds(mark.end - mark.start);
    const Seconds replayed = calibration::replayed_as_recorded(out.program, out.log);
    text += fmt::format("recorded {:.6f} s; replayed with everything as long as it was {:.6f} s",
                        recorded.value, replayed.value);
    if (recorded.value > 0) text += fmt::format(" ({:+.2f} %)", 100 * (replayed / recorded - 1));
    text += "\n";
  }
  return text + fmt::format("orrery simulate {} replays it\n", folder);
}

TextResult import_run(const ImportSettings& settings, config::Diagnostics& diagnostics) {
  if (!settings.cluster) {
    diagnostics.add(at_setting("cluster"), "missing", "the cluster that the run was recorded on");
  }
  if (!settings.output) {
    diagnostics.add(at_setting("output"), "missing", "a folder for the run");
  } else {
    check_out_folder("output", *settings.output, diagnostics);
  }
  for (const auto& [key, given] :
       {std::pair("gpu", !settings.gpus.empty()), std::pair("link", !settings.links.empty())}) {
    if (given) diagnostics.add(at_setting(key), "has no meaning for a recorded run");
  }
  diagnostics.raise();
  const models::Library library = open_library(diagnostics);
  const models::Cluster cluster =
      models::load_cluster(*settings.cluster, library, at_setting("cluster"), diagnostics);
  diagnostics.raise();
  const std::string& folder = settings.files.front();
  const calibration::RecordedRun run = settings.what == "chakra"
                                           ? calibration::read_chakra(folder, diagnostics)
                                           : calibration::read_kineto(folder, diagnostics);
  diagnostics.raise();
  const calibration::RecordedProgram program =
      calibration::to_program(run, cluster.size(), diagnostics);
  diagnostics.raise();
  write_recorded(*settings.output, run, program, *settings.cluster, library);
  return {summary_of(run, program, *settings.output), {}};
}

const Kind* asked_kind(const ImportSettings& args, config::Diagnostics& diagnostics) {
  std::vector<std::string> known;
  for (const Kind& kind : kKinds) {
    known.emplace_back(kind.name);
    if (args.what != kind.name) continue;
    if (kind.files == kAny || args.files.size() == kind.files) return &kind;
    diagnostics.add({args.what, 0, 0},
                    fmt::format("takes {}, not {}", counted(kind.files, "file"), args.files.size()),
                    fmt::format("orrery import {}", kind.usage));
    return nullptr;
  }
  diagnostics.add({"import", 0, 0}, fmt::format("unknown kind of file '{}'", args.what),
                  config::suggest(args.what, known, "kinds"));
  return nullptr;
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

void describe(config::Visitor& v, ImportSettings& settings) {
  v.required("what", settings.what,
             "metis-profile, metis-cluster, sailor-profile, nccl-tests, nvidia-topo, nccl-topo, "
             "slurm-topology, infragraph, chakra or kineto",
             {.positional = true});
  v.required(
      "file", settings.files,
      "metis-profile, sailor-profile: the folder; metis-cluster: host file and cluster file; "
      "nccl-tests: outputs of tests; nvidia-topo: output of nvidia-smi topo -m; nccl-topo: file of "
      "NCCL_TOPO_DUMP_FILE; slurm-topology: topology.conf or topology.yaml, and a cluster file "
      "with one node; infragraph: YAML or JSON; chakra, kineto: the folder with a trace of each "
      "rank",
      {.positional = true});
  v.optional("gpu", settings.gpus,
             "TYPE=NAME: our name of a GPU type; NAME for profiles that do not say their type; "
             "infragraph: DEVICE=NAME or COMPONENT=NAME; may "
             "be repeated");
  v.optional("link", settings.links,
             "nccl-tests: link class that the ring crosses; nvidia-topo, nccl-topo: nvlink=CLASS, "
             "pcie=CLASS and nic=CLASS; infragraph: LINK=CLASS for a link of the file; may be "
             "repeated");
  v.optional("cluster", settings.cluster,
             "cluster whose GPU types and link classes --gpu and --link may name, too; chakra, "
             "kineto: what the run was recorded on",
             {.letter = 'c'});
  v.optional("bandwidth_unit", settings.bandwidth_unit,
             "of the cluster file: GB/s (default) or B/s");
  v.optional("output", settings.output,
             "write to this YAML file; chakra, kineto: to this folder, for orrery simulate",
             {.letter = 'o'});
}

TextResult import_files(const ImportSettings& settings, const Call& call) {
  config::Diagnostics diagnostics;
  const Kind* kind = asked_kind(settings, diagnostics);
  const calibration::GpuNames names = gpu_names(settings, diagnostics);
  check_bandwidth_unit(settings, diagnostics);
  check_gpu_names(settings, names, diagnostics);
  if (kind == nullptr) diagnostics.raise();
  if (kind->text == nullptr) return import_run(settings, diagnostics);
  const std::vector<OutputFile> outputs = {{"output", settings.output}};
  check_outputs(outputs, inputs_of(settings), diagnostics);
  std::string text = kind->text(settings, names, call, diagnostics);
  diagnostics.raise();
  probe_outputs(outputs);
  return delivered_to(settings.output, std::move(text));
}

}  // namespace orrery::experiments
