#include "experiments/study/init.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "experiments/study/files.h"
#include "models/config/document.h"
#include "models/spec/cluster_text.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// How vendors build nodes of a GPU: beginnings of names, first match. Classes of the library.
struct NodeDesign {
  const char* gpu;
  const char* nvlink;  ///< "": PCIe only.
  const char* pcie;
  const char* nic;
  int nics;  ///< For 8 GPUs.
};
constexpr std::array kDesigns = {
    NodeDesign{"B300", "nvlink5", "pcie5-x16", "infiniband-800", 8},
    NodeDesign{"B200", "nvlink5", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"H200", "nvlink4", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"H100", "nvlink4", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"H800", "nvlink-h800", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"H20", "nvlink-h20", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"A800-80GB-PCIe", "", "pcie4-x16", "infiniband-200", 2},
    NodeDesign{"A800", "nvlink-a800", "pcie4-x16", "infiniband-200", 8},
    NodeDesign{"A100", "nvlink3", "pcie4-x16", "infiniband-200", 8},
    NodeDesign{"V100-16GB-PCIe", "", "pcie3-x16", "infiniband-100", 1},
    NodeDesign{"V100", "nvlink2", "pcie3-x16", "infiniband-100", 4},
    NodeDesign{"L40S", "", "pcie4-x16", "roce-200", 4},
    NodeDesign{"MI355X", "infinity-fabric-mi355", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"MI3", "infinity-fabric-mi300", "pcie5-x16", "infiniband-400", 8},
    NodeDesign{"Gaudi3", "gaudi3-fabric", "pcie5-x16", "roce-200", 8},
    NodeDesign{"P100", "", "pcie3-x16", "ethernet-25g", 1},
    NodeDesign{"T4", "", "pcie3-x16", "ethernet-25g", 1},
    NodeDesign{"RTX2", "", "pcie3-x16", "ethernet-10g", 1},
    NodeDesign{"", "", "pcie4-x16", "ethernet-25g", 1},
};

const NodeDesign& design_of(const std::string& gpu) {
  return *std::find_if(kDesigns.begin(), kDesigns.end(),
                       [&](const NodeDesign& design) { return gpu.starts_with(design.gpu); });
}

struct NodeGroup {
  int nodes = 0;
  int gpus = 0;
  std::string asked;  ///< "H100"
  std::string type;   ///< "H100-80GB"
};

std::optional<int> count_of(std::string_view text, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (value < 1 || value > most) return std::nullopt;
  return value;
}

std::string without_blanks(std::string text) {
  std::erase(text, ' ');
  return text;
}

std::optional<NodeGroup> read_group(const std::string& text, const models::Library& library,
                                    config::Diagnostics& diagnostics) {
  constexpr int kMostNodes = 1 << 16;
  constexpr int kMostGpus = 64;
  const std::string packed = without_blanks(text);
  const std::size_t first = packed.find('x');
  const std::size_t second = first == std::string::npos ? first : packed.find('x', first + 1);
  std::optional<int> nodes;
  std::optional<int> gpus;
  if (second != std::string::npos) {
    nodes = count_of(std::string_view(packed).substr(0, first), kMostNodes);
    gpus = count_of(std::string_view(packed).substr(first + 1, second - first - 1), kMostGpus);
  }
  if (!nodes || !gpus || second + 1 == packed.size()) {
    diagnostics.add(at_setting("nodes"), fmt::format("'{}' is not NODESxGPUSxTYPE", text),
                    fmt::format("as in 4x8xH100: four nodes of eight H100; at most {} nodes of {}",
                                kMostNodes, kMostGpus));
    return std::nullopt;
  }
  NodeGroup group{*nodes, *gpus, packed.substr(second + 1), ""};
  group.type = gpu_type_of(group.asked, library);
  if (group.type.empty()) {
    std::vector<std::string> names;
    for (const auto& [name, gpu] : library.gpus) names.push_back(name);
    diagnostics.add(at_setting("nodes"), fmt::format("unknown GPU type '{}'", group.asked),
                    config::suggest(group.asked, names, "GPU types") + "; orrery list gpus");
    return std::nullopt;
  }
  return group;
}

/// The value for a group: of its type, else of all, else none.
const std::string* given_for(const std::map<std::string, std::string>& values,
                             const NodeGroup& group) {
  for (const std::string& key : {group.asked, group.type, std::string("all")}) {
    const auto found = values.find(key);
    if (found != values.end()) return &found->second;
  }
  return nullptr;
}

void check_keys(const char* setting, const std::map<std::string, std::string>& values,
                const std::vector<NodeGroup>& groups, config::Diagnostics& diagnostics) {
  for (const auto& [key, value] : values) {
    const bool known =
        key == "all" || std::any_of(groups.begin(), groups.end(), [&key = key](auto& group) {
          return group.asked == key || group.type == key;
        });
    if (!known) {
      diagnostics.add(at_setting(setting), fmt::format("no nodes have '{}'", key),
                      fmt::format("--{} all=VALUE, or a type that --nodes names", setting));
    }
  }
}

void check_link(const char* setting, const std::string& link, const models::Library& library,
                config::Diagnostics& diagnostics) {
  if (library.links.contains(link)) return;
  std::vector<std::string> names;
  for (const auto& [name, each] : library.links) names.push_back(name);
  diagnostics.add(at_setting(setting), fmt::format("unknown link class '{}'", link),
                  config::suggest(link, names, "link classes") + "; orrery list links");
}

/// "h100", and "h100_2" where a group before has that name.
std::string node_name(const NodeGroup& group, std::set<std::string>& taken) {
  std::string name = group.asked.substr(0, group.asked.find('-'));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string unique = name;
  for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{}_{}", name, i);
  return unique;
}

/// The cluster of a file that is not written yet; what can be wrong with it is what --nodes says.
models::Cluster read_back(const std::string& text, const models::Library& library,
                          config::Diagnostics& diagnostics) {
  config::Diagnostics found;
  models::Cluster cluster =
      models::read_cluster(config::load_value_text(text, "cluster", found), library, found);
  for (const config::Problem& problem : found.problems()) {
    diagnostics.add(at_setting("nodes"), problem.what, problem.hint);
  }
  return cluster;
}

std::string gigabytes(BytesPerSecond rate) { return fmt::format("{:.4g} GB/s", rate.value / 1e9); }

}  // namespace

void describe(config::Visitor& v, InitSettings& settings) {
  v.optional("nodes", settings.nodes,
             "NODESxGPUSxTYPE, comma-separated: 4x8xH100,6x8xA100,5x4xL40S (orrery list gpus)",
             {.commas = true});
  v.optional("name", settings.name, "of the cluster");
  v.optional(
      "network", settings.network,
      "TYPE=CLASS: link class of the NICs of nodes with that type, or all=CLASS (orrery list "
      "links); default: as such nodes are usually built; may be repeated");
  v.optional("nvlink", settings.nvlink,
             "TYPE=CLASS: what joins the GPUs of a node beside PCIe, or none; may be repeated");
  v.optional("nics", settings.nics, "TYPE=COUNT: NICs of a node, or all=COUNT; may be repeated");
  v.optional("oversubscription", settings.oversubscription,
             "bandwidth of the NICs below a leaf switch over that of its uplinks; 1 (default): "
             "nothing above the NICs limits. Each entry of --nodes has a leaf switch of its own");
  v.optional("output", settings.output, "write to this file", {.letter = 'o'});
  v.at_least("oversubscription", settings.oversubscription, 1.0);
}

std::string gpu_type_of(const std::string& beginning, const models::Library& library) {
  if (library.gpus.contains(beginning)) return beginning;
  if (beginning.empty()) return "";
  // "A100" means the larger memory: the plain name is what people order today.
  std::string best;
  for (const auto& [name, gpu] : library.gpus) {
    if (!name.starts_with(beginning + "-")) continue;
    if (best.empty() || library.gpus.at(best).memory < gpu.memory) best = name;
  }
  return best;
}

TextResult init_cluster(const InitSettings& settings, const Call& call,
                        config::Diagnostics diagnostics) {
  const models::Library library = open_library(diagnostics);
  std::vector<NodeGroup> groups;
  for (const std::string& text : settings.nodes) {
    if (auto group = read_group(text, library, diagnostics)) groups.push_back(std::move(*group));
  }
  if (settings.nodes.empty()) {
    diagnostics.add(at_setting("nodes"), "no node is named", "as in --nodes 4x8xH100,5x4xL40S");
  }
  check_keys("network", settings.network, groups, diagnostics);
  check_keys("nvlink", settings.nvlink, groups, diagnostics);
  check_keys("nics", settings.nics, groups, diagnostics);
  std::string nodes;
  std::vector<std::string> assumed;
  std::set<std::string> names;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const NodeGroup& group = groups[g];
    const NodeDesign& design = design_of(group.type);
    const std::string* network = given_for(settings.network, group);
    const std::string* nvlink = given_for(settings.nvlink, group);
    const std::string* nics = given_for(settings.nics, group);
    std::string inside = nvlink != nullptr ? *nvlink : design.nvlink;
    if (inside == "none") inside.clear();
    const std::string nic = network != nullptr ? *network : design.nic;
    check_link("network", nic, library, diagnostics);
    if (!inside.empty()) check_link("nvlink", inside, library, diagnostics);
    int count = std::max(1, design.nics * group.gpus / 8);
    if (nics != nullptr) {
      const auto read = count_of(*nics, 64);
      if (read) {
        count = *read;
      } else {
        diagnostics.add(at_setting("nics"),
                        fmt::format("'{}' is not a number from 1 to 64", *nics));
      }
    }
    const std::string name = node_name(group, names);
    if (network == nullptr) assumed.push_back(fmt::format("NICs of {} ({})", name, nic));
    if (nics == nullptr) assumed.push_back(fmt::format("{} NICs a node of {}", count, name));
    if (nvlink == nullptr) {
      assumed.push_back(fmt::format("{} inside {}", inside.empty() ? "PCIe alone" : inside, name));
    }
    nodes += fmt::format("  - name: {}\n    count: {}\n    gpus: {{type: {}, count: {}}}\n", name,
                         group.nodes, group.type, group.gpus);
    if (!inside.empty() && group.gpus > 1) {
      nodes += fmt::format("    domains: {{link: {}}}\n", inside);
    }
    nodes += fmt::format("    pcie: {{link: {}}}\n    nics: {{link: {}, count: {}}}\n", design.pcie,
                         nic, count);
    if (settings.oversubscription > 1) nodes += fmt::format("    leaf: {}\n", g);
  }
  diagnostics.raise();
  std::string text =
      "# Written by orrery init. Assumed, as such nodes are usually built; check and\n"
      "# correct:\n";
  for (const std::string& each : assumed) text += "#   " + each + "\n";
  if (assumed.empty()) text = "# Written by orrery init.\n";
  text +=
      "# PCIe slots and latencies are the library's (orrery list links); host memory, disks and\n"
      "# object storage are not said: `orrery schema cluster --reference` has their keys.\n"
      "schema: orrery/cluster/1\n";
  config::Value name = config::Value::map({});
  name.append("name", config::Value::scalar(settings.name));
  text += config::to_yaml(name);
  text += "nodes:\n" + nodes;
  if (settings.oversubscription > 1) {
    text += fmt::format("fabric: {{leaf_oversubscription: {:.6g}}}\n", settings.oversubscription);
  }
  const models::Cluster cluster = read_back(text, library, diagnostics);
  check_outputs({{"output", settings.output}}, {}, diagnostics);
  const Text file = file_of(settings.output);
  std::error_code error;
  if (file && fs::is_regular_file(*file, error) && read_text_file(*file) != text) {
    diagnostics.add(at_setting("output"),
                    fmt::format("'{}' is there already and says something else", *file),
                    "name another file, or remove it: cluster files are edited by hand");
  }
  diagnostics.raise();
  TextResult result = delivered_to(settings.output, std::move(text));
  if (result.file) {
    for (const std::string& warning : implausible(cluster)) call.note(warning);
  }
  return result;
}

std::vector<std::string> implausible(const models::Cluster& cluster) {
  std::vector<std::string> found;
  std::set<std::string> of_nics;
  std::set<std::string> inside;
  for (const models::Node& node : cluster.nodes) {
    for (const models::Nic& nic : node.nics) of_nics.insert(nic.link);
    for (const models::LinkDomain& domain : node.domains) inside.insert(domain.link);
  }
  for (const auto& [name, link] : cluster.links) {
    const double rate = link.bandwidth.value;
    // 800 Gb/s is the fastest port that is sold; five times that leaves room for bonded ones.
    if (of_nics.contains(name) && rate > 5e11) {
      found.push_back(fmt::format("{}: a NIC of {} is faster than any; were {:.4g} Gbps meant?",
                                  name, gigabytes(link.bandwidth), rate / 1e9));
    } else if (of_nics.contains(name) && rate > 1.5e11 && !inside.contains(name)) {
      found.push_back(fmt::format(
          "{}: a NIC of {} is {:.4g} Gbps; the fastest port is 800 Gbps. Were {:.4g} Gbps meant "
          "({:.4g} GB/s)?",
          name, gigabytes(link.bandwidth), rate * 8 / 1e9, rate / 1e9, rate / 8e9));
    }
    if (link.latency.value > 0.1) {
      found.push_back(
          fmt::format("{}: a latency of {:.4g} s; were ms or us meant?", name, link.latency.value));
    }
    if (rate < 1e7) {
      found.push_back(
          fmt::format("{}: {:.4g} MB/s is slower than any link between GPUs", name, rate / 1e6));
    }
  }
  for (const models::GpuType& gpu : cluster.gpu_types) {
    for (const auto& [dtype, peak] : gpu.peak) {
      if (peak.value < 5e11) {
        found.push_back(fmt::format("{}: a peak of {:.4g} GFLOP/s; were TFLOP/s meant?", gpu.name,
                                    peak.value / 1e9));
        break;
      }
      if (peak.value > 1e17) {
        found.push_back(fmt::format("{}: a peak of {:.4g} TFLOP/s is more than any GPU has",
                                    gpu.name, peak.value / 1e12));
        break;
      }
    }
    if (gpu.memory.value < 0x1p30 || gpu.memory.value > 0x1p41) {
      found.push_back(fmt::format("{}: {:.4g} GiB of memory", gpu.name, gpu.memory.value / 0x1p30));
    }
    if (gpu.memory_bandwidth.value < 2e10) {
      found.push_back(fmt::format("{}: memory of {}; were GB/s or TB/s meant?", gpu.name,
                                  gigabytes(gpu.memory_bandwidth)));
    }
    if (gpu.price && gpu.price->value * 3600 > 200) {
      found.push_back(
          fmt::format("{}: ${:.4g} an hour for one GPU", gpu.name, gpu.price->value * 3600));
    }
  }
  for (std::string& sentence : found) sentence.insert(0, "does this look right? ");
  return found;
}

}  // namespace orrery::experiments
