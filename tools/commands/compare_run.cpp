#include "tools/commands/compare_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <stdexcept>

#include "models/base/file.h"
#include "models/cost/pricer.h"
#include "models/ir/wire.h"
#include "models/reshard/reshard_plan.h"
#include "models/reshard/reshard_program.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"
#include "tools/commands/compare_notes.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBaseDevice = "cpu";

/// Folder of the run and, if only one of its generations is asked for, its number.
struct RunFolder {
  fs::path folder;
  std::optional<std::int64_t> only;
};

std::optional<std::int64_t> generation_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int number = -1;
  int read = 0;
  if (std::sscanf(name.c_str(), "generation-%d%n", &number, &read) != 1 ||
      read != static_cast<int>(name.size())) {
    return std::nullopt;
  }
  return number;
}

RunFolder run_folder_of(const std::string& path) {
  fs::path folder = path;
  if (folder.filename() == "run.log") folder = folder.parent_path();
  if (!folder.has_filename()) folder = folder.parent_path();
  if (const auto number = generation_of(folder)) {
    return {folder.has_parent_path() ? folder.parent_path() : ".", number};
  }
  return {folder, std::nullopt};
}

std::vector<std::int64_t> generations_in(const RunFolder& run) {
  std::vector<std::int64_t> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(run.folder, error)) {
    const auto number = generation_of(entry.path());
    if (number && (!run.only || *run.only == *number)) out.push_back(*number);
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// A wire file as a value; a problem at the file if it cannot be read.
template <class T, class Parse>
std::optional<T> read_wire(const fs::path& path, Parse parse, config::Diagnostics& diagnostics) {
  std::string bytes;
  if (const auto problem = read_file(path.string(), bytes)) {
    diagnostics.add({path.string(), 0, 0}, *problem);
    return std::nullopt;
  }
  auto parsed = parse(bytes);
  if (const auto* problem = std::get_if<std::string>(&parsed)) {
    diagnostics.add({path.string(), 0, 0}, *problem);
    return std::nullopt;
  }
  return std::move(std::get<T>(parsed));
}

struct LoggedGeneration {
  ir::Program program;
  ir::RunLog log;
};

std::optional<LoggedGeneration> read_generation(const fs::path& folder,
                                                const experiments::LoadedRun& run,
                                                bool other_cluster,
                                                config::Diagnostics& diagnostics) {
  const fs::path program_file = folder / "program.pb";
  const fs::path log_file = folder / "run.log";
  auto program = read_wire<ir::Program>(
      program_file, [](const std::string& bytes) { return ir::parse_program(bytes); }, diagnostics);
  auto log = read_wire<ir::RunLog>(
      log_file, [](const std::string& bytes) { return ir::parse_run_log(bytes); }, diagnostics);
  if (!program || !log) return std::nullopt;
  if (const std::string defect = ir::find_defect(*program); !defect.empty()) {
    diagnostics.add({program_file.string(), 0, 0}, defect);
    return std::nullopt;
  }
  if (log->program_hash != ir::program_hash(*program)) {
    diagnostics.add({log_file.string(), 0, 0}, "is the log of another program");
    return std::nullopt;
  }
  const auto differs = [](const std::string& a, const std::string& b) {
    return !a.empty() && !b.empty() && a != b;
  };
  if (!other_cluster && differs(program->header.cluster_hash, run.cluster.hash)) {
    diagnostics.add({program_file.string(), 0, 0}, "was lowered for another cluster",
                    "name the cluster with --cluster");
  }
  if (differs(program->header.workload_hash, run.workload.hash)) {
    diagnostics.add({program_file.string(), 0, 0}, "was lowered for another model");
  }
  for (const ir::Rank& rank : program->ranks) {
    if (rank.device.value < run.cluster.size()) continue;
    diagnostics.add(
        {program_file.string(), 0, 0},
        fmt::format("device {} of a cluster of {}", rank.device.value, run.cluster.size()));
    return std::nullopt;
  }
  return LoggedGeneration{std::move(*program), std::move(*log)};
}

constexpr char kBetween = '\n';

std::string run_child(const experiments::LoadedRun& run, const ir::Program& program,
                      const std::vector<sim::Straggler>& stragglers) {
  const models::Topology topology(run.cluster, run.profile);
  sim::IterationSimulator simulator(run.cluster, topology);
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  sim::IterationOptions options = run.spec.simulation;
  options.stragglers.insert(options.stragglers.end(), stragglers.begin(), stragglers.end());
  sim::IterationResult result = simulator.run(program, pricer, options);
  result.log.program_hash = ir::program_hash(program);
  std::string text;
  for (const std::string& entry : pricer.used_entries()) text += entry + kBetween;
  return text + kBetween + ir::serialize(result.log);
}

std::string delivered(sim::ForkResult result, const char* what) {
  if (const auto* failure = std::get_if<sim::ChildFailure>(&result)) {
    throw std::runtime_error(fmt::format("{}: {}", what, failure->message));
  }
  return std::move(std::get<std::string>(result));
}

/// Seconds that the states take from one plan to the next, in the simulator: all of them, from
/// devices that live.
double simulate_move(const experiments::LoadedRun& run, const ir::Plan& from, const ir::Plan& to,
                     const std::vector<DeviceId>& lost) {
  return std::stod(delivered(
      sim::run_forked([&] {
        models::ReshardOptions options;
        options.bytes = models::all_state_bytes(run.spec.job);
        options.lost = lost;
        const models::Topology topology(run.cluster, run.profile);
        const models::ReshardPlan plan =
            models::plan_reshard(from, to, run.cluster, topology, run.workload, options);
        const ir::Program program = models::reshard_program(plan, run.workload, run.spec.job);
        if (program.ops.empty()) return std::string("0");
        sim::IterationOptions quiet;
        quiet.record_spans = quiet.record_memory = quiet.record_links = false;
        sim::IterationSimulator simulator(run.cluster, topology, false);
        const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
        return fmt::format("{:.17g}", simulator.run(program, pricer, quiet).iteration_time.value);
      }),
      "simulating the move of the state"));
}

/// "rank 1: 17 of 320 compute ops ran over their time", one for each rank.
void count_disturbed(const ir::RunLog& log, GenerationComparison& out) {
  for (const ir::LogEvent& event : log.events) {
    long long disturbed = 0;
    long long all = 0;
    if (event.kind != "disturbed" ||
        std::sscanf(event.detail.c_str(), "rank %*d: %lld of %lld", &disturbed, &all) != 2) {
      continue;
    }
    out.disturbed_ops += disturbed;
    out.compute_ops += all;
  }
}

std::optional<double> phase_time(const ir::Profile& profile, const std::string& phase) {
  for (const ir::PhaseTime& entry : profile.phases) {
    if (entry.phase == phase) return entry.time.value;
  }
  return std::nullopt;
}

std::vector<ComparedPhase> compare_phases(const GenerationComparison& generation,
                                          const ir::Profile& profile) {
  std::vector<ComparedPhase> out;
  for (const calibration::MeasuredPhase& measured :
       calibration::recovery_phases(generation.measured)) {
    ComparedPhase one{measured.phase, measured.time.value, phase_time(profile, measured.phase)};
    if (measured.phase == "move_state" && one.predicted) {
      *one.predicted += generation.simulated_move;
    }
    if (measured.phase == "first_step") {
      if (generation.generation == 0 || !generation.comparison) continue;
      one.predicted = generation.comparison->iteration.predicted;
    }
    out.push_back(one);
  }
  return out;
}

/// Which phases have no prediction, and what would give them one; "" if all have one.
std::string missing_phases(const std::vector<ComparedPhase>& phases) {
  std::string names;
  for (const ComparedPhase& phase : phases) {
    if (!phase.predicted) names += fmt::format("{}{}", names.empty() ? "" : ", ", phase.phase);
  }
  if (names.empty()) return "";
  return fmt::format(
      "not predicted: {}: the profile has no such phases (`orrery twin` fits them on recoveries)",
      names);
}

/// Devices of the plan before that no rank of the program after runs on, and that were lost: those
/// that no longer exist. Which of them died the log does not say; a device that only left would
/// have been able to send.
std::vector<DeviceId> gone(const ir::Plan& before, const ir::Program& after) {
  std::vector<DeviceId> out;
  for (const DeviceId device : ir::devices_of(before)) {
    const bool there = std::any_of(after.ranks.begin(), after.ranks.end(),
                                   [&](const auto& rank) { return rank.device == device; });
    if (!there) out.push_back(device);
  }
  return out;
}

std::vector<ir::Location> places_of(const RunInputs& inputs) {
  std::vector<ir::Location> out;
  for (const std::string& place : inputs.checkpoint_places) {
    out.push_back(place == "cloud" ? ir::Location::cloud : ir::Location::nvme);
  }
  return out;
}

}  // namespace

SimulatedProgram simulate_program(const experiments::LoadedRun& run, const ir::Program& program,
                                  const std::vector<sim::Straggler>& stragglers) {
  const std::string bytes =
      delivered(sim::run_forked([&] { return run_child(run, program, stragglers); }),
                "simulating the program");
  SimulatedProgram out;
  std::size_t at = 0;
  while (at < bytes.size() && bytes[at] != kBetween) {
    const std::size_t end = bytes.find(kBetween, at);
    out.prices.push_back(bytes.substr(at, end - at));
    at = end + 1;
  }
  auto log = ir::parse_run_log(std::string_view(bytes).substr(at + 1));
  if (const auto* problem = std::get_if<std::string>(&log)) {
    throw std::runtime_error("the simulated log " + *problem);
  }
  out.log = std::move(std::get<ir::RunLog>(log));
  return out;
}

ir::Profile for_cluster(const ir::Profile& profile, const models::Cluster& cluster,
                        const std::map<std::string, double>& lab_slowdowns) {
  ir::Profile out = profile;
  for (std::size_t t = 0; t < cluster.gpu_types.size(); ++t) {
    const std::string& name = cluster.gpu_types[t].name;
    const auto is_of = [&](const ir::BlockTime& entry) { return entry.gpu == name; };
    if (name == kBaseDevice || std::any_of(out.block_times.begin(), out.block_times.end(), is_of)) {
      continue;
    }
    double factor = 1;
    for (const models::Device& device : cluster.devices) {
      if (static_cast<std::size_t>(device.gpu_type) != t) continue;
      const auto lab = lab_slowdowns.find(std::to_string(device.id.value));
      if (lab != lab_slowdowns.end()) factor = lab->second;
      break;
    }
    const auto copy = [&](auto& entries, auto stretch) {
      const std::size_t count = entries.size();
      for (std::size_t i = 0; i < count; ++i) {
        if (entries[i].gpu != kBaseDevice) continue;
        auto entry = entries[i];
        entry.gpu = name;
        stretch(entry);
        entry.provenance.source += fmt::format(" (of '{}', x {:.4g})", kBaseDevice, factor);
        entries.push_back(std::move(entry));
      }
    };
    copy(out.block_times, [&](ir::BlockTime& entry) { entry.time *= factor; });
    copy(out.pass_overheads, [&](ir::PassOverhead& entry) { entry.time *= factor; });
    copy(out.optimizers, [&](ir::OptimizerTime& entry) {
      entry.fixed *= factor;
      entry.per_parameter *= factor;
    });
    copy(out.memory, [](ir::MemoryOverhead&) {});
  }
  return out;
}

std::optional<ComparedPhase> total_of(const std::vector<ComparedPhase>& phases) {
  if (phases.empty()) return std::nullopt;
  ComparedPhase total{"total", 0, 0.0};
  for (const ComparedPhase& phase : phases) {
    total.measured += phase.measured;
    if (!phase.predicted) total.predicted.reset();
    if (total.predicted) *total.predicted += *phase.predicted;
  }
  return total;
}

RunComparison compare_run(const CompareRequest& request, config::Diagnostics& diagnostics) {
  RunComparison out;
  const RunFolder folder = run_folder_of(request.run);
  std::error_code error;
  if (!fs::is_directory(folder.folder, error)) {
    diagnostics.add({request.run, 0, 0}, "no such run",
                    "a folder that `orrery execute --out` wrote");
    return out;
  }
  const std::vector<std::int64_t> numbers = generations_in(folder);
  if (numbers.empty()) {
    diagnostics.add({request.run, 0, 0}, "holds no generation with a run log",
                    "a folder that `orrery execute --out` wrote");
  }
  out.inputs =
      load_run_inputs(folder.folder.string(), request.cluster, request.profile, diagnostics);
  if (!diagnostics.empty()) return out;
  experiments::LoadedRun& run = out.inputs.run;
  run.profile = for_cluster(run.profile, run.cluster, out.inputs.inputs.lab_slowdowns);
  out.notes = notes_of_run(out.inputs);
  const std::vector<std::string>& changed = out.inputs.changed;
  const bool other_cluster =
      !request.cluster.empty() ||
      std::find(changed.begin(), changed.end(), out.inputs.inputs.cluster) != changed.end();
  const std::vector<sim::Straggler> stragglers = stragglers_of(out.inputs.inputs);
  for (const std::int64_t number : numbers) {
    auto read = read_generation(folder.folder / fmt::format("generation-{}", number), run,
                                other_cluster, diagnostics);
    if (!read || !diagnostics.empty()) continue;
    GenerationComparison one;
    one.generation = number;
    one.program = std::move(read->program);
    one.measured = std::move(read->log);
    SimulatedProgram simulated = simulate_program(run, one.program, stragglers);
    one.predicted = std::move(simulated.log);
    one.prices = std::move(simulated.prices);
    auto compared = calibration::compare(one.program, one.predicted, one.measured, request.options);
    if (auto* comparison = std::get_if<calibration::Comparison>(&compared)) {
      one.comparison = std::move(*comparison);
    } else {
      one.problem = std::get<calibration::CompareProblem>(compared);
    }
    one.checkpoints = calibration::compare_checkpoints(
        one.program, one.measured, places_of(out.inputs.inputs), run.cluster, run.profile,
        to_seconds(calibration::simulated_iteration(one.predicted)));
    const auto before =
        number == 0 ? std::nullopt : plan_of_generation(folder.folder.string(), number - 1);
    const auto after = plan_of_generation(folder.folder.string(), number);
    if (request.cluster.empty()) {
      const std::string other = changed_program(out.inputs, after, number, one.program);
      if (!other.empty()) one.notes.push_back(other);
    }
    for (const std::string& gap : profile_gaps(run, one.program)) one.notes.push_back(gap);
    if (before && after) {
      one.simulated_move = simulate_move(run, *before, *after, gone(*before, one.program));
    }
    count_disturbed(one.measured, one);
    one.phases = compare_phases(one, run.profile);
    one.phases_problem = missing_phases(one.phases);
    out.generations.push_back(std::move(one));
  }
  return out;
}

}  // namespace orrery::tools
