#include "experiments/execution/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "models/base/file.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "inputs";
constexpr const char* kFile = "run.yaml";
constexpr const char* kThreads = "threads";
constexpr const char* kHashes = "\nhashes:";  // The last key of run.yaml.

void write(const fs::path& path, const std::string& bytes) {
  if (const auto problem = write_file_atomically(path.string(), bytes)) {
    throw std::runtime_error(*problem);
  }
}

/// Hash of a file as it is now; "": it cannot be read.
std::string hash_of(const fs::path& path) {
  std::string bytes;
  if (read_file(path.string(), bytes)) return "";
  if (path.filename() == kFile) bytes.resize(std::min(bytes.size(), bytes.find(kHashes)));
  return content_hash(bytes);
}

/// run.yaml, its own hash among the others.
void write_run_file(const fs::path& folder, RunInputs inputs) {
  const std::string text = config::dump(inputs);
  inputs.hashes[kFile] = content_hash(text.substr(0, text.find(kHashes)));
  write(folder / kFile, config::dump(inputs));
}

/// A word that is none of those that are known, at its place.
void check_word(config::Visitor& v, const char* key, const std::string& word,
                const std::vector<std::string>& known) {
  if (!v.given(key)) return;
  if (std::find(known.begin(), known.end(), word) != known.end()) return;
  v.problem(key, fmt::format("{}: unknown value '{}'", key, word),
            config::suggest(word, known, "values"));
}

/// Copies the file that a name of the library or a path means; returns its name in `folder`.
std::string copy(const std::string& name, const std::map<std::string, std::string>& library,
                 const char* stem, const fs::path& folder) {
  const auto known = library.find(name);
  const fs::path path = known == library.end() ? name : known->second;
  std::string bytes;
  if (const auto problem = read_file(path.string(), bytes)) throw std::runtime_error(*problem);
  const std::string copied = stem + path.extension().string();
  write(folder / copied, bytes);
  return copied;
}

std::map<std::string, double> by_name(const std::map<std::int32_t, double>& factors) {
  std::map<std::string, double> out;
  for (const auto& [device, factor] : factors) {
    if (factor != 1) out[std::to_string(device)] = factor;
  }
  return out;
}

fs::path plan_file(const std::string& out, std::int64_t generation) {
  const fs::path folder = fs::path(out) / kFolder;
  return generation == 0 ? folder / "plan.yaml" : folder / fmt::format("plan-{}.yaml", generation);
}

/// Keys of slowdowns are device numbers.
std::int32_t device_of(const std::string& name) {
  std::int32_t device = -1;
  std::from_chars(name.data(), name.data() + name.size(), device);
  return device;
}

}  // namespace

void describe(config::Visitor& v, RunInputs& inputs) {
  v.schema("orrery/run_inputs", 1);
  v.title("Inputs of a run");
  v.required("cluster", inputs.cluster, "file, copied as it was");
  v.required("model", inputs.model, "file, copied as it was");
  v.required("job", inputs.job, "file: the job as it took effect");
  v.required("plan", inputs.plan, "file: the first plan");
  v.optional("profile", inputs.profile, "file, if one was given");
  v.required("backend", inputs.backend, "cpu or cuda");
  v.optional("library", inputs.library, "of the CPU back end");
  v.required("precision", inputs.precision, "of weights and activations");
  v.required("transport", inputs.transport, "between ranks");
  v.optional("network", inputs.network, "between nodes: loopback, hosts or netlab");
  v.required("steps", inputs.steps, "asked for");
  v.required("seed", inputs.seed, "of weights, data and faults");
  v.optional("checkpoint_places", inputs.checkpoint_places, "nvme, cloud; absent: no checkpoints");
  v.optional("slowdowns", inputs.slowdowns, "by device: factor on the time of its compute");
  v.optional("lab_slowdowns", inputs.lab_slowdowns,
             "by device: the part of it by which a lab emulates the device's type");
  v.optional("ranks", inputs.ranks, "processes, or threads of one");
  v.optional("shares", inputs.shares,
             "by device: percent of the multiprocessors of the GPU that all shared");
  v.optional("hashes", inputs.hashes, "by file: its content when the run began");
  if (!v.reading()) return;
  check_word(v, "backend", inputs.backend, {"cpu", "cuda"});
  check_word(v, "library", inputs.library, {"", "eigen", "openblas"});
  check_word(v, "precision", inputs.precision, {"fp32", "fp64", "bf16"});
  check_word(v, "transport", inputs.transport, {"tcp", "nccl"});
  check_word(v, "network", inputs.network, {"loopback", "hosts", "netlab"});
  check_word(v, "ranks", inputs.ranks, {"processes", kThreads});
  for (const std::string& place : inputs.checkpoint_places) {
    if (place == "nvme" || place == "cloud") continue;
    v.problem("checkpoint_places", fmt::format("checkpoint_places: unknown place '{}'", place),
              "nvme or cloud");
  }
}

void write_run_inputs(const std::string& out, const std::vector<LoadedRun>& runs,
                      const executor::RunSettings& settings, const RunPlacement& placement) {
  const LoadedRun& run = runs.front();
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  diagnostics.raise();
  const fs::path folder = fs::path(out) / kFolder;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  }
  RunInputs inputs;
  inputs.cluster = copy(run.spec.cluster.value, library.clusters, "cluster", folder);
  inputs.model = copy(run.spec.model.value, library.models, "model", folder);
  inputs.job = "job.yaml";
  write(folder / inputs.job, config::dump(run.spec.job));
  inputs.plan = "plan.yaml";
  write(folder / inputs.plan, models::dump_plan(*run.plan));
  if (run.spec.profile) {
    inputs.profile = copy(run.spec.profile->value, library.profiles, "profile", folder);
  }
  inputs.backend = settings.backend;
  inputs.library = settings.library;
  inputs.precision = executor::name_of(settings.precision);
  inputs.transport = settings.transport;
  inputs.steps = settings.steps;
  inputs.seed = static_cast<std::int64_t>(settings.data_seed);
  if (settings.checkpoint_every > 0) {
    if (!settings.local_checkpoints.empty()) inputs.checkpoint_places.emplace_back("nvme");
    if (!settings.cloud_checkpoints.empty()) inputs.checkpoint_places.emplace_back("cloud");
  }
  inputs.slowdowns = by_name(settings.slowdowns);
  inputs.network = placement.network;
  inputs.lab_slowdowns = by_name(placement.lab_slowdowns);
  if (placement.threads) inputs.ranks = kThreads;
  for (const auto& [device, percent] : placement.shares) {
    inputs.shares[std::to_string(device)] = percent;
  }
  for (const std::string& name :
       {inputs.cluster, inputs.model, inputs.job, inputs.plan, inputs.profile}) {
    if (!name.empty()) inputs.hashes[name] = hash_of(folder / name);
  }
  write_run_file(folder, inputs);
  for (std::size_t i = 1; i < runs.size() && !settings.elastic; ++i) {
    write_later_plan(out, static_cast<std::int64_t>(i), *runs[i].plan);
  }
}

void write_later_plan(const std::string& out, std::int64_t generation, const ir::Plan& plan) {
  const fs::path file = plan_file(out, generation);
  write(file, models::dump_plan(plan));
  config::Diagnostics problems;
  auto inputs = config::load_file<RunInputs>((file.parent_path() / kFile).string(), problems);
  if (!problems.empty()) return;  // Somebody changed it: compare will say what is wrong.
  inputs.hashes[file.filename().string()] = hash_of(file);
  write_run_file(file.parent_path(), inputs);
}

std::optional<ir::Plan> plan_of_generation(const std::string& folder, std::int64_t generation) {
  const fs::path file = plan_file(folder, generation);
  std::error_code error;
  if (!fs::exists(file, error)) return std::nullopt;
  config::Diagnostics problems;
  ir::Plan plan = models::load_plan(file.string(), problems);
  if (!problems.empty()) return std::nullopt;
  return plan;
}

LoadedInputs load_run_inputs(const std::string& folder, const std::string& cluster,
                             const std::string& profile, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  LoadedInputs out;
  const fs::path inputs = fs::path(folder) / kFolder;
  const std::string file = (inputs / kFile).string();
  out.inputs = config::load_file<RunInputs>(file, diagnostics);
  if (diagnostics.problems().size() != before) return out;
  const models::Library library = open_library(diagnostics);
  const auto located = [&](const std::string& name, const std::string& given, const char* key) {
    if (!given.empty()) return config::Located<std::string>{given, at_setting(key)};
    return config::Located<std::string>{(inputs / name).string(), {file, 0, 0}};
  };
  RunSpec spec;
  spec.cluster = located(out.inputs.cluster, cluster, "cluster");
  spec.model = located(out.inputs.model, "", "");
  spec.job = models::load_job((inputs / out.inputs.job).string(), diagnostics);
  spec.job_at = {(inputs / out.inputs.job).string(), 0, 0};
  spec.plan = located(out.inputs.plan, "", "");
  if (!profile.empty() || !out.inputs.profile.empty()) {
    spec.profile = located(out.inputs.profile, profile, "profile");
  }
  spec.collapsed = false;
  spec.seed = static_cast<std::uint64_t>(out.inputs.seed);
  if (diagnostics.problems().size() != before) return out;
  out.run = load_run(spec, "", library, diagnostics);
  for (const auto& [name, hash] : out.inputs.hashes) {
    const bool replaced = (name == out.inputs.cluster && !cluster.empty()) ||
                          (name == out.inputs.profile && !profile.empty());
    if (!replaced && hash_of(inputs / name) != hash) out.changed.push_back(name);
  }
  for (const sim::Straggler& slow : stragglers_of(out.inputs)) {
    if (slow.device.value >= 0 && slow.device.value < out.run.cluster.size()) continue;
    diagnostics.add({file, 0, 0}, fmt::format("slowdown of device {} of {}", slow.device.value,
                                              out.run.cluster.size()));
  }
  return out;
}

std::vector<sim::Straggler> stragglers_of(const RunInputs& inputs) {
  std::vector<sim::Straggler> out;
  for (const auto& [name, factor] : inputs.slowdowns) {
    const auto lab = inputs.lab_slowdowns.find(name);
    const double own = lab == inputs.lab_slowdowns.end() ? factor : factor / lab->second;
    if (own != 1) out.push_back({{device_of(name)}, own});
  }
  return out;
}

}  // namespace orrery::experiments
