#include "tools/commands/calibrate_job.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "executor/bench/compute_bench.h"
#include "executor/cuda/backend.h"
#include "executor/model/shard.h"
#include "experiments/study/version.h"
#include "models/base/text.h"
#include "models/ir/measurement_text.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "tools/cli/flags.h"
#include "tools/commands/execute_job.h"
#include "tools/commands/execute_netlab.h"
#include "tools/commands/execute_settings.h"
#include "tools/commands/gpu_shares.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {
namespace {

using config::Diagnostics;

constexpr std::int64_t kCpuLength = 64;
constexpr std::int64_t kCudaLength = 2048;
constexpr int kMostRanks = 64;
constexpr std::int64_t kLargestGroup = 8;
constexpr std::int64_t kGpuParameters = std::int64_t{256} << 20;

bool is_cuda(const CalibrateSettings& args) { return args.backend == "cuda"; }

/// Back end, library, precision, folders: read as `orrery execute` reads them.
executor::RunSettings read_settings(const CalibrateSettings& args, Diagnostics& diagnostics) {
  ExecuteSettings execute;
  execute.backend = args.backend;
  execute.library = args.library;
  execute.precision = args.precision;
  if (!args.precision && is_cuda(args)) execute.precision = "bf16";
  execute.hosts = args.hosts;
  executor::RunSettings settings = settings_of(execute, 0, diagnostics);
  settings.local_checkpoints =
      args.checkpoints.value_or((std::filesystem::path(args.out) / "checkpoints").string());
  settings.cloud_checkpoints = args.cloud.value_or("");
  return settings;
}

void read_where(const CalibrateSettings& args, executor::LaunchOptions& where,
                Diagnostics& diagnostics) {
  where.hosts = hosts_of(args.hosts, diagnostics);
  where.ssh = args.ssh;
  where.advertise = args.advertise.value_or("");
  set_listen(args.listen, where, diagnostics);
  if (args.ssh && !args.hosts) diagnostics.add(at_flag("--ssh"), "no --hosts are named");
  if (args.netlab && args.hosts) diagnostics.add(at_flag("--netlab"), "its nodes are the hosts");
}

models::Workload read_workload(const CalibrateSettings& args, ir::Dtype dtype,
                               const models::Library& library, models::Job& job,
                               Diagnostics& diagnostics) {
  const std::string model = args.model.value_or(
      is_cuda(args) ? "llama_7b" : ORRERY_SOURCE_DIR "/experiments/executor/tiny_llama.yaml");
  job.global_batch = 1;
  job.dtype = dtype;
  job.sequence_length = whole_number(args.sequence_length, "--sequence-length", 1,
                                     is_cuda(args) ? kCudaLength : kCpuLength, diagnostics);
  return models::load_workload(model, job, library, at_flag("--model"), diagnostics);
}

executor::BenchModel bench_model(const models::Workload& workload) {
  executor::BenchModel model;
  model.shape = workload.shape;
  model.sequence_length = workload.sequence_length;
  model.dtype = workload.dtype;
  for (const models::Block& block : workload.blocks) {
    if (block.kind == ir::BlockKind::embedding) model.embedding = block.forward_flops;
    if (block.kind == ir::BlockKind::transformer) model.layer = block.forward_flops;
    if (block.kind == ir::BlockKind::head) model.head = block.forward_flops;
  }
  return model;
}

void check_model(const executor::BenchModel& model, Diagnostics& diagnostics) {
  ir::Program program;
  program.header = executor::bench_header(model, std::max(model.shape.layers, 1));
  for (const std::string& what : executor::find_unsupported(program)) {
    diagnostics.add(at_flag("--model"), "the executor cannot run " + what);
  }
}

std::set<ir::MeasurementKind> read_kinds(const Text& text, Diagnostics& diagnostics) {
  std::set<ir::MeasurementKind> kinds;
  if (!text) return kinds;
  std::vector<std::string> names;
  for (const auto& [kind, name] : enum_names(ir::MeasurementKind{})) names.emplace_back(name);
  for (const std::string& item : split(*text, ',')) {
    const auto at = std::find(names.begin(), names.end(), item);
    if (at == names.end()) {
      diagnostics.add(at_flag("--only"), fmt::format("unknown kind '{}'", item),
                      config::suggest(item, names, "kinds"));
    } else {
      kinds.insert(
          enum_names(ir::MeasurementKind{})[static_cast<std::size_t>(at - names.begin())].first);
    }
  }
  if (split(*text, ',').empty()) diagnostics.add(at_flag("--only"), "names no kind");
  return kinds;
}

/// The GPU's name and multiprocessors; empty where the hosts have it.
executor::CudaDeviceInfo cuda_device(const CalibrateSettings& args) {
  if (!is_cuda(args)) return {};
  const executor::CudaStatus status = executor::cuda_status();
  return status.devices.empty() ? executor::CudaDeviceInfo{} : status.devices.front();
}

std::vector<std::pair<std::string, int>> read_shares(const CalibrateSettings& args,
                                                     const std::string& type,
                                                     const executor::CudaDeviceInfo& gpu,
                                                     Diagnostics& diagnostics) {
  std::vector<std::pair<std::string, int>> out;
  if (!args.shares) return out;
  if (!is_cuda(args) || args.hosts) {
    diagnostics.add(at_flag("--shares"), "needs a GPU of this machine", "--backend cuda");
    return out;
  }
  for (const std::string& item : split(*args.shares, ',')) {
    const std::int64_t percent = whole_number(item, "--shares", 1, 100, diagnostics);
    if (percent > 100) diagnostics.add(at_flag("--shares"), fmt::format("{} percent", percent));
    out.emplace_back(type_of_share(type, percent), multiprocessors_of_share(gpu, percent));
  }
  return out;
}

/// By device: how far it is slowed down to stand for its type.
std::map<std::int32_t, double> lab_slowdowns(const executor::NetlabSpec& spec) {
  const auto by_node =
      executor::netlab_slowdowns(spec, std::max(1U, std::thread::hardware_concurrency()));
  std::map<std::int32_t, double> out;
  std::int32_t device = 0;
  for (std::size_t n = 0; n < spec.nodes.size(); ++n) {
    for (int d = 0; d < spec.nodes[n].devices; ++d) out[device++] = by_node[n];
  }
  return out;
}

/// The first device of each type.
std::vector<executor::BenchDevice> types_of(const models::Cluster& cluster,
                                            const std::map<std::int32_t, double>& slowdowns) {
  std::vector<executor::BenchDevice> out;
  std::set<int> seen;
  for (const models::Device& device : cluster.devices) {
    if (!seen.insert(device.gpu_type).second) continue;
    const auto slow = slowdowns.find(device.id.value);
    out.push_back(
        {device.id, cluster.gpu(device.id).name, slow == slowdowns.end() ? 1 : slow->second});
  }
  return out;
}

/// Ranks are the cluster's devices where they are emulated as such, where they run on its nodes,
/// and as GPUs of this machine where it is one node. Else they are processes on this machine's
/// cores, and what is measured says nothing about the cluster's types and links.
bool is_there(const CalibrateSettings& args, const models::Cluster& cluster) {
  return args.netlab || args.hosts || (is_cuda(args) && cluster.nodes.size() == 1);
}

void use_cluster(const CalibrateSettings& args, const models::Cluster& cluster, CalibrateJob& job,
                 Diagnostics& diagnostics) {
  std::map<std::int32_t, double> slowdowns;
  if (args.netlab) {
    job.lab = netlab_for_run(cluster, diagnostics);
    if (diagnostics.empty()) slowdowns = lab_slowdowns(*job.lab);
  }
  job.request.devices = types_of(cluster, slowdowns);
  job.request.pairs = bench_pairs(cluster);
  job.request.groups = bench_groups(cluster);
  if (job.where.hosts.empty()) return;
  int slots = 0;
  for (const executor::HostSlots& host : job.where.hosts) slots += host.slots;
  if (slots < cluster.size()) {
    diagnostics.add(at_flag("--hosts"), fmt::format("the hosts have {} devices, the cluster {}",
                                                    slots, cluster.size()));
  }
}

/// Processes of this machine, on one node.
void use_loopback(const std::string& type, std::int64_t ranks, CalibrateJob& job) {
  job.request.devices = {{DeviceId{0}, type, 1}};
  if (ranks < 2) return;
  job.request.pairs = {{DeviceId{0}, DeviceId{1}, kLoopback},
                       {DeviceId{1}, DeviceId{0}, kLoopback}};
  for (int size = 2; size <= std::min(ranks, kLargestGroup); size *= 2) {
    executor::BenchGroup group;
    for (int d = 0; d < size; ++d) group.devices.push_back({d});
    group.link_class = kLoopback;
    job.request.groups.push_back(group);
  }
}

void use_this_machine(const CalibrateSettings& args, const std::string& type, CalibrateJob& job,
                      Diagnostics& diagnostics) {
  for (const auto& [given, flag] :
       {std::pair{args.netlab, "--netlab"}, std::pair{args.hosts.has_value(), "--hosts"}}) {
    if (given) diagnostics.add(at_flag(flag), "no cluster is named", "--cluster FILE");
  }
  const std::int64_t ranks =
      whole_number(args.ranks, "--ranks", 1, is_cuda(args) ? 1 : 2, diagnostics);
  if (ranks > kMostRanks) {
    diagnostics.add(at_flag("--ranks"), fmt::format("more than {}", kMostRanks));
    return;
  }
  use_loopback(type, ranks, job);
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown CPU";
}

std::string machine_text(const CalibrateSettings& args, const executor::CudaDeviceInfo& gpu) {
  utsname system{};
  ::uname(&system);
  std::string text =
      fmt::format("{}, {} cores, {} {}", cpu_model(), std::thread::hardware_concurrency(),
                  system.sysname, system.release);
  if (!gpu.name.empty()) {
    text = fmt::format("{}, {} multiprocessors; {}", gpu.name, gpu.multiprocessors, text);
  }
  if (args.hosts) text += fmt::format("; driver of hosts {}", *args.hosts);
  if (args.netlab) text += "; emulated network";
  return text;
}

/// With hosts the libraries are theirs: the back end is only named.
std::string libraries_text(const CalibrateSettings& args, const executor::RunSettings& settings) {
  const std::string version = fmt::format("orrery {}", experiments::program_version());
  if (args.hosts) {
    return fmt::format("{} {} of the hosts; {}", settings.backend, settings.library, version);
  }
  return fmt::format("{}; {}", executor::make_backend(settings, 0)->name(), version);
}

void check_out(const CalibrateSettings& args, Diagnostics& diagnostics) {
  std::error_code error;
  // Without a folder there are no samples to fit: that is said when they are read.
  if (args.fit_only && !std::filesystem::exists(args.out, error)) return;
  std::filesystem::create_directories(args.out, error);
  if (error || ::access(args.out.c_str(), W_OK) != 0) {
    diagnostics.add(at_flag("--out"), fmt::format("cannot write into '{}'", args.out));
  }
}

}  // namespace

std::string narrowest_class(const models::Cluster& cluster, DeviceId source, DeviceId destination) {
  const models::Topology topology(cluster);
  std::vector<LinkId> route;
  topology.route(source, destination, route);
  double narrowest = std::numeric_limits<double>::infinity();
  std::string found;
  for (const LinkId id : route) {
    const models::Link& link = topology.links()[id];
    if (link.bandwidth.value > narrowest) continue;
    if (link.bandwidth.value == narrowest && !found.empty()) continue;
    narrowest = link.bandwidth.value;
    found = link.link_class;
  }
  return found;
}

std::vector<executor::BenchPair> bench_pairs(const models::Cluster& cluster) {
  std::vector<executor::BenchPair> out;
  const auto add = [&](DeviceId a, DeviceId b) {
    out.push_back({a, b, narrowest_class(cluster, a, b)});
    out.push_back({b, a, narrowest_class(cluster, b, a)});
  };
  std::vector<DeviceId> first;
  std::set<std::string> inside;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const auto devices = cluster.devices_of(NodeId{static_cast<int>(n)});
    if (devices.empty()) continue;
    first.push_back(devices.front());
    for (std::size_t i = 1; i < devices.size(); ++i) {
      if (inside.insert(narrowest_class(cluster, devices[0], devices[i])).second) {
        add(devices[0], devices[i]);
      }
    }
  }
  for (std::size_t a = 0; a < first.size(); ++a) {
    const std::size_t last = first.size() <= kMostPairedNodes ? first.size() : a + 2;
    for (std::size_t b = a + 1; b < std::min(last, first.size()); ++b) add(first[a], first[b]);
  }
  return out;
}

std::vector<executor::BenchGroup> bench_groups(const models::Cluster& cluster) {
  std::vector<executor::BenchGroup> out;
  const auto add = [&](const std::vector<DeviceId>& devices) {
    for (const std::size_t size : {2, 4, 8}) {
      if (size > devices.size()) return;
      executor::BenchGroup group;
      group.devices.assign(devices.begin(), devices.begin() + static_cast<std::ptrdiff_t>(size));
      // The narrowest edge of the ring.
      double narrowest = std::numeric_limits<double>::infinity();
      const models::Topology topology(cluster);
      for (std::size_t i = 0; i < size; ++i) {
        const DeviceId from = group.devices[i];
        const DeviceId to = group.devices[(i + 1) % size];
        const double bandwidth = topology.path(from, to).bandwidth.value;
        if (bandwidth >= narrowest) continue;
        narrowest = bandwidth;
        group.link_class = narrowest_class(cluster, from, to);
      }
      out.push_back(group);
    }
  };
  std::vector<DeviceId> first;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const auto devices = cluster.devices_of(NodeId{static_cast<int>(n)});
    if (devices.empty()) continue;
    first.push_back(devices.front());
    add(devices);
  }
  add(first);
  return out;
}

CalibrateJob make_calibrate_job(const CalibrateSettings& args, const std::string& date) {
  Diagnostics diagnostics;
  CalibrateJob job;
  job.settings = read_settings(args, diagnostics);
  read_where(args, job.where, diagnostics);
  job.request.kinds = read_kinds(args.only, diagnostics);
  executor::set_default_sizes(job.request, args.quick);
  if (args.quick) job.rule = executor::quick_rule();
  job.request.cloud_folder = args.cloud.has_value();

  const executor::CudaDeviceInfo gpu = cuda_device(args);
  if (is_cuda(args) && !args.quick) {
    job.request.optimizer_parameters = executor::steps_of_four(4096, kGpuParameters);
  }
  const std::string type = args.gpu_type.value_or(!is_cuda(args)     ? "cpu"
                                                  : gpu.name.empty() ? std::string("cuda")
                                                                     : gpu.name);
  if (args.gpu_type && split(*args.gpu_type, ' ').empty()) {
    diagnostics.add(at_flag("--gpu-type"), "names no type", "as in --gpu-type H100-SXM");
  }
  const models::Library library = open_library(diagnostics);
  models::Job training;
  const models::Workload workload =
      read_workload(args, dtype_of(job.settings.precision), library, training, diagnostics);
  if (args.cluster) {
    const models::Cluster cluster =
        models::load_cluster(*args.cluster, library, at_flag("--cluster"), diagnostics);
    diagnostics.raise();
    if (args.ranks) diagnostics.add(at_flag("--ranks"), "the cluster says how many there are");
    for (const models::GpuType& gpu_type : cluster.gpu_types) {
      for (const auto& [dtype, peak] : gpu_type.peak) {
        job.fit.peaks[{gpu_type.name, dtype}] = peak;
      }
    }
    if (is_there(args, cluster)) {
      use_cluster(args, cluster, job, diagnostics);
      if (args.gpu_type) job.request.devices = {{DeviceId{0}, *args.gpu_type, 1}};
    } else {
      use_loopback(type, std::min<std::int64_t>(cluster.size(), kLargestGroup), job);
      job.note = fmt::format(
          "{} is not there without --netlab or --hosts: one device of this machine is measured as "
          "type '{}', messages between its processes as link class '{}'",
          cluster.name, type, kLoopback);
    }
  } else {
    use_this_machine(args, type, job, diagnostics);
    const auto known = library.gpus.find(type);
    if (known != library.gpus.end()) {
      for (const auto& [dtype, peak] : known->second.peak) job.fit.peaks[{type, dtype}] = peak;
    }
  }
  diagnostics.raise();
  for (const auto& [name, count] : read_shares(args, type, gpu, diagnostics)) {
    // A type of the cluster that is a part is measured on the part, not on the whole GPU.
    std::erase_if(job.request.devices,
                  [&](const executor::BenchDevice& one) { return one.type == name; });
    job.request.devices.push_back({DeviceId{0}, name, 1});
    job.multiprocessors[name] = count;
    job.note += fmt::format("{}'{}' is {} of {} multiprocessors, {:.1f} % of the GPU",
                            job.note.empty() ? "" : "; ", name, count, gpu.multiprocessors,
                            100.0 * count / std::max(1, gpu.multiprocessors));
  }
  job.request.model = bench_model(workload);
  check_model(job.request.model, diagnostics);
  check_out(args, diagnostics);
  diagnostics.raise();
  job.about.machine = machine_text(args, gpu);
  job.about.libraries = libraries_text(args, job.settings);
  job.about.date = date;
  job.about.model = workload.name;
  job.about.backend = job.settings.backend;
  if (args.quick) job.about.sampling = ir::kQuickSampling;
  job.fit.profile_name = std::filesystem::path(args.out).filename().string();
  job.fit.counted_memory = calibration::count_kept(workload, training);
  return job;
}

}  // namespace orrery::tools
