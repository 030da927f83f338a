// AutoHet: layer-wise checkpoints to CPU memory, NVMe and cloud; after a change of the devices its
// planner makes a new asymmetric plan, and each device loads its layers from its own node first,
// from other nodes over RDMA second, from the cloud last (autohet_bitmap.h). All processes restart.
// [AutoHet, section IV]
//
// The paper states neither the checkpoint interval, nor costs of checkpoints and of the restart,
// nor what happens when devices come: they are options. Files are written from host memory while
// training goes on; IV-C has instances that are reclaimed before that is done.
// Deviation: devices read the slices that they need, not whole files (option reads).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "planners/recovery/autohet/bitmap.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/switching.h"

namespace orrery::planners {

extern const RecoveryEntry kAutohetRecovery;

namespace {

using Action = models::RecoveryDecision::Action;
using Kind = models::RecoveryPhase::Kind;

struct AutohetRecoverySettings {
  SwitchingSettings switching;
  std::string local_interval;
  std::string cloud_interval;
  bool memory = true;  // Checkpoints in CPU memory are read.
  bool nvme = true;
  bool whole_files = false;
};

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.decide = {"159.12",
                   "Seconds of planning: the longest search, simulated configurations up to 64 "
                   "GPUs; the shortest takes 1.23 [AutoHet, I and V-B]."};
  std::vector<OptionInfo> all = switching_options(phases);
  const std::vector<OptionInfo> more = {
      {"local_interval", "daly",
       "Between checkpoints in CPU memory and on NVMe: young, daly, availability, tuned, or "
       "seconds."},
      {"cloud_interval", "daly", "The same for the cloud; a multiple of the local one."},
      {"memory", "read",
       "Checkpoints in CPU memory: read, or skip where restarting a container clears it. [IV-B1]"},
      {"nvme", "on", "Checkpoints on NVMe: on, or off for nodes without."},
      {"reads", "slices",
       "slices: what a device needs of a file; files: whole files, of which it splits what it "
       "needs; not with ZeRO or expert parallelism. [IV-B2]"},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class AutohetRecovery final : public SwitchingPolicy {
 public:
  AutohetRecovery(const PolicyInput& input, AutohetRecoverySettings settings)
      : SwitchingPolicy(input, settings.switching, {{"autohet", {}}}),
        settings_(std::move(settings)),
        bytes_(models::all_state_bytes(input.job)) {}

  std::string name() const override { return kAutohetRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;

 private:
  models::RecoveryDecision recover(const models::JobState& state, models::PlanPointer plan,
                                   std::vector<models::RecoveryPhase> phases) const override;
  std::optional<models::RecoveryDecision> switch_to(const models::JobState& state,
                                                    models::PlanPointer plan) const override;
  std::vector<StateSource> order() const;
  void load(const models::JobState& state, std::int64_t iteration, const ir::Plan& plan,
            models::RecoveryDecision& decision) const;

  AutohetRecoverySettings settings_;
  models::ReshardBytes bytes_;
};

std::vector<models::CheckpointLevel> AutohetRecovery::checkpoints(const ir::Plan& plan,
                                                                  Seconds iteration_time) const {
  const double rate = expected_interruptions(input());
  const auto cost = [&](ir::Location location) {
    return checkpoint_cost(input(), plan, location, bytes_, false);
  };
  const auto every = [&](const std::string& interval, Seconds stall, Seconds persist) {
    return iterations_between(interval, stall, persist, settings().phases.restart.duration,
                              iteration_time, rate);
  };
  // One snapshot stops training; what is written from it is written beside training.
  const CheckpointCost memory = cost(ir::Location::host_memory);
  const Nanoseconds snapshot = to_nanoseconds(memory.snapshot);
  std::vector<models::CheckpointLevel> levels;
  models::CheckpointLevel host{ir::Location::host_memory, 1, snapshot, snapshot, {},
                               "PCIe; AutoHet, IV-B1",    {}};
  host.every = every(settings_.local_interval, memory.snapshot, memory.snapshot);
  if (settings_.nvme && location_problem(input().cluster, ir::Location::nvme).empty()) {
    const Seconds persist = memory.snapshot + cost(ir::Location::nvme).persist;
    host.every = every(settings_.local_interval, memory.snapshot, persist);
    levels.push_back(host);
    levels.push_back({ir::Location::nvme,
                      host.every,
                      {},
                      to_nanoseconds(persist),
                      {},
                      "NVMe of the node; AutoHet, IV-B1",
                      {}});
  } else {
    levels.push_back(host);
  }
  if (input().cluster.storage) {
    // Replicas need not be uploaded twice: a file is a layer and a rank.
    CheckpointCost upload = checkpoint_cost(input(), plan, ir::Location::cloud, bytes_, true);
    const Seconds persist = memory.snapshot + upload.persist;
    const std::int64_t wanted = every(settings_.cloud_interval, memory.snapshot, persist);
    const std::int64_t local = levels.front().every;
    levels.push_back({ir::Location::cloud,
                      (wanted + local - 1) / local * local,
                      {},
                      to_nanoseconds(persist),
                      {},
                      "cloud storage; AutoHet, IV-B1",
                      std::move(upload.uploads)});
  }
  return levels;
}

/// Local first, RDMA second, cloud last. [AutoHet, IV-C]
std::vector<StateSource> AutohetRecovery::order() const {
  std::vector<StateSource> order;
  if (settings_.memory) order.push_back(StateSource::own_host);
  order.push_back(StateSource::own_nvme);
  if (settings_.memory) order.push_back(StateSource::peer_host);
  order.push_back(StateSource::peer_nvme);
  order.push_back(StateSource::cloud);
  return order;
}

/// Layers by the farthest place that they come from, and how their files are cut.
std::string in_words(const std::vector<LayerRead>& reads) {
  std::array<int, kStateSources> by_source{};
  std::array<int, 4> by_change{};
  for (const LayerRead& read : reads) {
    if (read.files.empty()) continue;
    StateSource farthest = read.files.front().source;
    for (const LayerFile& file : read.files) farthest = std::max(farthest, file.source);
    ++by_source[static_cast<std::size_t>(farthest)];
    ++by_change[static_cast<std::size_t>(read.change)];
  }
  std::string text;
  for (std::size_t i = 0; i < kStateSources; ++i) {
    if (by_source[i] == 0) continue;
    text += fmt::format("{}{} from {}", text.empty() ? "" : ", ", by_source[i],
                        planners::name_of(static_cast<StateSource>(i)));
  }
  for (std::size_t i = 1; i < by_change.size(); ++i) {
    if (by_change[i] == 0) continue;
    text += fmt::format(", {} {}", by_change[i], name_of(static_cast<TensorChange>(i)));
  }
  return text;
}

/// Adds transfers and the move phase.
void AutohetRecovery::load(const models::JobState& state, std::int64_t iteration,
                           const ir::Plan& plan, models::RecoveryDecision& decision) const {
  bool layer_wise = find_bitmap_problem(plan).empty();
  for (const models::StateReplica& copy : state.replicas) {
    layer_wise &= copy.iteration != iteration || find_bitmap_problem(*copy.layout).empty();
  }
  if (layer_wise) {
    const LayerBitmap bitmap(input(), state.replicas, iteration, order());
    const std::vector<LayerRead> reads = bitmap.reads(plan, bytes_);
    decision.reason += fmt::format("; parts of layers: {}", in_words(reads));
    // A layer that only files of several degrees together hold is read by slices.
    const bool whole = std::none_of(reads.begin(), reads.end(),
                                    [](const LayerRead& read) { return read.files.empty(); });
    if (settings_.whole_files && whole) decision.transfers = whole_file_transfers(reads);
  }
  if (decision.transfers.empty()) {
    decision.transfers = plan_restore(input(), state, plan, {iteration, order(), bytes_}).transfers;
  }
  decision.phases.push_back(
      {Kind::move_state, {}, "splitting and concatenating are part of the rate of reading [V-C]"});
}

models::RecoveryDecision AutohetRecovery::recover(const models::JobState& state,
                                                  models::PlanPointer plan,
                                                  std::vector<models::RecoveryPhase> phases) const {
  models::RecoveryDecision decision;
  decision.action = Action::resume;
  decision.plan = std::move(plan);
  decision.phases = std::move(phases);
  add_phase(decision, Kind::reinitialize, settings().phases.reinitialize);
  const auto iteration = newest_restorable(input(), state, *decision.plan, order(), bytes_);
  decision.resume_iteration = iteration.value_or(0);
  if (!iteration) {
    decision.reason = "nothing that it reads holds the whole state";
    return decision;
  }
  decision.reason = fmt::format("from the layer-wise checkpoint of iteration {}", *iteration);
  load(state, *iteration, *decision.plan, decision);
  return decision;
}

// A checkpoint into CPU memory at the end of the iteration, then as after a failure. [V-C, scenario
// C: "entirely from local machines through RDMA links"]
std::optional<models::RecoveryDecision> AutohetRecovery::switch_to(const models::JobState& state,
                                                                   models::PlanPointer plan) const {
  models::RecoveryDecision decision;
  decision.action = Action::resume;
  decision.plan = std::move(plan);
  decision.resume_iteration = state.iteration;
  decision.run_on = to_nanoseconds(settings().phases.decide.duration);
  add_phase(decision, Kind::reinitialize, settings().phases.reinitialize);
  decision.reason = "planned beside training, state saved at the end of an iteration";
  models::StateReplica saved;
  saved.iteration = state.iteration;
  saved.location = ir::Location::host_memory;
  saved.layout = state.plan;
  const std::vector<StateSource> sources = {StateSource::own_host, StateSource::peer_host};
  models::JobState then = state;
  then.replicas = {saved};
  decision.transfers =
      plan_restore(input(), then, *decision.plan, {state.iteration, sources, bytes_}).transfers;
  const Seconds snapshot =
      checkpoint_cost(input(), *state.plan, ir::Location::host_memory, bytes_, false).snapshot;
  decision.phases.push_back(
      {Kind::move_state, to_nanoseconds(snapshot), "checkpoint into CPU memory over PCIe"});
  return decision;
}

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  AutohetRecoverySettings s;
  s.switching = read_switching(reader, options());
  s.memory = reader.choice<bool>("memory", {{"read", true}, {"skip", false}});
  s.nvme = reader.choice<bool>("nvme", {{"on", true}, {"off", false}});
  s.whole_files = reader.choice<bool>("reads", {{"slices", false}, {"files", true}});
  auto bad = read_intervals(
      reader, {{"local_interval", &s.local_interval}, {"cloud_interval", &s.cloud_interval}});
  if (bad) return std::move(*bad);
  return std::make_unique<AutohetRecovery>(input, std::move(s));
}

}  // namespace

const RecoveryEntry kAutohetRecovery = {
    "autohet",
    "AutoHet, section IV",
    "new asymmetric plan by the planner autohet; layers from the own node, then from other nodes "
    "over RDMA, then from the cloud; split and concatenated where the TP degree changes",
    "any; host memory, NVMe or object storage for the checkpoints",
    "iterations since the newest checkpoint that is complete",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "reads the slices that a device needs, not whole files (option reads: files has the paper's); "
    "intervals, the cost of a checkpoint and of a restart and what happens when devices come are "
    "not published and are options; a save before a planned change takes a closed-form time; "
    "asynchronous persists and uploads do not slow iterations unless background transfers are "
    "simulated",
    options,
    make,
};

}  // namespace orrery::planners
