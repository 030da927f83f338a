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
#include "tools/cli/described_table.h"
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

struct ScheduleRow {
  std::string name;
  std::string summary;
  std::string source;
};

struct GpuRow {
  std::string name;
  std::string vendor;
  Bytes memory;
  BytesPerSecond memory_bandwidth;
  std::map<std::string, double> peak;
  double efficiency = 0;
  std::optional<double> dollars_per_hour;
  std::string source;
};

struct LinkRow {
  std::string name;
  BytesPerSecond bandwidth;
  Seconds latency;
  double efficiency = 0;
  bool shared = false;
  std::string source;
};

struct ModelRow {
  std::string name;
  double parameters = 0;
  int layers = 0;
  std::int64_t hidden = 0;
  std::string path;
};

struct ClusterRow {
  std::string name;
  int gpus = 0;
  int nodes = 0;
  std::string types;
  std::string path;
};

struct ExperimentRow {
  std::string path;
  std::string title;
  std::int64_t runs = 0;
};

void describe(config::Visitor& v, ScheduleRow& row) {
  v.required("name", row.name, "", {.column = "schedule"});
  v.required("summary", row.summary, "", {.column = "order of passes"});
  v.required("source", row.source, "", {.column = "source"});
}
void describe(config::Visitor& v, GpuRow& row) {
  v.required("name", row.name, "", {.column = "GPU"});
  v.required("vendor", row.vendor, "", {.column = "vendor"});
  v.required("memory_bytes", row.memory, "", {.column = "GiB", .unit = 0x1p30, .decimals = 1});
  v.required("memory_bytes_per_second", row.memory_bandwidth, "", {.column = "GB/s", .unit = 1e9});
  v.required("peak_flops", row.peak, "");
  v.required("efficiency", row.efficiency, "");
  v.optional("dollars_per_hour", row.dollars_per_hour, "");
  v.required("source", row.source, "");
}
void describe(config::Visitor& v, LinkRow& row) {
  v.required("name", row.name, "", {.column = "link"});
  v.required("bytes_per_second", row.bandwidth, "", {.column = "GB/s", .unit = 1e9, .decimals = 3});
  v.required("latency_seconds", row.latency, "",
             {.column = "latency us", .unit = 1e-6, .decimals = 1});
  v.required("efficiency", row.efficiency, "", {.column = "efficiency", .decimals = 2});
  v.required("shared", row.shared, "", {.column = "medium", .yes = "shared", .no = "per port"});
  v.required("source", row.source, "");
}
void describe(config::Visitor& v, ModelRow& row) {
  v.required("name", row.name, "");
  v.required("parameters", row.parameters, "");
  v.required("layers", row.layers, "");
  v.required("hidden", row.hidden, "");
  v.required("path", row.path, "");
}
void describe(config::Visitor& v, ClusterRow& row) {
  v.required("name", row.name, "", {.column = "cluster"});
  v.required("gpus", row.gpus, "", {.column = "GPUs"});
  v.required("nodes", row.nodes, "", {.column = "nodes"});
  v.required("types", row.types, "", {.column = "types"});
  v.required("path", row.path, "");
}
void describe(config::Visitor& v, ExperimentRow& row) {
  v.required("path", row.path, "");
  v.required("title", row.title, "");
  v.required("runs", row.runs, "");
}

models::Library library() {
  Diagnostics diagnostics;
  models::Library library = open_library(diagnostics);
  diagnostics.raise();
  return library;
}

std::vector<ScheduleRow> schedules_known() {
  std::vector<ScheduleRow> rows;
  for (const models::ScheduleEntry* entry : models::schedules()) {
    rows.push_back({entry->name(), entry->summary, entry->source});
  }
  return rows;
}

std::vector<GpuRow> gpus_known() {
  std::vector<GpuRow> rows;
  for (const auto& [name, gpu] : library().gpus) {
    GpuRow row;
    row.name = name;
    row.vendor = gpu.vendor;
    row.memory = gpu.memory;
    row.memory_bandwidth = gpu.memory_bandwidth;
    for (const auto& [dtype, peak] : gpu.peak) row.peak[ir::name_of(dtype)] = peak.value;
    row.efficiency = gpu.efficiency;
    if (gpu.price) row.dollars_per_hour = gpu.price->value * 3600;
    row.source = gpu.source;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::string text_of(const std::vector<GpuRow>& rows) {
  Table table;
  table.column("GPU").column("vendor").number("GiB").number("GB/s").number("bf16 TFLOPS");
  table.number("fp16 TFLOPS").number("efficiency").number("$/h");
  for (const GpuRow& row : rows) {
    const auto peak = [&](const char* dtype) {
      const auto at = row.peak.find(dtype);
      return at == row.peak.end() ? "-" : grouped(at->second / 1e12, 1);
    };
    table.row({row.name, row.vendor, grouped(row.memory.value / 0x1p30, 1),
               grouped(row.memory_bandwidth.value / 1e9, 0), peak("bf16"), peak("fp16"),
               fmt::format("{:.2f}", row.efficiency),
               row.dollars_per_hour ? fmt::format("{:.2f}", *row.dollars_per_hour) : "-"});
  }
  return table.text(0, colors());
}

std::vector<LinkRow> links_known() {
  std::vector<LinkRow> rows;
  for (const auto& [name, link] : library().links) {
    rows.push_back({name, link.bandwidth, link.latency, link.efficiency, link.shared, link.source});
  }
  return rows;
}

std::vector<ModelRow> models_known() {
  Diagnostics diagnostics;
  const models::Library known = open_library(diagnostics);
  models::Job job;
  job.global_batch = 1;
  job.sequence_length = 1;
  std::vector<ModelRow> rows;
  for (const auto& [name, path] : known.models) {
    const models::Workload workload =
        models::load_workload(name, job, known, {path, 0, 0}, diagnostics);
    if (!diagnostics.empty()) break;
    const int layers = workload.last_layer().value - workload.first_layer().value + 1;
    rows.push_back({name, static_cast<double>(models::parameters(workload)), layers,
                    workload.shape.hidden, path});
  }
  diagnostics.raise();
  return rows;
}

std::string text_of(const std::vector<ModelRow>& rows) {
  Table table;
  table.column("model").number("parameters").number("layers").number("hidden");
  for (const ModelRow& row : rows) {
    const double billions = row.parameters / 1e9;
    table.row({row.name,
               billions >= 1 ? fmt::format("{:.1f} B", billions)
                             : fmt::format("{:.0f} M", 1e3 * billions),
               std::to_string(row.layers), row.hidden > 0 ? std::to_string(row.hidden) : "-"});
  }
  return table.text(0, colors());
}

std::vector<ClusterRow> clusters_known() {
  Diagnostics diagnostics;
  const models::Library known = open_library(diagnostics);
  std::vector<ClusterRow> rows;
  for (const auto& [name, path] : known.clusters) {
    const models::Cluster cluster = models::load_cluster(name, known, {path, 0, 0}, diagnostics);
    if (!diagnostics.empty()) break;
    std::vector<DeviceId> all;
    for (const models::Device& device : cluster.devices) all.push_back(device.id);
    rows.push_back({name, cluster.size(), static_cast<int>(cluster.nodes.size()),
                    composition(all, cluster), path});
  }
  diagnostics.raise();
  return rows;
}

/// Files below experiments/ for `orrery run`, by path.
std::vector<ExperimentRow> experiments_known() {
  const fs::path root = fs::path(ORRERY_SOURCE_DIR) / "experiments";
  std::error_code error;
  Diagnostics diagnostics;
  std::vector<ExperimentRow> rows;
  for (const std::string& file : experiments_of(root.string(), diagnostics)) {
    ExperimentRow row;
    row.path = fs::proximate(fs::path(file).parent_path(), error).string();
    const ExperimentKind kind = kind_of(file);
    if (kind == ExperimentKind::replay) {
      const auto study = experiments::load_replay_study(file, diagnostics);
      row.title = study.title;
      row.runs = static_cast<std::int64_t>(experiments::expand(study).size());
    } else if (kind == ExperimentKind::steps) {
      Diagnostics not_built;  // is no matter here
      const auto steps = experiments::load_steps(file, not_built);
      row.title = steps.title;
      row.runs = std::ssize(steps.steps);
    } else if (kind == ExperimentKind::mixed_length) {
      const auto study = config::load_file<experiments::MixedLengthFile>(file, diagnostics);
      row.title = study.title;
      for (const auto& one : study.cases) row.runs += std::ssize(one.systems);
    } else if (kind == ExperimentKind::twin) {
      row.title = "Twin: predicted against measured on this machine";
    } else {
      const auto manifest = experiments::load_manifest(file, diagnostics);
      row.title = manifest.title;
      row.runs = static_cast<std::int64_t>(experiments::expand(manifest, diagnostics).size());
    }
    if (!diagnostics.empty()) break;
    rows.push_back(std::move(row));
  }
  diagnostics.raise();
  return rows;
}

std::string text_of(const std::vector<ExperimentRow>& rows) {
  Table table;
  table.column("experiment (for orrery run)").number("runs").column("title");
  for (const ExperimentRow& row : rows) {
    table.row({row.path, std::to_string(row.runs), row.title});
  }
  return table.text(0, colors());
}

template <class T>
std::string text_of(const std::vector<T>& rows) {
  return described_table(rows).text(0, colors());
}

template <class T>
std::string render(const std::vector<T>& rows, bool json) {
  return json ? to_json(rows) : text_of(rows);
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

extern const Command kList;
const Command kList = printing_command<ListSettings, run>(
    "list", "Show what the library and this build know", "list planners hexiscale");

}  // namespace orrery::tools
