/// orrery list: what the library and this build know.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>
#include <utility>

#include "experiments/study/manifest.h"
#include "experiments/study/mixed_length_file.h"
#include "experiments/study/replay.h"
#include "experiments/study/steps.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "tools/cli/command.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/catalog_text.h"
#include "tools/commands/inputs.h"
#include "tools/commands/list_planners.h"
#include "tools/commands/list_policies.h"
#include "tools/commands/run_folder.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

struct ScheduleRecord {
  std::string name;
  std::string summary;
  std::string source;
};

struct GpuRecord {
  std::string name;
  std::string vendor;
  double memory_bytes = 0;
  double memory_bandwidth = 0;
  std::map<std::string, double> peak;
  double efficiency = 0;
  std::optional<double> dollars_per_hour;
  std::string source;
};

struct LinkRecord {
  std::string name;
  double bandwidth = 0;
  double latency_seconds = 0;
  double efficiency = 0;
  bool shared = false;
  std::string source;
};

struct ModelRecord {
  std::string name;
  double parameters = 0;
  int layers = 0;
  std::int64_t hidden = 0;
  std::string path;
};

struct ClusterRecord {
  std::string name;
  int gpus = 0;
  int nodes = 0;
  std::string types;
  std::string path;
};

struct ExperimentRecord {
  std::string path;
  std::string title;
  std::int64_t runs = 0;
};

void describe(config::Visitor& v, ScheduleRecord& record) {
  v.required("name", record.name, "");
  v.required("summary", record.summary, "");
  v.required("source", record.source, "");
}
void describe(config::Visitor& v, GpuRecord& record) {
  v.required("name", record.name, "");
  v.required("vendor", record.vendor, "");
  v.required("memory_bytes", record.memory_bytes, "");
  v.required("memory_bytes_per_second", record.memory_bandwidth, "");
  v.required("peak_flops", record.peak, "");
  v.required("efficiency", record.efficiency, "");
  v.optional("dollars_per_hour", record.dollars_per_hour, "");
  v.required("source", record.source, "");
}
void describe(config::Visitor& v, LinkRecord& record) {
  v.required("name", record.name, "");
  v.required("bytes_per_second", record.bandwidth, "");
  v.required("latency_seconds", record.latency_seconds, "");
  v.required("efficiency", record.efficiency, "");
  v.required("shared", record.shared, "");
  v.required("source", record.source, "");
}
void describe(config::Visitor& v, ModelRecord& record) {
  v.required("name", record.name, "");
  v.required("parameters", record.parameters, "");
  v.required("layers", record.layers, "");
  v.required("hidden", record.hidden, "");
  v.required("path", record.path, "");
}
void describe(config::Visitor& v, ClusterRecord& record) {
  v.required("name", record.name, "");
  v.required("gpus", record.gpus, "");
  v.required("nodes", record.nodes, "");
  v.required("types", record.types, "");
  v.required("path", record.path, "");
}
void describe(config::Visitor& v, ExperimentRecord& record) {
  v.required("path", record.path, "");
  v.required("title", record.title, "");
  v.required("runs", record.runs, "");
}

models::Library library() {
  Diagnostics diagnostics;
  models::Library library = open_library(diagnostics);
  diagnostics.raise();
  return library;
}

std::vector<ScheduleRecord> schedules_known() {
  std::vector<ScheduleRecord> records;
  for (const models::ScheduleEntry* entry : models::schedules()) {
    records.push_back({entry->name(), entry->summary, entry->source});
  }
  return records;
}

std::string text_of(const std::vector<ScheduleRecord>& records) {
  Table table;
  table.column("schedule").column("order of passes").column("source");
  for (const ScheduleRecord& record : records) {
    table.row({record.name, record.summary, record.source});
  }
  return table.text(0, colors());
}

std::vector<GpuRecord> gpus_known() {
  std::vector<GpuRecord> records;
  for (const auto& [name, gpu] : library().gpus) {
    GpuRecord record;
    record.name = name;
    record.vendor = gpu.vendor;
    record.memory_bytes = gpu.memory.value;
    record.memory_bandwidth = gpu.memory_bandwidth.value;
    for (const auto& [dtype, peak] : gpu.peak) record.peak[ir::name_of(dtype)] = peak.value;
    record.efficiency = gpu.efficiency;
    if (gpu.price) record.dollars_per_hour = gpu.price->value * 3600;
    record.source = gpu.source;
    records.push_back(std::move(record));
  }
  return records;
}

std::string text_of(const std::vector<GpuRecord>& records) {
  Table table;
  table.column("GPU").column("vendor").number("GiB").number("GB/s").number("bf16 TFLOPS");
  table.number("fp16 TFLOPS").number("efficiency").number("$/h");
  for (const GpuRecord& record : records) {
    const auto peak = [&](const char* dtype) {
      const auto at = record.peak.find(dtype);
      return at == record.peak.end() ? "-" : grouped(at->second / 1e12, 1);
    };
    table.row({record.name, record.vendor, grouped(record.memory_bytes / 0x1p30, 1),
               grouped(record.memory_bandwidth / 1e9, 0), peak("bf16"), peak("fp16"),
               fmt::format("{:.2f}", record.efficiency),
               record.dollars_per_hour ? fmt::format("{:.2f}", *record.dollars_per_hour) : "-"});
  }
  return table.text(0, colors());
}

std::vector<LinkRecord> links_known() {
  std::vector<LinkRecord> records;
  for (const auto& [name, link] : library().links) {
    records.push_back({name, link.bandwidth.value, link.latency.value, link.efficiency, link.shared,
                       link.source});
  }
  return records;
}

std::string text_of(const std::vector<LinkRecord>& records) {
  Table table;
  table.column("link").number("GB/s").number("latency us").number("efficiency").column("medium");
  for (const LinkRecord& record : records) {
    table.row({record.name, grouped(record.bandwidth / 1e9, 3),
               grouped(record.latency_seconds * 1e6, 1), fmt::format("{:.2f}", record.efficiency),
               record.shared ? "shared" : "per port"});
  }
  return table.text(0, colors());
}

std::vector<ModelRecord> models_known() {
  Diagnostics diagnostics;
  const models::Library known = open_library(diagnostics);
  models::Job job;
  job.global_batch = 1;
  job.sequence_length = 1;
  std::vector<ModelRecord> records;
  for (const auto& [name, path] : known.models) {
    const models::Workload workload =
        models::load_workload(name, job, known, {path, 0, 0}, diagnostics);
    if (!diagnostics.empty()) break;
    const int layers = workload.last_layer().value - workload.first_layer().value + 1;
    records.push_back({name, static_cast<double>(models::parameters(workload)), layers,
                       workload.shape.hidden, path});
  }
  diagnostics.raise();
  return records;
}

std::string text_of(const std::vector<ModelRecord>& records) {
  Table table;
  table.column("model").number("parameters").number("layers").number("hidden");
  for (const ModelRecord& record : records) {
    const double billions = record.parameters / 1e9;
    table.row({record.name,
               billions >= 1 ? fmt::format("{:.1f} B", billions)
                             : fmt::format("{:.0f} M", 1e3 * billions),
               std::to_string(record.layers),
               record.hidden > 0 ? std::to_string(record.hidden) : "-"});
  }
  return table.text(0, colors());
}

std::vector<ClusterRecord> clusters_known() {
  Diagnostics diagnostics;
  const models::Library known = open_library(diagnostics);
  std::vector<ClusterRecord> records;
  for (const auto& [name, path] : known.clusters) {
    const models::Cluster cluster = models::load_cluster(name, known, {path, 0, 0}, diagnostics);
    if (!diagnostics.empty()) break;
    std::vector<DeviceId> all;
    for (const models::Device& device : cluster.devices) all.push_back(device.id);
    records.push_back({name, cluster.size(), static_cast<int>(cluster.nodes.size()),
                       composition(all, cluster), path});
  }
  diagnostics.raise();
  return records;
}

std::string text_of(const std::vector<ClusterRecord>& records) {
  Table table;
  table.column("cluster").number("GPUs").number("nodes").column("types");
  for (const ClusterRecord& record : records) {
    table.row({record.name, grouped(record.gpus, 0), grouped(record.nodes, 0), record.types});
  }
  return table.text(0, colors());
}

/// Files below experiments/ for `orrery run`, by path.
std::vector<ExperimentRecord> experiments_known() {
  const fs::path root = fs::path(ORRERY_SOURCE_DIR) / "experiments";
  std::error_code error;
  Diagnostics diagnostics;
  std::vector<ExperimentRecord> records;
  for (const std::string& file : experiments_of(root.string(), diagnostics)) {
    ExperimentRecord record;
    record.path = fs::proximate(fs::path(file).parent_path(), error).string();
    const ExperimentKind kind = kind_of(file);
    if (kind == ExperimentKind::replay) {
      const auto study = experiments::load_replay_study(file, diagnostics);
      record.title = study.title;
      record.runs = static_cast<std::int64_t>(experiments::expand(study).size());
    } else if (kind == ExperimentKind::steps) {
      Diagnostics not_built;  // is no matter here
      const auto steps = experiments::load_steps(file, not_built);
      record.title = steps.title;
      record.runs = std::ssize(steps.steps);
    } else if (kind == ExperimentKind::mixed_length) {
      const auto study = config::load_file<experiments::MixedLengthFile>(file, diagnostics);
      record.title = study.title;
      for (const auto& one : study.cases) record.runs += std::ssize(one.systems);
    } else if (kind == ExperimentKind::twin) {
      record.title = "Twin: predicted against measured on this machine";
    } else {
      const auto manifest = experiments::load_manifest(file, diagnostics);
      record.title = manifest.title;
      record.runs = static_cast<std::int64_t>(experiments::expand(manifest, diagnostics).size());
    }
    if (!diagnostics.empty()) break;
    records.push_back(std::move(record));
  }
  diagnostics.raise();
  return records;
}

std::string text_of(const std::vector<ExperimentRecord>& records) {
  Table table;
  table.column("experiment (for orrery run)").number("runs").column("title");
  for (const ExperimentRecord& record : records) {
    table.row({record.path, std::to_string(record.runs), record.title});
  }
  return table.text(0, colors());
}

template <class T>
std::string render(const std::vector<T>& records, bool json) {
  return json ? to_json(records) : text_of(records);
}

struct Listing {
  const char* name;
  std::string (*text)(bool json);
};

constexpr Listing kListings[] = {
    {"schedules", [](bool json) { return render(schedules_known(), json); }},
    {"gpus", [](bool json) { return render(gpus_known(), json); }},
    {"links", [](bool json) { return render(links_known(), json); }},
    {"models", [](bool json) { return render(models_known(), json); }},
    {"clusters", [](bool json) { return render(clusters_known(), json); }},
    {"experiments", [](bool json) { return render(experiments_known(), json); }},
};

}  // namespace

void describe(config::Visitor& v, ListSettings& settings) {
  v.required(
      "what", settings.what,
      "planners, step-planners, policies, schedules, gpus, links, models, clusters or experiments",
      {.positional = true});
  v.optional("name", settings.names,
             "planners, step planners or policies to show in detail; default: all, in short",
             {.positional = true});
  v.optional("markdown", settings.markdown, "print as docs/planners.md, docs/recovery.md");
  describe_json(v, settings.json);
}

namespace {

int run(const ListSettings& args) {
  std::vector<std::string> names = {"planners", "step-planners", "policies"};
  if (args.what == "planners") {
    print(list_planners(args));
    return 0;
  }
  if (args.what == "step-planners") {
    print(list_step_planners(args));
    return 0;
  }
  if (args.what == "policies") {
    print(list_policies(args));
    return 0;
  }
  refuse_planner_flags(args);
  for (const Listing& listing : kListings) {
    if (args.what == listing.name) {
      print(listing.text(args.json));
      return 0;
    }
    names.emplace_back(listing.name);
  }
  Diagnostics diagnostics;
  diagnostics.add({"list", 0, 0}, fmt::format("cannot list '{}'", args.what),
                  config::suggest(args.what, names, "lists"));
  diagnostics.raise();
  return 2;
}

}  // namespace

const Command kList = command<ListSettings, run>(
    "list", "Show what the library and this build know", "list planners hexiscale");

}  // namespace orrery::tools
