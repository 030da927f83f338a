#include "experiments/execution/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <set>
#include <stdexcept>
#include <tuple>

#include "calibration/compare/phases.h"
#include "calibration/compare/steps.h"
#include "experiments/execution/rank_job.h"
#include "experiments/study/exports.h"
#include "experiments/study/figure.h"
#include "experiments/study/files.h"
#include "experiments/study/json.h"
#include "models/base/file.h"
#include "models/base/ids.h"
#include "models/check/validate.h"
#include "models/cost/device_share.h"
#include "models/cost/pricer.h"
#include "models/ir/names.h"
#include "models/ir/wire.h"
#include "models/reshard/reshard_plan.h"
#include "models/reshard/reshard_program.h"
#include "models/spec/link_calibration.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
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

std::optional<LoggedGeneration> read_generation(const fs::path& folder, const LoadedRun& run,
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
  if (!other_cluster && !models::made_for(program->header.cluster_hash, run.cluster)) {
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

std::string run_child(const LoadedRun& run, const ir::Program& program,
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
double simulate_move(const LoadedRun& run, const ir::Plan& from, const ir::Plan& to,
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

/// One iteration of a program on a cluster, simulated in a child process: one simulator a process.
struct SimulatedProgram {
  ir::RunLog log;
  std::vector<std::string> prices;  ///< Where times come from: profile entries, rooflines.
};

/// `run` says cluster, workload, job and profile. Throws std::runtime_error if the child fails.
SimulatedProgram simulate_program(const LoadedRun& run, const ir::Program& program,
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

using Entries = std::vector<const ir::BlockTime*>;

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += fmt::format("{}{}", text.empty() ? "" : ", ", word);
  return text;
}

/// Ranks talked over loopback, and the cluster has links of other classes than that.
bool lacked_links(const LoadedInputs& inputs) {
  if (inputs.inputs.network != kLoopback || inputs.inputs.transport == "nccl") return false;
  if (!inputs.run.plan || ir::devices_of(*inputs.run.plan).size() < 2) return false;
  const std::set<std::string> classes = models::link_classes(inputs.run.cluster);
  return std::any_of(classes.begin(), classes.end(),
                     [](const std::string& name) { return name != kLoopback; });
}

/// What the price of a pass depends on, apart from its blocks.
struct Priced {
  int gpu_type = 0;
  std::int32_t tensor_parallel = 1;
  std::int32_t sequence_degree = 1;
  std::int32_t samples = 1;
  auto operator<=>(const Priced&) const = default;
};

std::set<Priced> passes_of(const models::Cluster& cluster, const ir::Program& program) {
  std::set<Priced> out;
  for (const ir::Op& op : program.ops) {
    if (op.kind != ir::OpKind::forward || op.segment == ir::kNone) continue;
    const ir::SegmentInfo& segment = program.segment_of(op);
    const int type = cluster.device(program.rank_of(op).device).gpu_type;
    out.insert({type, segment.tensor_parallel, segment.sequence_degree, op.samples});
  }
  return out;
}

/// Keeps the entries that fit; if none does, says what is missing and what there is.
bool keep(Entries& entries, const std::function<bool(const ir::BlockTime&)>& fits,
          const std::string& wanted, const std::function<std::string(const ir::BlockTime&)>& name,
          std::string& gap) {
  std::set<std::string> there;
  Entries kept;
  for (const ir::BlockTime* entry : entries) {
    there.insert(name(*entry));
    if (fits(*entry)) kept.push_back(entry);
  }
  entries = std::move(kept);
  if (!entries.empty()) return true;
  gap = fmt::format("no block time for {}, only for {}", wanted, joined(there));
  return false;
}

/// "" if the profile has block times for such a pass.
std::string gap_of(const LoadedRun& run, const Priced& pass) {
  const models::GpuType& type = run.cluster.gpu_types[pass.gpu_type];
  const ir::Dtype dtype =
      models::supported_dtype(type, run.workload.dtype).value_or(run.workload.dtype);
  const std::string& model = run.workload.shape.name;
  const std::int64_t length = run.workload.sequence_length;
  Entries entries;
  for (const ir::BlockTime& entry : run.profile.block_times) entries.push_back(&entry);
  std::string gap;
  const auto only = [&](auto fits, const std::string& wanted, auto name) {
    return keep(entries, fits, wanted, name, gap);
  };
  const bool found =
      only([&](const auto& e) { return e.gpu == type.name; }, fmt::format("GPU type {}", type.name),
           [](const auto& e) { return e.gpu; }) &&
      only([&](const auto& e) { return e.model.empty() || e.model == model; },
           fmt::format("blocks of {}", model), [](const auto& e) { return e.model; }) &&
      only([&](const auto& e) { return e.dtype == dtype; }, ir::name_of(dtype),
           [](const auto& e) { return std::string(ir::name_of(e.dtype)); }) &&
      only([&](const auto& e) { return e.sequence_length == length; },
           fmt::format("sequence {}", length),
           [](const auto& e) { return std::to_string(e.sequence_length); }) &&
      only([&](const auto&) { return pass.sequence_degree == 1; },
           fmt::format("sequence degree {}", pass.sequence_degree),
           [](const auto&) { return std::string("1"); }) &&
      only([&](const auto& e) { return e.tensor_parallel == pass.tensor_parallel; },
           fmt::format("tensor parallelism {}", pass.tensor_parallel),
           [](const auto& e) { return std::to_string(e.tensor_parallel); });
  if (!found) return fmt::format("{}: {}", type.name, gap);
  const auto [least, most] = std::minmax_element(
      entries.begin(), entries.end(),
      [](const auto* a, const auto* b) { return a->micro_batch_size < b->micro_batch_size; });
  const int low = (*least)->micro_batch_size;
  const int high = (*most)->micro_batch_size;
  if (low <= pass.samples && pass.samples <= high) return "";
  return fmt::format("{}: no block time for {} samples, only for {} to {}", type.name, pass.samples,
                     low, high);
}

/// About all generations: ranks that talked over loopback where the cluster has other links, that
/// were parts of one GPU, and inputs that were changed since (LoadedInputs::changed).
std::vector<std::string> notes_of_run(const LoadedInputs& inputs) {
  std::vector<std::string> out;
  if (lacked_links(inputs)) {
    out.push_back(fmt::format(
        "The ranks talked over loopback: links of '{}' were not there, and predicted transfers are "
        "those of its link classes.",
        inputs.run.cluster.name));
  }
  if (!inputs.inputs.shares.empty()) {
    std::string shares;
    for (const auto& [device, percent] : inputs.inputs.shares) {
      shares += fmt::format("{}device {}: {} %", shares.empty() ? "" : ", ", device, percent);
    }
    out.push_back(fmt::format(
        "The ranks were parts of one GPU ({}), which share its memory bandwidth and caches: what a "
        "profile says about a part was measured on it alone.",
        shares));
  }
  if (!inputs.changed.empty()) {
    std::string names;
    for (const std::string& name : inputs.changed) {
      names += fmt::format("{}inputs/{}", names.empty() ? "" : ", ", name);
    }
    out.push_back(fmt::format(
        "Changed since the run: {}. Prices come from the changed files, not from what the run was "
        "given.",
        names));
  }
  return out;
}

/// What to say if the plan and the other inputs that were saved with the log no longer give the
/// program that ran; "" if they do, or if no plan lies there.
std::string changed_program(const LoadedInputs& inputs, const std::optional<ir::Plan>& plan,
                            std::int64_t generation, const ir::Program& program) {
  if (!plan) return "";
  const ExecutableProgram lowered =
      lower_for_ranks(inputs.run, *plan, static_cast<std::uint64_t>(inputs.inputs.seed));
  if (lowered.problems.empty() && ir::program_hash(lowered.program) == ir::program_hash(program)) {
    return "";
  }
  return fmt::format(
      "inputs/{} and the files next to it do not give the program that ran: one of them was "
      "changed "
      "since, or another version of orrery ran it. What is compared is the program that ran, at "
      "prices of the files that lie there.",
      generation == 0 ? std::string("plan.yaml") : fmt::format("plan-{}.yaml", generation));
}

/// What of the program the profile's block times say nothing about, so that the roofline prices it:
/// one line for each GPU type with the first of model, dtype, sequence length, sequence degree,
/// tensor-parallel degree and samples that no entry has, in that order; sorted. Empty for a profile
/// without block times, or with kernels, which price the rest.
std::vector<std::string> profile_gaps(const LoadedRun& run, const ir::Program& program) {
  if (run.profile.block_times.empty() || !run.profile.kernels.empty()) return {};
  std::set<std::string> gaps;
  for (const Priced& pass : passes_of(run.cluster, program)) {
    const std::string gap = gap_of(run, pass);
    if (!gap.empty()) gaps.insert(fmt::format("profile: {}: roofline", gap));
  }
  return {gaps.begin(), gaps.end()};
}

/// The counting step of median length.
const calibration::LoggedStep& median_step(const std::vector<calibration::LoggedStep>& steps,
                                           int warm_up) {
  const std::size_t first = std::min(as_size(std::max(0, warm_up)), steps.size() - 1);
  std::vector<std::size_t> order;
  for (std::size_t k = first; k < steps.size(); ++k) order.push_back(k);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].end - steps[a].start < steps[b].end - steps[b].start;
  });
  return steps[order[order.size() / 2]];
}

/// The generation that ran in `folder`, with what it is compared with.
GenerationComparison compare_generation(const LoadedInputs& inputs, const fs::path& folder,
                                        std::int64_t number, LoggedGeneration logged,
                                        bool own_cluster,
                                        const calibration::CompareOptions& options) {
  const LoadedRun& run = inputs.run;
  GenerationComparison one;
  one.generation = number;
  one.program = std::move(logged.program);
  one.measured = std::move(logged.log);
  SimulatedProgram simulated = simulate_program(run, one.program, stragglers_of(inputs.inputs));
  one.predicted = std::move(simulated.log);
  one.prices = std::move(simulated.prices);
  auto compared = calibration::compare(one.program, one.predicted, one.measured, options);
  if (auto* comparison = std::get_if<calibration::Comparison>(&compared)) {
    one.comparison = std::move(*comparison);
  } else {
    one.problem = std::get<calibration::CompareProblem>(compared);
  }
  one.checkpoints = calibration::compare_checkpoints(
      one.program, one.measured, places_of(inputs.inputs), run.cluster, run.profile,
      to_seconds(calibration::simulated_iteration(one.predicted)));
  if (one.comparison) one.checkpoints.between_steps = one.comparison->held;
  for (const std::string& line : one.checkpoints.sources) {
    one.prices.push_back("checkpoint: " + line);
  }
  const auto before = number == 0 ? std::nullopt : plan_of_generation(folder.string(), number - 1);
  const auto after = plan_of_generation(folder.string(), number);
  if (own_cluster) {
    const std::string other = changed_program(inputs, after, number, one.program);
    if (!other.empty()) one.notes.push_back(other);
  }
  for (const std::string& gap : profile_gaps(run, one.program)) one.notes.push_back(gap);
  if (before && after) {
    one.simulated_move = simulate_move(run, *before, *after, gone(*before, one.program));
  }
  count_disturbed(one.measured, one);
  one.phases = compare_phases(one, run.profile);
  one.phases_problem = missing_phases(one.phases);
  return one;
}

/// comparison.json and, for each generation, timeline-<g>.csv and its figure.
void write_files(const CompareSettings& settings, int warm_up, const Call& call,
                 CompareResult& result) {
  const fs::path out = *settings.out;
  make_folders(out.string());
  const auto write = [&](const std::string& name, const std::string& text) {
    result.files.push_back((out / name).string());
    write_file(result.files.back(), text);
    return result.files.back();
  };
  write("comparison.json", to_json(result));
  for (const GenerationComparison& generation : result.generations) {
    if (!generation.comparison) continue;
    const std::string csv = write(fmt::format("timeline-{}.csv", generation.generation),
                                  timeline_csv(generation, warm_up));
    if (settings.no_figure) continue;
    const FigureResult figure = draw_figure(
        {(fs::path(ORRERY_SOURCE_DIR) / "tools" / "scripts").string(), "plot_compare.py", ""}, csv,
        out.string(), call.cancellation.flag());
    result.files.insert(result.files.end(), figure.files.begin(), figure.files.end());
    if (!figure.problem.empty()) result.files.push_back("no " + figure.problem);
  }
}

}  // namespace

void describe(config::Visitor& v, CompareSettings& settings) {
  v.required("run", settings.run,
             "folder that `orrery execute --out` wrote, one of its generations, or a run.log",
             {.positional = true});
  v.optional("profile", settings.profile, "profile to predict with; default: the run's own");
  v.optional("cluster", settings.cluster, "cluster to predict for; default: the run's own");
  v.optional("warm_up", settings.warm_up, "first steps that do not count; default: 2");
  v.optional("worst", settings.worst, "ops to list; default: 10");
  v.optional("out", settings.out, "folder for comparison.json, timelines as CSV and figures",
             {.letter = 'o'});
  v.optional("no_figure", settings.no_figure, "do not draw the figure");
  if (settings.warm_up) v.not_negative("warm_up", *settings.warm_up);
  v.not_negative("worst", settings.worst);
}

void describe(config::Visitor& v, ComparedPhase& phase) {
  v.required("phase", phase.phase, "");
  v.optional("predicted_seconds", phase.predicted, "");
  v.required("measured_seconds", phase.measured, "");
}

void describe(config::Visitor& v, GenerationComparison& generation) {
  calibration::Comparison none;
  calibration::Comparison& steps = generation.comparison ? *generation.comparison : none;
  std::vector<calibration::ComponentRow> times;
  if (generation.comparison) times = calibration::times_of(steps);
  std::optional<ComparedPhase> recovery = total_of(generation.phases);
  v.required("generation", generation.generation, "");
  v.required("problem", generation.problem, "why there is no comparison of steps");
  v.required("steps", steps.steps, "that count");
  v.required("shortest_step_seconds", steps.shortest_step, "measured");
  v.required("longest_step_seconds", steps.longest_step, "measured");
  v.required("transfer_error", steps.transfer_error, "mean of |error|, weighted by time");
  v.required("op_bias", steps.op_bias, "of the sum of all ops");
  v.required("compute_ops", generation.compute_ops, "executed");
  v.required("disturbed_ops", generation.disturbed_ops, "of them longer than they should");
  v.required("notes", generation.notes,
             "inputs that are not those of the program that ran, gaps of the profile");
  v.required("times", times, "iteration, components, transfers");
  v.required("checkpoint", generation.checkpoints, "apart from the iteration");
  v.required("memory", steps.memory, "");
  v.required("worst_ops", steps.worst, "");
  v.required("phases", generation.phases, "of the recovery that brought it up");
  v.optional("recovery", recovery, "all phases together");
  v.required("phases_problem", generation.phases_problem, "why some of them are not predicted");
  v.required("prices", generation.prices, "where predicted times come from");
}

void describe(config::Visitor& v, CompareResult& result) {
  v.title("Predicted against measured");
  v.required("run", result.run, "");
  v.required("notes", result.notes,
             "about all generations: changed files, links that were not there");
  v.required("generations", result.generations, "");
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
      if (as_size(device.gpu_type) != t) continue;
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
    copy(out.overlap_losses, [](ir::OverlapLoss&) {});
    copy(out.exposed_collectives, [](ir::ExposedCollectives&) {});
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

CompareResult compare_run(const CompareSettings& settings,
                          const calibration::CompareOptions& options,
                          config::Diagnostics& diagnostics) {
  CompareResult out{settings.run, {}, {}, {}};
  const RunFolder folder = run_folder_of(settings.run);
  std::error_code error;
  if (!fs::is_directory(folder.folder, error)) {
    diagnostics.add({settings.run, 0, 0}, "no such run",
                    "a folder that `orrery execute --out` wrote");
    return out;
  }
  const std::vector<std::int64_t> numbers = generations_in(folder);
  if (numbers.empty()) {
    diagnostics.add({settings.run, 0, 0}, "holds no generation with a run log",
                    "a folder that `orrery execute --out` wrote");
  }
  LoadedInputs inputs = load_run_inputs(folder.folder.string(), settings.cluster.value_or(""),
                                        settings.profile.value_or(""), diagnostics);
  if (!diagnostics.empty()) return out;
  LoadedRun& run = inputs.run;
  run.profile = for_cluster(run.profile, run.cluster, inputs.inputs.lab_slowdowns);
  out.notes = notes_of_run(inputs);
  const std::vector<std::string>& changed = inputs.changed;
  const bool other_cluster = settings.cluster || std::find(changed.begin(), changed.end(),
                                                           inputs.inputs.cluster) != changed.end();
  for (const std::int64_t number : numbers) {
    auto read = read_generation(folder.folder / fmt::format("generation-{}", number), run,
                                other_cluster, diagnostics);
    if (!read || !diagnostics.empty()) continue;
    out.generations.push_back(compare_generation(inputs, folder.folder, number, std::move(*read),
                                                 !settings.cluster, options));
    const std::size_t steps = out.generations.back().measured.iterations.size();
    if (!settings.warm_up || as_size(options.warm_up) < steps) continue;
    diagnostics.add(at_setting("warm_up"),
                    fmt::format("generation {} has {} steps: none is left", number, steps));
  }
  return out;
}

CompareResult compare(const CompareSettings& settings, const Call& call,
                      config::Diagnostics problems) {
  if (settings.out) check_out_folder("out", *settings.out, problems);
  problems.raise();
  calibration::CompareOptions options;
  options.warm_up = settings.warm_up.value_or(options.warm_up);
  options.worst = settings.worst;
  CompareResult result = compare_run(settings, options, problems);
  problems.raise();
  if (settings.out) write_files(settings, options.warm_up, call, result);
  return result;
}

std::string timeline_csv(const GenerationComparison& generation, int warm_up) {
  std::string text = "side,rank,device,step,stream,kind,purpose,start_s,end_s,inner_s\n";
  const auto add = [&](const char* side, const ir::RunLog& log, int skip) {
    const auto found = calibration::logged_steps(generation.program, log);
    const auto* steps = std::get_if<std::vector<calibration::LoggedStep>>(&found);
    if (steps == nullptr) return;
    const calibration::LoggedStep& step = median_step(*steps, skip);
    for (const ir::Span& span : step.spans) {
      const ir::Op& op = generation.program.op(span.op);
      const auto seconds = [&](Instant at) { return to_seconds(at - step.start).value; };
      text += fmt::format("{},{},{},{},{},{},{},{:.9f},{:.9f},{:.9f}\n", side, op.rank.value,
                          generation.program.rank_of(op).device.value, step.number,
                          ir::name_of(op.stream), ir::name_of(op.kind), ir::name_of(op.purpose),
                          seconds(span.start), seconds(span.end), to_seconds(span.inner).value);
    }
  };
  add("predicted", generation.predicted, 0);
  add("measured", generation.measured, warm_up);
  return text;
}

}  // namespace orrery::experiments
