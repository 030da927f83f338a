#include "experiments/study/list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "experiments/study/inputs.h"
#include "experiments/study/plan_text.h"
#include "experiments/study/points.h"
#include "experiments/study/study_files.h"
#include "models/config/diagnostics.h"
#include "models/ir/names.h"
#include "models/spec/library.h"
#include "planners/modules/modules.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;
using config::Diagnostics;

std::vector<GpuRow> gpus_known(const models::Library& known) {
  std::vector<GpuRow> rows;
  for (const auto& [name, gpu] : known.gpus) {
    GpuRow row;
    row.name = name;
    row.vendor = gpu.vendor;
    row.memory = gpu.memory;
    row.memory_bandwidth = gpu.memory_bandwidth;
    for (const auto& [dtype, peak] : gpu.peak) row.peak[ir::name_of(dtype)] = peak.value;
    row.efficiency = gpu.efficiency;
    if (gpu.price) row.dollars_per_hour = gpu.price->value * 3600;
    row.power = gpu.power;
    row.source = gpu.source;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<LinkRow> links_known(const models::Library& known) {
  std::vector<LinkRow> rows;
  for (const auto& [name, link] : known.links) {
    rows.push_back(
        {name, link.bandwidth, link.latency, link.efficiency, link.shared, link.mesh, link.source});
  }
  return rows;
}

std::vector<ModelRow> models_known(const models::Library& known, Diagnostics& diagnostics) {
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
  return rows;
}

std::vector<ClusterRow> clusters_known(const models::Library& known, Diagnostics& diagnostics) {
  std::vector<ClusterRow> rows;
  for (const auto& [name, path] : known.clusters) {
    const models::Cluster cluster = models::load_cluster(name, known, {path, 0, 0}, diagnostics);
    if (!diagnostics.empty()) break;
    std::vector<DeviceId> all;
    for (const models::Device& device : cluster.devices) all.push_back(device.id);
    rows.push_back({name, cluster.size(), static_cast<int>(cluster.nodes.size()),
                    composition(all, cluster), path});
  }
  return rows;
}

std::vector<ProfileRow> profiles_known(const models::Library& known, Diagnostics& diagnostics) {
  std::vector<ProfileRow> rows;
  for (const auto& [name, path] : known.profiles) {
    const ir::Profile profile = models::load_profile(path, diagnostics);
    if (!diagnostics.empty()) break;
    std::set<std::string> gpus, links;
    for (const auto& kernels : profile.kernels) gpus.insert(kernels.gpu);
    for (const auto& time : profile.block_times) gpus.insert(time.gpu);
    for (const auto& curve : profile.efficiencies) gpus.insert(curve.gpu);
    for (const auto& segment : profile.links) links.insert(segment.link_class);
    rows.push_back({name, fmt::format("{}", fmt::join(gpus, ", ")), std::ssize(profile.kernels),
                    std::ssize(profile.block_times), std::ssize(links), path});
  }
  return rows;
}

/// Studies below experiments/ for `orrery run`, by path.
std::vector<ExperimentRow> experiments_known(Diagnostics& diagnostics) {
  const fs::path root = fs::path(ORRERY_SOURCE_DIR) / "experiments";
  std::error_code error;
  std::vector<ExperimentRow> rows;
  for (const std::string& file : studies_below(root.string(), diagnostics)) {
    ExperimentRow row;
    row.path = fs::proximate(fs::path(file).parent_path(), error).string();
    const Study study = load_study(file, diagnostics);
    row.title = study.title;
    if (diagnostics.empty()) row.runs = std::ssize(expand(study, diagnostics));
    if (!diagnostics.empty()) break;
    rows.push_back(std::move(row));
  }
  return rows;
}

/// The entries that `names` gives, or all; problems are told at `list`.
template <class Entry>
std::vector<Known<Entry>> known(std::span<const Entry* const> catalog, const char* list,
                                const char* noun, const std::vector<std::string>& names,
                                const std::function<std::string(const std::string&)>& hint) {
  const auto is_called = [](const std::string& name) {
    return [&name](const Entry* entry) { return name == entry->name; };
  };
  Diagnostics diagnostics;
  for (const std::string& name : names) {
    if (std::any_of(catalog.begin(), catalog.end(), is_called(name))) continue;
    diagnostics.add({list, 0, 0}, fmt::format("no {} is called '{}'", noun, name), hint(name));
  }
  diagnostics.raise();
  std::vector<Known<Entry>> entries;
  for (const Entry* entry : catalog) {
    if (names.empty() || std::find(names.begin(), names.end(), entry->name) != names.end()) {
      entries.push_back({entry});
    }
  }
  return entries;
}

std::vector<KnownSchedule> schedules_known() {
  std::vector<KnownSchedule> entries;
  for (const models::ScheduleEntry* entry : models::schedules()) entries.push_back({entry});
  return entries;
}

template <class Catalog>
auto or_first(const Catalog& catalog, decltype(catalog.front()) entry) {
  return entry != nullptr ? entry : catalog.front();
}

void text(config::Visitor& v, const char* key, std::string value, const char* doc,
          config::Face face = {}) {
  v.required(key, value, doc, face);
}

void module_of(config::Visitor& v, const std::string& name) {
  std::optional<std::string> path;
  if (const auto* module = planners::module_with(name)) path = module->path;
  v.optional("module", path, "shared library that it is from; none: it is built in");
}

}  // namespace

void describe(config::Visitor& v, ListSettings& settings) {
  v.required(
      "what", settings.what,
      "planners, step-planners, policies, schedules, gpus, links, models, clusters, profiles or "
      "experiments",
      {.positional = true});
  v.optional("name", settings.names,
             "planners, step planners or policies to show in detail; default: all, in short",
             {.positional = true});
  v.optional("cluster", settings.cluster, "gpus and links of this cluster, not of the library",
             {.letter = 'c'});
}

void describe(config::Visitor& v, KnownPlanner& planner) {
  const planners::PlannerEntry& entry = *or_first(planners::catalog(), planner.entry);
  auto options = entry.options();
  v.title("Planner");
  text(v, "name", entry.name, "");
  text(v, "source", entry.source, "paper and section");
  text(v, "searches", entry.searches, "the space of its plans");
  text(v, "ignores", entry.ignores, "what it assumes or leaves out");
  module_of(v, entry.name);
  v.required("options", options, "its knobs");
}

void describe(config::Visitor& v, KnownStepPlanner& planner) {
  const planners::StepPlannerEntry& entry = *or_first(planners::step_planners(), planner.entry);
  v.title("Step planner");
  text(v, "name", entry.name, "");
  text(v, "source", entry.source, "paper and section");
  text(v, "decides", entry.decides, "for each step");
  text(v, "ignores", entry.ignores, "what it assumes or leaves out");
  text(v, "strategies", kStepStrategies, "where they come from");
}

void describe(config::Visitor& v, KnownPolicy& policy) {
  const planners::RecoveryEntry& entry = *or_first(planners::recovery_catalog(), policy.entry);
  auto options = entry.options();
  v.title("Recovery policy");
  text(v, "name", entry.name, "");
  text(v, "source", entry.source, "paper and section");
  text(v, "recovers", entry.recovers, "what it does at a failure");
  text(v, "needs", entry.needs, "the plan that it needs");
  text(v, "loses", entry.loses, "what work is lost");
  text(v, "deviations", entry.deviations, "from its source");
  module_of(v, entry.name);
  v.required("options", options, "its knobs");
}

void describe(config::Visitor& v, KnownSchedule& schedule) {
  const models::ScheduleEntry& entry = *or_first(models::schedules(), schedule.entry);
  v.title("Schedule");
  text(v, "name", entry.name(), "", {.column = "schedule"});
  text(v, "summary", entry.summary, "", {.column = "order of passes"});
  text(v, "source", entry.source, "", {.column = "source"});
}

void describe(config::Visitor& v, GpuRow& row) {
  v.required("name", row.name, "of the library", {.column = "GPU"});
  v.required("vendor", row.vendor, "", {.column = "vendor"});
  v.required("memory_bytes", row.memory, "", {.column = "GiB", .unit = 0x1p30, .decimals = 1});
  v.required("memory_bytes_per_second", row.memory_bandwidth, "", {.column = "GB/s", .unit = 1e9});
  v.required("peak_flops", row.peak, "");
  v.required("efficiency", row.efficiency, "");
  v.optional("dollars_per_hour", row.dollars_per_hour, "");
  v.optional("watts", row.power, "that the board may draw");
  v.required("source", row.source, "");
}
void describe(config::Visitor& v, LinkRow& row) {
  v.required("name", row.name, "of the library", {.column = "link"});
  v.required("bytes_per_second", row.bandwidth, "", {.column = "GB/s", .unit = 1e9, .decimals = 3});
  v.required("latency_seconds", row.latency, "",
             {.column = "latency us", .unit = 1e-6, .decimals = 1});
  v.required("efficiency", row.efficiency, "", {.column = "efficiency", .decimals = 2});
  v.required("shared", row.shared, "", {.column = "medium", .yes = "shared", .no = "per port"});
  v.required("mesh", row.mesh, "a link of each pair", {.column = "mesh", .yes = "mesh", .no = ""});
  v.required("source", row.source, "");
}
void describe(config::Visitor& v, ModelRow& row) {
  v.required("name", row.name, "of the library");
  v.required("parameters", row.parameters, "");
  v.required("layers", row.layers, "");
  v.required("hidden", row.hidden, "");
  v.required("path", row.path, "");
}
void describe(config::Visitor& v, ClusterRow& row) {
  v.required("name", row.name, "of the library", {.column = "cluster"});
  v.required("gpus", row.gpus, "", {.column = "GPUs"});
  v.required("nodes", row.nodes, "", {.column = "nodes"});
  v.required("types", row.types, "", {.column = "types"});
  v.required("path", row.path, "");
}
void describe(config::Visitor& v, ProfileRow& row) {
  v.required("name", row.name, "of the library", {.column = "profile"});
  v.required("gpus", row.gpus, "types with measured numbers", {.column = "GPUs"});
  v.required("kernels", row.kernels, "GPU types priced by the shapes of their kernels",
             {.column = "kernels"});
  v.required("times", row.times, "measured passes of blocks", {.column = "pass times"});
  v.required("links", row.links, "link classes with measured latency and bandwidth",
             {.column = "link classes"});
  v.required("path", row.path, "");
}
void describe(config::Visitor& v, ExperimentRow& row) {
  v.required("path", row.path, "");
  v.required("title", row.title, "");
  v.required("runs", row.runs, "");
}

config::Slot described(ListResult& result) {
  return std::visit([](auto& rows) { return config::detail::slot(rows); }, result.rows);
}

ListResult list(const ListSettings& settings, const Call&) {
  const std::string& what = settings.what;
  const auto nearest = [](const std::vector<std::string>& all, const char* label) {
    return [all, label](const std::string& name) { return config::suggest(name, all, label); };
  };
  if (what == "planners") {
    return {known(planners::catalog(), "list planners", "planner", settings.names,
                  planners::unknown_planner_hint)};
  }
  if (what == "step-planners") {
    return {known(planners::step_planners(), "list step-planners", "step planner", settings.names,
                  nearest(planners::step_planner_names(), "step planners"))};
  }
  if (what == "policies") {
    return {known(planners::recovery_catalog(), "list policies", "policy", settings.names,
                  nearest(planners::policy_names(), "policies"))};
  }
  Diagnostics diagnostics;
  if (!settings.names.empty()) {
    diagnostics.add({"list", 0, 0}, fmt::format("unexpected argument '{}'", settings.names.front()),
                    "names narrow the lists of planners, step planners and policies only");
  }
  const std::vector<std::string> lists = {"planners", "step-planners", "policies", "schedules",
                                          "gpus",     "links",         "models",   "clusters",
                                          "profiles", "experiments"};
  if (std::find(lists.begin(), lists.end(), what) == lists.end()) {
    diagnostics.add({"list", 0, 0}, fmt::format("cannot list '{}'", what),
                    config::suggest(what, lists, "lists"));
  }
  if (settings.cluster && what != "gpus" && what != "links") {
    diagnostics.add(at_setting("cluster"), fmt::format("a cluster has no {}", what),
                    "list gpus or list links");
  }
  diagnostics.raise();
  if (what == "schedules") return {schedules_known()};
  if (what == "experiments") {
    ListResult studies{experiments_known(diagnostics)};
    diagnostics.raise();
    return studies;
  }
  models::Library library = open_library(diagnostics);
  if (settings.cluster) {
    const models::Cluster cluster =
        models::load_cluster(*settings.cluster, library, at_setting("cluster"), diagnostics);
    library.links = cluster.links;
    library.gpus.clear();
    for (const models::GpuType& gpu : cluster.gpu_types) library.gpus[gpu.name] = gpu;
  }
  diagnostics.raise();
  ListResult result;
  if (what == "gpus") result.rows = gpus_known(library);
  if (what == "links") result.rows = links_known(library);
  if (what == "models") result.rows = models_known(library, diagnostics);
  if (what == "clusters") result.rows = clusters_known(library, diagnostics);
  if (what == "profiles") result.rows = profiles_known(library, diagnostics);
  diagnostics.raise();
  return result;
}

}  // namespace orrery::experiments
