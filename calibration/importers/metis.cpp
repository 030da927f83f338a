#include "calibration/importers/metis.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <regex>
#include <tuple>
#include <vector>

#include "calibration/importers/json_tree.h"
#include "calibration/read_text.h"
#include "models/base/units.h"

namespace orrery::calibration {
namespace {

namespace fs = std::filesystem;

std::optional<int> positive(const std::string& text) {
  int value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end || value < 1) return std::nullopt;
  return value;
}

std::string upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

/// A profile file and what its name says.
struct ProfileFile {
  std::string type;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  std::string path;
  auto operator<=>(const ProfileFile&) const = default;
};

std::vector<ProfileFile> list_profiles(const std::string& folder,
                                       config::Diagnostics& diagnostics) {
  std::vector<ProfileFile> files;
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".json") names.push_back(entry.path().filename().string());
  }
  if (error) {
    diagnostics.add({folder, 0, 0}, fmt::format("cannot be listed: {}", error.message()));
    return files;
  }
  std::sort(names.begin(), names.end());
  static const std::regex kName(R"((?:DeviceType\.([A-Za-z0-9-]+)_)?tp([0-9]+)_bs([0-9]+)\.json)");
  for (const std::string& name : names) {
    const std::string path = (fs::path(folder) / name).string();
    std::smatch match;
    const bool known = std::regex_match(name, match, kName);
    const auto tensor = known ? positive(match[2]) : std::nullopt;
    const auto batch = known ? positive(match[3]) : std::nullopt;
    if (!tensor || !batch) {
      diagnostics.add({path, 0, 0}, "the name does not say what was profiled",
                      "DeviceType.<TYPE>_tp<T>_bs<B>.json, T and B at least 1");
      continue;
    }
    files.push_back({match[1], *tensor, *batch, path});
  }
  std::sort(files.begin(), files.end());
  if (names.empty()) {
    diagnostics.add({folder, 0, 0}, "holds no profiles", "DeviceType.<TYPE>_tp<T>_bs<B>.json");
  }
  return files;
}

/// What one file says.
struct ProfileContent {
  ir::LayerProfile layers;
  std::string model;
  std::vector<double> parameter_bytes;
  double optimizer_ms = 0;
  double batch_generator_ms = 0;
};

void check_length(JsonReader& json, const char* path, std::size_t length, std::size_t layers) {
  if (length == layers || length == 0 || layers == 0) return;
  json.fail(*json.find(path),
            fmt::format("'{}' has {} entries for {} layers", path, length, layers));
}

ProfileContent read_profile(const ProfileFile& file, const GpuNames& names,
                            config::Diagnostics& diagnostics) {
  ProfileContent content;
  const auto name = names.find(file.type);
  if (file.type.empty() && name == names.end()) {
    diagnostics.add({file.path, 0, 0}, "the name does not say the GPU type", "--gpu NAME says it");
  }
  config::Value root;
  if (!load_json(file.path, root, diagnostics)) return content;
  JsonReader json(root, diagnostics);
  content.layers.gpu = name == names.end() ? file.type : name->second;
  content.layers.tensor_parallel = file.tensor_parallel;
  content.layers.micro_batch_size = file.micro_batch_size;
  content.model = json.text("model.model_name");
  const double layers = json.number("model.num_layers", 1);
  content.parameter_bytes = json.numbers("model.parameters.parameters_per_layer_bytes", 0);
  content.layers.layer_ms = json.numbers("execution_time.layer_compute_total_ms", 0);
  content.layers.layer_mb = json.numbers("execution_memory.layer_memory_total_mb", 0);
  content.layers.forward_backward_ms = json.number("execution_time.forward_backward_time_ms", 0);
  content.optimizer_ms = json.number("execution_time.optimizer_time_ms", 0);
  content.batch_generator_ms = json.number("execution_time.batch_generator_time_ms", 0);
  const auto count = static_cast<std::size_t>(std::min(layers, 1e6));
  check_length(json, "model.parameters.parameters_per_layer_bytes", content.parameter_bytes.size(),
               count);
  check_length(json, "execution_time.layer_compute_total_ms", content.layers.layer_ms.size(),
               count);
  check_length(json, "execution_memory.layer_memory_total_mb", content.layers.layer_mb.size(),
               count);
  return content;
}

/// Hosts that the cluster file does not name: to find what each was meant to be takes time.
constexpr int kMostUnnamed = 10;

/// A line of the host file.
struct Host {
  std::string address;
  int gpus = 0;
  config::Position at;
};

std::vector<Host> read_hosts(const std::string& path, config::Diagnostics& diagnostics) {
  std::vector<Host> hosts;
  std::string text;
  if (!read_text(path, text, diagnostics)) return hosts;
  constexpr const char* kBlank = " \t\r";
  int line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string row = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    const std::size_t first = row.find_first_not_of(kBlank);
    if (first == std::string::npos || row[first] == '#') continue;
    const std::size_t gap = std::min(row.find_first_of(kBlank, first), row.size());
    const std::size_t second = std::min(row.find_first_not_of(kBlank, gap), row.size());
    const std::size_t last = row.find_last_not_of(kBlank) + 1;
    std::string count = second < last ? row.substr(second, last - second) : "";
    if (count.rfind("slots=", 0) == 0) count = count.substr(6);
    const config::Position at{path, line, static_cast<int>(first) + 1};
    const auto gpus = positive(count);
    if (!gpus || *gpus > 4096) {
      diagnostics.add({path, line, static_cast<int>(second) + 1}, "no number of GPUs",
                      "<address> slots=<GPUs>");
      continue;
    }
    hosts.push_back({row.substr(first, gap - first), *gpus, at});
  }
  if (hosts.empty() && diagnostics.empty()) diagnostics.add({path, 1, 1}, "names no host");
  return hosts;
}

/// What the cluster file says of an address.
struct Machine {
  std::string type;
  double inside_gbps = 0;
  double between_gbps = 0;
  double memory_gib = 0;
};

double read_bandwidth(JsonReader& json, const char* key, BandwidthUnit unit) {
  /// More than any link has: the file counts in B/s.
  constexpr double kNoLink = 1e5;
  const double value = json.positive(key);
  const config::Value* place = value > 0 ? json.find(key) : nullptr;
  if (unit == BandwidthUnit::bytes) return value / 1e9;
  if (place != nullptr && value > kNoLink) {
    json.fail(*place, fmt::format("'{}' of {} GB/s is no link", key, place->text),
              "Metis's README writes B/s: --bandwidth-unit B/s");
  }
  return value;
}

/// The library's GPU that fills in what Metis does not say.
std::string base_of(const Machine& machine, const GpuNames& names, const models::Library& library) {
  const auto given = names.find(machine.type);
  if (given != names.end()) return library.gpus.contains(given->second) ? given->second : "";
  std::string best;
  double distance = 0;
  for (const auto& [name, gpu] : library.gpus) {
    if (name != machine.type && name.rfind(machine.type + "-", 0) != 0) continue;
    const double away = std::abs(gpu.memory / 1_GiB - machine.memory_gib);
    if (!best.empty() && away >= distance) continue;
    best = name;
    distance = away;
  }
  return best;
}

std::map<std::string, Machine> read_machines(const config::Value& root, const GpuNames& names,
                                             BandwidthUnit unit, const models::Library& library,
                                             std::map<std::string, std::string>& bases,
                                             config::Diagnostics& diagnostics) {
  std::map<std::string, Machine> machines;
  for (const config::Value::Entry& entry : root.entries) {
    JsonReader json(entry.value, diagnostics);
    Machine machine;
    if (!entry.value.is_map()) {
      json.fail(entry.value,
                fmt::format("must be an object, is {}", config::kind_text(entry.value)));
      machines[entry.key] = machine;
      continue;
    }
    machine.type = upper(json.text("instance_type"));
    machine.inside_gbps = read_bandwidth(json, "intra_bandwidth", unit);
    machine.between_gbps = read_bandwidth(json, "inter_bandwidth", unit);
    machine.memory_gib = json.positive("memory");
    if (!machine.type.empty() && !bases.contains(machine.type)) {
      const std::string base = base_of(machine, names, library);
      std::vector<std::string> known;
      for (const auto& gpu : library.gpus) known.push_back(gpu.first);
      if (base.empty()) {
        const auto given = names.find(machine.type);
        const std::string& wanted = given == names.end() ? machine.type : given->second;
        json.fail(*entry.value.find("instance_type"),
                  fmt::format("the library has no GPU '{}'", wanted),
                  fmt::format("--gpu {}=NAME; {}", machine.type,
                              config::suggest(wanted, known, "known")));
      }
      bases[machine.type] = base;
    }
    machines[entry.key] = machine;
  }
  return machines;
}

std::string yaml_text(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

}  // namespace

ir::Profile import_metis_profile(const std::string& folder, const GpuNames& names,
                                 config::Diagnostics& diagnostics) {
  ir::Profile profile;
  ir::ModelLayers model;
  std::string first;
  for (const ProfileFile& file : list_profiles(folder, diagnostics)) {
    const std::size_t before = diagnostics.problems().size();
    ProfileContent content = read_profile(file, names, diagnostics);
    if (diagnostics.problems().size() != before) continue;
    if (first.empty()) {
      first = fs::path(file.path).filename().string();
      model.model = content.model;
      model.parameter_bytes = content.parameter_bytes;
      model.optimizer_ms = content.optimizer_ms;
      model.batch_generator_ms = content.batch_generator_ms;
    } else if (content.model != model.model ||
               content.parameter_bytes.size() != model.parameter_bytes.size()) {
      diagnostics.add({file.path, 1, 1},
                      fmt::format("profiles '{}' with {} layers, {} profiles '{}' with {}",
                                  content.model, content.parameter_bytes.size(), first, model.model,
                                  model.parameter_bytes.size()),
                      "one folder for each model");
    }
    const bool twice = std::any_of(
        model.profiles.begin(), model.profiles.end(), [&](const ir::LayerProfile& other) {
          return std::tie(other.gpu, other.tensor_parallel, other.micro_batch_size) ==
                 std::tie(content.layers.gpu, content.layers.tensor_parallel,
                          content.layers.micro_batch_size);
        });
    if (twice) {
      diagnostics.add({file.path, 0, 0},
                      fmt::format("a second profile of {}, degree {}, micro-batch size {}",
                                  content.layers.gpu, file.tensor_parallel, file.micro_batch_size),
                      "give the types different names with --gpu");
    }
    model.profiles.push_back(std::move(content.layers));
  }
  model.provenance.source =
      fmt::format("Metis's profiler, {} files; values of the whole model from {}",
                  model.profiles.size(), first);
  profile.name = model.model.empty() ? "metis" : model.model;
  profile.model_layers.push_back(std::move(model));
  return profile;
}

std::string import_metis_cluster(const std::string& host_file, const std::string& cluster_file,
                                 const GpuNames& names, BandwidthUnit unit,
                                 const models::Library& library, config::Diagnostics& diagnostics) {
  const std::vector<Host> hosts = read_hosts(host_file, diagnostics);
  config::Value root;
  std::map<std::string, std::string> bases;
  std::map<std::string, Machine> machines;
  if (load_json(cluster_file, root, diagnostics)) {
    machines = read_machines(root, names, unit, library, bases, diagnostics);
    std::vector<std::string> known;
    for (const auto& machine : machines) known.push_back(machine.first);
    int unnamed = 0;
    for (const Host& host : hosts) {
      if (machines.contains(host.address) || ++unnamed > kMostUnnamed) continue;
      diagnostics.add(host.at, fmt::format("{} does not name '{}'", cluster_file, host.address),
                      config::suggest(host.address, known, "named"));
    }
    if (unnamed > kMostUnnamed) {
      diagnostics.add({host_file, 0, 0}, fmt::format("{} more hosts that {} does not name",
                                                     unnamed - kMostUnnamed, cluster_file));
    }
  }
  if (!diagnostics.empty()) return "";

  std::string nodes, gpus, links;
  std::map<std::string, double> link_gbps;
  std::map<std::string, double> used;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Machine& machine = machines[hosts[i].address];
    const std::string inside = fmt::format("inside-{}GBps", machine.inside_gbps);
    const std::string between = fmt::format("between-{}GBps", machine.between_gbps);
    link_gbps[inside] = machine.inside_gbps;
    link_gbps[between] = machine.between_gbps;
    used.try_emplace(machine.type, machine.memory_gib);
    nodes += fmt::format(
        "  - name: {}\n    gpus: {{type: {}, count: {}}}\n    domains: [{{link: {}}}]\n"
        "    pcie: [{{link: {}}}]\n    nics: [{{link: {}}}]\n",
        yaml_text(fmt::format("{}-{}", hosts[i].address, i)), yaml_text(machine.type),
        hosts[i].gpus, inside, inside, between);
  }
  for (const auto& [type, memory] : used) {
    gpus += fmt::format(
        "  {}: {{base: {}, memory: {} GiB, source: \"memory: Metis's cluster file; the rest: the "
        "library's {}\"}}\n",
        yaml_text(type), bases[type], memory, bases[type]);
  }
  for (const auto& [name, gbps] : link_gbps) {
    links += fmt::format(
        "  {}: {{bandwidth: {} GB/s, latency: 0 us, source: \"Metis's cluster file, which has no "
        "latencies\"}}\n",
        name, gbps);
  }
  return fmt::format(
      "schema: orrery/cluster/1\nname: metis\nsource: {}\nnodes:\n{}gpus:\n{}links:\n{}",
      yaml_text(fmt::format("imported from {} and {} of Metis",
                            fs::path(host_file).filename().string(),
                            fs::path(cluster_file).filename().string())),
      nodes, gpus, links);
}

}  // namespace orrery::calibration
