#include "experiments/execution/calibrate.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "executor/bench/compute_bench.h"
#include "executor/bench/sampling.h"
#include "executor/bench/session.h"
#include "executor/bench/storage_bench.h"
#include "executor/cuda/backend.h"
#include "executor/model/shard.h"
#include "executor/netlab/namespaces.h"
#include "experiments/execution/netlab.h"
#include "experiments/execution/rank_job.h"
#include "experiments/execution/sample_store.h"
#include "experiments/study/exports.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/version.h"
#include "models/base/text.h"
#include "models/ir/measurement_text.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;
using executor::BenchCase;
using ir::Measurement;
using ir::MeasurementKind;

constexpr std::int64_t kCpuLength = 64;
constexpr std::int64_t kCudaLength = 2048;
constexpr std::int64_t kMostRanks = 64;
constexpr std::int64_t kLargestGroup = 8;
constexpr std::int64_t kGpuParameters = std::int64_t{256} << 20;

/// What is measured where.
struct CalibrateJob {
  executor::BenchRequest request;
  executor::SamplingRule rule;
  executor::RunSettings settings;
  /// hosts, ssh, listen, port, advertise.
  executor::SpawnOptions where;
  std::optional<executor::NetlabSpec> lab;
  /// How many a green context has, by device type; other types have the whole GPU.
  std::map<std::string, int> multiprocessors;
  ir::MeasurementSet about;  ///< Without measurements.
  calibration::FitOptions fit;
  /// What a reader of the profile must know: a cluster was named and this machine is measured, not
  /// the cluster, or what part of the GPU a share is; "": nothing.
  std::string note;
};

bool is_cuda(const CalibrateSettings& settings) { return settings.backend == BackendKind::cuda; }

models::Workload read_workload(const CalibrateSettings& settings, ir::Dtype dtype,
                               const models::Library& library, models::Job& job,
                               Diagnostics& diagnostics) {
  const bool cuda = is_cuda(settings);
  const std::string model = settings.model.value_or(
      cuda ? "llama_7b" : ORRERY_SOURCE_DIR "/experiments/executor/tiny_llama.yaml");
  job.global_batch = 1;
  job.dtype = dtype;
  job.sequence_length = settings.sequence_length.value_or(cuda ? kCudaLength : kCpuLength);
  return models::load_workload(model, job, library, at_setting("model"), diagnostics);
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
  if (model.shape.experts > 0) {
    diagnostics.add(at_setting("model"), "the micro-benchmarks time no layers with experts");
    return;
  }
  ir::Program program;
  program.header = executor::bench_header(model, std::max(model.shape.layers, 1));
  for (const std::string& what : executor::find_unsupported(program)) {
    diagnostics.add(at_setting("model"), "the executor cannot run " + what);
  }
}

/// The GPU's name and multiprocessors; empty where the hosts have it.
executor::CudaDeviceInfo cuda_device(const CalibrateSettings& settings) {
  if (!is_cuda(settings)) return {};
  const executor::CudaStatus status = executor::cuda_status();
  return status.devices.empty() ? executor::CudaDeviceInfo{} : status.devices.front();
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
bool is_there(const CalibrateSettings& settings, const models::Cluster& cluster) {
  const MachineSettings& machines = settings.machines;
  return machines.netlab || !machines.hosts.empty() ||
         (is_cuda(settings) && cluster.nodes.size() == 1);
}

void use_cluster(const CalibrateSettings& settings, const models::Cluster& cluster,
                 CalibrateJob& job, Diagnostics& diagnostics) {
  std::map<std::int32_t, double> slowdowns;
  if (settings.machines.netlab) {
    job.lab = netlab_for_run(cluster, diagnostics);
    if (diagnostics.empty()) slowdowns = lab_slowdowns(*job.lab);
  }
  job.request.devices = types_of(cluster, slowdowns);
  const InsideNodes inside =
      is_cuda(settings) && !settings.machines.netlab ? InsideNodes::loopback : InsideNodes::links;
  job.request.pairs = bench_pairs(cluster, inside);
  job.request.groups = bench_groups(cluster, inside);
  if (job.where.hosts.empty()) return;
  const int slots = settings.machines.devices();
  if (slots < cluster.size()) {
    diagnostics.add(at_setting("hosts"), fmt::format("the hosts have {} devices, the cluster {}",
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

void use_this_machine(const CalibrateSettings& settings, const std::string& type, CalibrateJob& job,
                      Diagnostics& diagnostics) {
  for (const auto& [given, key] : {std::pair{settings.machines.netlab, "netlab"},
                                   std::pair{!settings.machines.hosts.empty(), "hosts"}}) {
    if (given) diagnostics.add(at_setting(key), "no cluster is named", "--cluster FILE");
  }
  use_loopback(type, settings.ranks.value_or(is_cuda(settings) ? 1 : 2), job);
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

std::string machine_text(const CalibrateSettings& settings, const executor::CudaDeviceInfo& gpu) {
  utsname system{};
  ::uname(&system);
  std::string text =
      fmt::format("{}, {} cores, {} {}", cpu_model(), std::thread::hardware_concurrency(),
                  system.sysname, system.release);
  if (!gpu.name.empty()) {
    text = fmt::format("{}, {} multiprocessors; {}", gpu.name, gpu.multiprocessors, text);
  }
  const std::vector<HostDevices>& hosts = settings.machines.hosts;
  for (const HostDevices& host : hosts) {
    text += (&host == &hosts.front() ? "; driver of hosts " : ",") + to_scalar(host);
  }
  if (settings.machines.netlab) text += "; emulated network";
  return text;
}

/// With hosts the libraries are theirs: the back end is only named.
std::string libraries_text(const executor::RunSettings& settings, bool on_hosts) {
  const std::string version = fmt::format("orrery {}", program_version());
  if (on_hosts) {
    return fmt::format("{} {} of the hosts; {}", settings.backend, settings.library, version);
  }
  return fmt::format("{}; {}", executor::make_backend(settings, 0)->name(), version);
}

void check_out(const CalibrateSettings& settings, Diagnostics& diagnostics) {
  std::error_code error;
  // Without a folder there are no samples to fit: that is said when they are read.
  if (settings.fit_only && !fs::exists(settings.out, error)) return;
  const std::size_t before = diagnostics.problems().size();
  check_out_folder("out", settings.out, diagnostics);
  if (diagnostics.problems().size() != before) return;
  fs::create_directories(settings.out, error);
  if (error) {
    diagnostics.add(at_setting("out"),
                    fmt::format("cannot write into '{}': {}", settings.out, error.message()));
  }
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

CalibrateJob make_job(const CalibrateSettings& settings, Diagnostics diagnostics) {
  CalibrateJob job;
  const bool cuda = is_cuda(settings);
  const bool on_hosts = !settings.machines.hosts.empty();
  using executor::Precision;
  job.settings =
      compute_settings(settings.backend, settings.library,
                       settings.precision.value_or(cuda ? Precision::bf16 : Precision::fp32),
                       TransportKind::tcp, on_hosts, diagnostics);
  job.settings.local_checkpoints =
      settings.checkpoints.value_or((fs::path(settings.out) / "checkpoints").string());
  job.settings.cloud_checkpoints = settings.cloud.value_or("");
  settings.machines.apply(job.where);
  job.request.kinds = {settings.only.begin(), settings.only.end()};
  executor::set_default_sizes(job.request, settings.quick);
  if (settings.quick) job.rule = executor::quick_rule();
  job.request.cloud_folder = settings.cloud.has_value();

  const executor::CudaDeviceInfo gpu = cuda_device(settings);
  if (cuda && !settings.quick) {
    job.request.optimizer_parameters = executor::steps_of_four(4096, kGpuParameters);
  }
  const std::string type = settings.gpu_type.value_or(!cuda              ? "cpu"
                                                      : gpu.name.empty() ? std::string("cuda")
                                                                         : gpu.name);
  const models::Library library = open_library(diagnostics);
  models::Job training;
  const models::Workload workload =
      read_workload(settings, dtype_of(job.settings.precision), library, training, diagnostics);
  if (settings.cluster) {
    const models::Cluster cluster =
        models::load_cluster(*settings.cluster, library, at_setting("cluster"), diagnostics);
    diagnostics.raise();
    if (settings.ranks) {
      diagnostics.add(at_setting("ranks"), "the cluster says how many there are");
    }
    for (const models::GpuType& gpu_type : cluster.gpu_types) {
      for (const auto& [dtype, peak] : gpu_type.peak) {
        job.fit.peaks[{gpu_type.name, dtype}] = peak;
      }
    }
    if (is_there(settings, cluster)) {
      use_cluster(settings, cluster, job, diagnostics);
      if (settings.gpu_type) job.request.devices = {{DeviceId{0}, *settings.gpu_type, 1}};
    } else {
      use_loopback(type, std::min<std::int64_t>(cluster.size(), kLargestGroup), job);
      job.note = fmt::format(
          "{} is not there without --netlab or --hosts: one device of this machine is measured as "
          "type '{}', messages between its processes as link class '{}'",
          cluster.name, type, kLoopback);
    }
  } else {
    use_this_machine(settings, type, job, diagnostics);
    const auto known = library.gpus.find(type);
    if (known != library.gpus.end()) {
      for (const auto& [dtype, peak] : known->second.peak) job.fit.peaks[{type, dtype}] = peak;
    }
  }
  diagnostics.raise();
  for (const CardShare& share : settings.shares) {
    const std::string name = executor::type_of_share(type, share.percent);
    const int count = executor::multiprocessors_of_share(gpu, share.percent);
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
  check_out(settings, diagnostics);
  diagnostics.raise();
  job.about.machine = machine_text(settings, gpu);
  job.about.libraries = libraries_text(job.settings, on_hosts);
  job.about.date = now();
  job.about.model = workload.name;
  job.about.backend = job.settings.backend;
  if (settings.quick) job.about.sampling = ir::kQuickSampling;
  job.fit.profile_name = fs::path(settings.out).filename().string();
  job.fit.counted_memory = calibration::count_kept(workload, training);
  return job;
}

/// Before anything is measured. There is no substitute for the emulated network: times over
/// loopback are not those of its links.
void check_lab() {
  const std::string why = executor::netlab_unavailable();
  if (why.empty()) return;
  Diagnostics diagnostics;
  diagnostics.add(at_setting("netlab"), why,
                  "or name the cluster's machines with --hosts; without --netlab loopback is "
                  "measured, as link class 'loopback', and one core as type 'cpu'");
  diagnostics.raise();
}

bool between_ranks(const BenchCase& one) {
  return one.key.kind == MeasurementKind::point_to_point ||
         one.key.kind == MeasurementKind::collective;
}

bool to_disk(const BenchCase& one) {
  return one.key.kind == MeasurementKind::checkpoint_write ||
         one.key.kind == MeasurementKind::checkpoint_read;
}

/// Takes cases: compute and storage in this process, or on the hosts; the network between
/// processes.
class CaseRunner {
 public:
  CaseRunner(const CalibrateJob& job, const std::vector<BenchCase>& cases, const Call& call)
      : job_(job), call_(call) {
    std::set<DeviceId> devices;
    for (const BenchCase& one : cases) {
      if (!is_local(one)) devices.insert(one.devices.begin(), one.devices.end());
    }
    devices_.assign(devices.begin(), devices.end());
  }

  void run(const BenchCase& one, const std::vector<Measurement>& before,
           const std::function<void(const Measurement&)>& sample) {
    if (!is_local(one)) return session().run(one, before, sample);
    executor::BenchSink sink;
    sink.sample = sample;
    sink.check = [this] { check(); };
    if (to_disk(one)) {
      const bool cloud = one.key.location == ir::Location::cloud;
      return executor::time_checkpoint(
          one, cloud ? job_.settings.cloud_checkpoints : job_.settings.local_checkpoints, job_.rule,
          before, executor::system_bench_clock(), sink);
    }
    compute(one.key.device_type).run(one, job_.rule, before, sink);
  }

 private:
  bool is_local(const BenchCase& one) const {
    return job_.where.hosts.empty() && !between_ranks(one);
  }

  void check() const {
    if (call_.cancellation.requested()) throw executor::BenchInterrupted();
  }

  /// One device at a time is in memory: the whole one, or a part of a GPU.
  executor::ComputeBench& compute(const std::string& type) {
    const auto part = job_.multiprocessors.find(type);
    const std::string name = part == job_.multiprocessors.end() ? std::string() : type;
    if (bench_ != nullptr && name == name_) return *bench_;
    bench_.reset();
    backend_.reset();
    if (part == job_.multiprocessors.end()) {
      backend_ = executor::make_backend(job_.settings, 0);
    } else {
      backend_ = std::move(
          executor::make_green_backends(job_.settings.precision, 0, {part->second}).front());
    }
    bench_ = std::make_unique<executor::ComputeBench>(*backend_, job_.request.model,
                                                      executor::system_bench_clock());
    name_ = name;
    return *bench_;
  }

  executor::BenchSession& session() {
    if (session_ != nullptr) return *session_;
    // What was computed here is not needed any more, and ranks may need the memory.
    bench_.reset();
    backend_.reset();
    executor::BenchSessionOptions options;
    options.settings = job_.settings;
    options.model = job_.request.model;
    options.rule = job_.rule;
    options.devices = devices_;
    options.hosts = job_.where.hosts;
    options.listen = job_.where.listen;
    options.port = job_.where.port;
    options.advertise = job_.where.advertise;
    options.ssh = job_.where.ssh;
    options.on_message = call_.on_note;
    options.interrupted = call_.cancellation.flag();
    if (job_.lab) {
      lab_ = std::make_unique<ClusterLab>(*job_.lab, call_.on_note);
      options.hosts = lab_->hosts();
      options.listen = executor::netlab_address(0);
      // For this thread and those that it starts from now on.
      executor::enter_namespace(executor::namespace_name(*job_.lab, 0));
    }
    session_ = std::make_unique<executor::BenchSession>(std::move(options));
    return *session_;
  }

  const CalibrateJob& job_;
  const Call& call_;
  std::vector<DeviceId> devices_;  ///< Of the session.
  std::unique_ptr<executor::Backend> backend_;
  std::unique_ptr<executor::ComputeBench> bench_;
  std::string name_;
  std::unique_ptr<ClusterLab> lab_;  ///< Outlives the session.
  std::unique_ptr<executor::BenchSession> session_;
};

/// Nothing is left to do, so that no process need be started.
bool complete(const BenchCase& one, const executor::SamplingRule& rule,
              const std::vector<Measurement>& before) {
  if (one.key.kind == MeasurementKind::memory) return !before.empty();
  return executor::Sampler(rule, before).done();
}

/// Takes what the store lacks of `cases`, in their order. Throws executor::BenchInterrupted;
/// samples are kept in any case. An emulated network is removed at the end.
void take_cases(const CalibrateJob& job, const std::vector<BenchCase>& cases, SampleStore& store,
                const Call& call) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  std::vector<BenchCase> missing;
  for (const BenchCase& one : cases) {
    if (!complete(one, job.rule, store.of(one.key))) missing.push_back(one);
  }
  Progress progress;
  progress.noun = "measurements";
  progress.total = static_cast<int>(cases.size());
  progress.present = static_cast<int>(cases.size() - missing.size());
  const auto show = [&] {
    progress.elapsed_seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (progress.done > 0) {
      progress.remaining_seconds = progress.elapsed_seconds / progress.done *
                                   static_cast<double>(missing.size() - progress.done);
    }
    call.progress(progress);
  };
  CaseRunner runner(job, missing, call);
  for (const BenchCase& one : missing) {
    if (call.cancellation.requested()) throw executor::BenchInterrupted();
    progress.message = ir::name_of(one.key.kind);
    show();
    runner.run(one, store.of(one.key), [&](const Measurement& sample) { store.add(sample); });
    ++progress.done;
  }
  show();
}

void measure(const CalibrateSettings& settings, const CalibrateJob& job, const std::string& samples,
             const Call& call) {
  SampleStore store(samples, job.about);
  Call told = call;
  if (settings.quiet) told.on_progress = nullptr;
  std::exception_ptr error;
  // A thread of its own, which may enter a network namespace.
  std::thread([&] {
    try {
      take_cases(job, executor::list_cases(job.request), store, told);
    } catch (...) {
      error = std::current_exception();
    }
  }).join();
  try {
    if (error) std::rethrow_exception(error);
  } catch (const executor::BenchInterrupted&) {
    throw Interrupted(fmt::format("interrupted; {} samples are kept in {}",
                                  store.set().measurements.size(), samples));
  }
  if (!settings.quick && settings.only.empty()) store.set_sampling("");
}

/// One row for each entry.
std::string entries_csv(const calibration::FitReport& report) {
  std::string text =
      csv_line({"entry", "kind", "samples", "disturbed", "fit_mean_error", "fit_max_error",
                "held_out_mean_error", "held_out_max_error", "held_out", "parameters"});
  const auto cell = [](double error) {
    return error < 0 ? std::string() : fmt::format("{}", error);
  };
  for (const calibration::FitEntry& entry : report.entries) {
    std::string parameters;
    for (const calibration::FitParameter& parameter : entry.parameters) {
      parameters += fmt::format("{}{} = {} {}", parameters.empty() ? "" : "; ", parameter.name,
                                parameter.value, parameter.unit);
    }
    text += csv_line({entry.name, entry.kind, std::to_string(entry.samples),
                      std::to_string(entry.disturbed), cell(entry.fit_mean_error),
                      cell(entry.fit_max_error), cell(entry.held_out_mean_error),
                      cell(entry.held_out_max_error), entry.held_out(), parameters});
  }
  return text;
}

/// Profile, tables and figures of the fits; their names are added to the result.
void write_fits(const CalibrateSettings& settings, const Call& call, CalibrateResult& result) {
  const fs::path out = settings.out;
  const auto write = [&](const char* name, const std::string& text) {
    result.files.push_back((out / name).string());
    write_file(result.files.back(), text);
  };
  write("profile.yaml", models::dump_profile(result.fit.profile));
  write("entries.csv", entries_csv(result.fit));
  write("fits.csv", calibration::points_csv(result.fit));
  if (settings.no_figure || result.fit.entries.empty()) return;
  const FigureResult figure =
      draw_figure({(fs::path(ORRERY_SOURCE_DIR) / "calibration").string(), "plot_fits.py", ""},
                  result.files.back(), out.string(), call.cancellation.flag());
  result.files.insert(result.files.end(), figure.files.begin(), figure.files.end());
  if (call.cancellation.requested()) {
    throw Interrupted("interrupted; the profile is written, figures are not");
  }
  if (!figure.problem.empty()) call.note("no " + figure.problem);
}

}  // namespace

void describe(config::Visitor& v, CalibrateSettings& settings) {
  v.optional("out", settings.out,
             "folder for samples.csv, profile.yaml, fits and figures; a second run goes on where "
             "the first one ended; default: results/calibration",
             {.letter = 'o'});
  v.optional("quick", settings.quick, "few sizes, few repetitions: to see that it works");
  v.optional("only", settings.only,
             "comma-separated kinds: block, gemm, memory_bandwidth, optimizer, memory, "
             "op_overhead, checkpoint_write, checkpoint_read, point_to_point, collective",
             {.commas = true});
  v.optional("fit_only", settings.fit_only, "measure nothing, fit the samples that are there");
  v.optional("no_figure", settings.no_figure, "do not draw the fits");
  v.optional("quiet", settings.quiet, "no progress", {.letter = 'q'});
  v.section("What is measured");
  v.optional("backend", settings.backend, "cpu (default) or cuda");
  v.optional("library", settings.library, "of the cpu back end: eigen or openblas");
  v.optional("precision", settings.precision, "default: fp32, with cuda bf16");
  v.optional(
      "model", settings.model,
      "whose blocks are timed; default: experiments/executor/tiny_llama.yaml, with cuda llama_7b");
  v.optional("sequence_length", settings.sequence_length,
             "tokens per sample; default: 64, cuda 2048");
  v.optional(
      "cluster", settings.cluster,
      "whose GPU types, links and devices, with --netlab or --hosts; without them only as many "
      "processes on this machine as it has devices; default: processes on this machine");
  v.optional(
      "gpu_type", settings.gpu_type,
      "measure one device, not slowed down, under this name, not each GPU type of the cluster");
  v.optional("shares", settings.shares,
             "cuda: percent of the multiprocessors, for example 50,25: green contexts, as types of "
             "their own",
             {.commas = true});
  v.optional("ranks", settings.ranks,
             "processes without a cluster; default: 2 for cpu, none for cuda");
  v.optional("checkpoints", settings.checkpoints, "folder for checkpoints; default: below --out");
  v.optional("cloud", settings.cloud,
             "folder for checkpoints that all nodes see; default: not measured");
  describe(v, settings.machines);
  v.not_empty("only", settings.only, "names no kind");
  if (settings.sequence_length) {
    v.at_least("sequence_length", *settings.sequence_length, std::int64_t{1});
  }
  if (settings.ranks) v.between("ranks", *settings.ranks, std::int64_t{1}, kMostRanks);
  if (!v.reading()) return;
  if (settings.gpu_type && split(*settings.gpu_type, ' ').empty()) {
    v.problem("gpu_type", "names no type", "as in --gpu-type H100-SXM");
  }
  if (v.given("shares") && (!is_cuda(settings) || !settings.machines.hosts.empty())) {
    v.problem("shares", "needs a GPU of this machine", "--backend cuda");
  }
  for (const CardShare& share : settings.shares) {
    if (share.device) v.problem("shares", fmt::format("'{}' names a device", to_scalar(share)));
  }
}

std::int64_t CalibrateResult::disturbed() const {
  return std::count_if(measured.measurements.begin(), measured.measurements.end(),
                       [](const Measurement& sample) { return sample.disturbed; });
}

void describe(config::Visitor& v, CalibrateResult& result) {
  auto samples = static_cast<std::int64_t>(result.measured.measurements.size());
  std::int64_t disturbed = result.disturbed();
  v.required("machine", result.measured.machine, "");
  v.required("libraries", result.measured.libraries, "");
  v.required("date", result.measured.date, "");
  v.required("model", result.measured.model, "");
  v.required("backend", result.measured.backend, "");
  v.required("sampling", result.measured.sampling, "quick: not for use; empty: in full");
  v.required("samples", samples, "all repetitions, disturbed ones too");
  v.required("disturbed", disturbed, "of them, and used in no fit");
  v.required("entries", result.fit.entries, "");
  v.required("warnings", result.fit.warnings, "");
}

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

namespace {

/// Class of what carries a message between two devices.
std::string measured_class(const models::Cluster& cluster, DeviceId source, DeviceId destination,
                           InsideNodes inside) {
  const bool same_node = cluster.device(source).node == cluster.device(destination).node;
  return same_node && inside == InsideNodes::loopback
             ? kLoopback
             : narrowest_class(cluster, source, destination);
}

}  // namespace

std::vector<executor::BenchPair> bench_pairs(const models::Cluster& cluster, InsideNodes within) {
  std::vector<executor::BenchPair> out;
  const auto add = [&](DeviceId a, DeviceId b) {
    out.push_back({a, b, measured_class(cluster, a, b, within)});
    out.push_back({b, a, measured_class(cluster, b, a, within)});
  };
  std::vector<DeviceId> first;
  std::set<std::string> inside;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const auto devices = cluster.devices_of(NodeId{static_cast<int>(n)});
    if (devices.empty()) continue;
    first.push_back(devices.front());
    for (std::size_t i = 1; i < devices.size(); ++i) {
      if (inside.insert(measured_class(cluster, devices[0], devices[i], within)).second) {
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

std::vector<executor::BenchGroup> bench_groups(const models::Cluster& cluster, InsideNodes within) {
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
        group.link_class = measured_class(cluster, from, to, within);
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

CalibrateResult calibrate(const CalibrateSettings& settings, const Call& call,
                          Diagnostics problems) {
  const CalibrateJob job = make_job(settings, std::move(problems));
  CalibrateResult result;
  result.files = {(fs::path(settings.out) / "samples.csv").string()};
  const std::string samples = result.files.front();
  // A closed terminal, too, must not leave the emulated network behind.
  const Cancellation::Listener listener(call.cancellation, {SIGINT, SIGTERM, SIGHUP});
  if (!settings.fit_only) {
    if (job.lab) check_lab();
    if (!job.note.empty() && !settings.quiet) call.note(job.note);
    measure(settings, job, samples, call);
  }
  result.measured = load_samples(samples);
  result.fit = calibration::fit(result.measured, job.fit);
  if (!job.note.empty() && !settings.fit_only) {
    result.fit.warnings.insert(result.fit.warnings.begin(), job.note);
  }
  write_fits(settings, call, result);
  return result;
}

}  // namespace orrery::experiments
