// AutoHet: layer-wise checkpoints to CPU memory, NVMe and cloud; after a change of the devices its
// planner makes a new asymmetric plan, and each device loads its layers from its own node first,
// from other nodes over RDMA second, from the cloud last (bitmap.h). All processes restart.
// [AutoHet, section IV]
//
// The paper states neither the checkpoint interval, nor costs of checkpoints and of the restart,
// nor what happens when devices come: they are options. Files are written from host memory while
// training goes on; IV-C has instances that are reclaimed before that is done.
// Deviation: devices read the slices that they need, not whole files (option reads).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "models/base/ids.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/autohet/bitmap.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/switching.h"

namespace orrery::planners {

extern const RecoveryEntry kAutohetRecovery;

namespace {

enum class HostCheckpoints { read, skip };
enum class FileReads { slices, files };

std::vector<std::pair<HostCheckpoints, const char*>> enum_names(HostCheckpoints) {
  return {{HostCheckpoints::read, "read"}, {HostCheckpoints::skip, "skip"}};
}
std::vector<std::pair<FileReads, const char*>> enum_names(FileReads) {
  return {{FileReads::slices, "slices"}, {FileReads::files, "files"}};
}

struct AutohetRecoverySettings {
  SwitchingSettings switching = {
      .phases =
          {.decide = {{159.12},
                      "Seconds of planning: the longest search, simulated configurations up to 64 "
                      "GPUs; the shortest takes 1.23 [AutoHet, I and V-B]."}},
      .planner = "autohet"};
  CheckpointInterval local_interval;
  CheckpointInterval cloud_interval;
  int micro_batch_size = 0;
  HostCheckpoints memory = HostCheckpoints::read;
  bool nvme = true;
  FileReads reads = FileReads::slices;
};

void describe(config::Visitor& v, AutohetRecoverySettings& s) {
  describe_switching(v, s.switching);
  v.optional(
      "local_interval", s.local_interval,
      "Between checkpoints in CPU memory and on NVMe: auto (Young's), own (Daly's; the paper "
      "names none), young, daly, availability, tuned, or seconds.");
  v.optional("cloud_interval", s.cloud_interval,
             "The same for the cloud; a multiple of the local one.");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples, of the planner autohet's plans; 0: every size that the job allows.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.optional("memory", s.memory,
             "Checkpoints in CPU memory: read, or skip where restarting a container clears it. "
             "[IV-B1]");
  v.optional("nvme", s.nvme, "Checkpoints on NVMe: true, or false for nodes without.");
  v.optional("reads", s.reads,
             "slices: what a device needs of a file; files: whole files, of which it splits what "
             "it needs; not with ZeRO or expert parallelism. [IV-B2]");
}

SwitchingPolicy::Asked asked_of(const AutohetRecoverySettings& settings) {
  SwitchingPolicy::Asked asked{settings.switching.planner,
                               settings.switching.planner_options.values};
  if (asked.planner == kAutohetRecovery.name) {
    asked.options.emplace_back("micro_batch_size", std::to_string(settings.micro_batch_size));
  }
  return asked;
}

class AutohetRecovery final : public SwitchingPolicy {
 public:
  using Settings = AutohetRecoverySettings;
  AutohetRecovery(const PolicyInput& input, const Settings& s)
      : SwitchingPolicy(input, s.switching, {asked_of(s)}),
        settings_(s),
        bytes_(models::all_state_bytes(input.job)) {
    for (CheckpointInterval* interval : {&settings_.local_interval, &settings_.cloud_interval}) {
      *interval =
          chosen(*interval, {CheckpointInterval::Rule::daly, {}}, s.switching.phases.constants);
    }
  }

  std::string name() const override { return kAutohetRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override;

 private:
  models::RecoveryDecision recover(const models::JobState& state, models::PlanPointer plan,
                                   std::vector<models::RecoveryPhase> phases) const override;
  std::optional<models::RecoveryDecision> switch_to(const models::JobState& state,
                                                    models::PlanPointer plan) const override;
  std::vector<StateSource> order() const;
  /// On the plan that ran.
  Seconds restart_estimate(const ir::Plan& plan) const {
    return pay(settings().phases.reinitialize, [&] { return bring_up(input(), &plan, plan, {}); })
        .duration;
  }
  void load(const models::JobState& state, NewestRestore newest,
            models::RecoveryDecision& decision) const;

  AutohetRecoverySettings settings_;
  models::ReshardBytes bytes_;
};

std::vector<models::CheckpointLevel> AutohetRecovery::checkpoints(const ir::Plan& plan,
                                                                  Seconds iteration_time) const {
  // One snapshot stops training; what is written from it overlaps training.
  const Seconds snapshot = checkpoint_cost(input(), plan, ir::Location::host_memory).snapshot;
  const auto every = [&](const CheckpointInterval& interval, Seconds persist) {
    const CheckpointTimes times{snapshot, persist, restart_estimate(plan)};
    return iterations_between(interval, times, iteration_time, expected_interruptions(input()));
  };
  const auto level = [](ir::Location location, std::int64_t iterations, Seconds persist,
                        const char* source) {
    models::CheckpointLevel result;
    result.location = location;
    result.every = iterations;
    result.persist = to_nanoseconds(persist);
    result.source = source;
    return result;
  };
  std::vector<models::CheckpointLevel> levels;
  std::int64_t local = every(settings_.local_interval, snapshot);
  if (settings_.nvme && !location_problem(input().cluster, ir::Location::nvme)) {
    const Seconds persist = snapshot + checkpoint_cost(input(), plan, ir::Location::nvme).persist;
    local = every(settings_.local_interval, persist);
    levels.push_back(level(ir::Location::nvme, local, persist, "NVMe of the node; AutoHet, IV-B1"));
  }
  levels.insert(levels.begin(),
                level(ir::Location::host_memory, local, snapshot, "PCIe; AutoHet, IV-B1"));
  levels.front().stall = to_nanoseconds(snapshot);
  if (input().cluster.storage) {
    // Replicas need not be uploaded twice: a file is a layer and a rank.
    CheckpointCost upload = checkpoint_cost(input(), plan, ir::Location::cloud);
    const Seconds persist = snapshot + upload.persist;
    const std::int64_t wanted = every(settings_.cloud_interval, persist);
    levels.push_back(level(ir::Location::cloud, (wanted + local - 1) / local * local, persist,
                           "cloud storage; AutoHet, IV-B1"));
    levels.back().background = std::move(upload.uploads);
  }
  return levels;
}

/// Local first, RDMA second, cloud last. [AutoHet, IV-C]
std::vector<StateSource> AutohetRecovery::order() const {
  const bool memory = settings_.memory == HostCheckpoints::read;
  std::vector<StateSource> order;
  if (memory) order.push_back(StateSource::own_host);
  order.push_back(StateSource::own_nvme);
  if (memory) order.push_back(StateSource::peer_host);
  order.push_back(StateSource::peer_nvme);
  order.push_back(StateSource::cloud);
  return order;
}

/// Layers by the farthest source of any of their files, and how the files are cut.
std::string reads_in_words(const std::vector<LayerRead>& reads) {
  std::array<int, kStateSources> by_source{};
  std::array<int, 4> by_change{};
  for (const LayerRead& read : reads) {
    if (read.files.empty()) continue;
    StateSource farthest = read.files.front().source;
    for (const LayerFile& file : read.files) farthest = std::max(farthest, file.source);
    ++by_source[index_of(farthest)];
    ++by_change[index_of(read.change)];
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
void AutohetRecovery::load(const models::JobState& state, NewestRestore newest,
                           models::RecoveryDecision& decision) const {
  const ir::Plan& plan = *decision.plan;
  const std::int64_t iteration = newest.iteration;
  bool layer_wise = find_bitmap_problem(plan).empty();
  for (const models::StateReplica& copy : state.replicas) {
    layer_wise &= copy.iteration != iteration || find_bitmap_problem(*copy.layout).empty();
  }
  if (layer_wise) {
    const LayerBitmap bitmap(input(), state.replicas, iteration, order());
    const std::vector<LayerRead> reads = bitmap.reads(plan, bytes_);
    decision.reason += fmt::format("; parts of layers: {}", reads_in_words(reads));
    // A layer that only files of several degrees together hold is read by slices.
    const bool whole = std::none_of(reads.begin(), reads.end(),
                                    [](const LayerRead& read) { return read.files.empty(); });
    if (settings_.reads == FileReads::files && whole)
      decision.transfers = whole_file_transfers(reads);
  }
  if (decision.transfers.empty()) {
    decision.transfers = std::move(newest.restore.transfers);
  }
  decision.phases.push_back({PhaseKind::move_state,
                             {},
                             "splitting and concatenating are part of the rate of reading [V-C]"});
}

models::RecoveryDecision AutohetRecovery::recover(const models::JobState& state,
                                                  models::PlanPointer plan,
                                                  std::vector<models::RecoveryPhase> phases) const {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = std::move(plan);
  decision.phases = std::move(phases);
  add_phase(decision, PhaseKind::reinitialize, reinitialize(state, *decision.plan, false));
  auto newest = newest_restore(input(), state, *decision.plan, order(), bytes_);
  if (!newest) {
    decision.reason = "nothing that it reads holds the whole state";
    return decision;
  }
  decision.resume_iteration = newest->iteration;
  decision.reason =
      fmt::format("from the layer-wise checkpoint of iteration {}", newest->iteration);
  load(state, std::move(*newest), decision);
  return decision;
}

// A checkpoint into CPU memory at the end of the iteration, then as after a failure. [V-C, scenario
// C: "entirely from local machines through RDMA links"]
std::optional<models::RecoveryDecision> AutohetRecovery::switch_to(const models::JobState& state,
                                                                   models::PlanPointer plan) const {
  models::RecoveryDecision decision;
  decision.action = models::RecoveryDecision::Action::resume;
  decision.plan = std::move(plan);
  decision.resume_iteration = state.iteration;
  add_phase(decision, PhaseKind::reinitialize, reinitialize(state, *decision.plan, true));
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
      checkpoint_cost(input(), *state.plan, ir::Location::host_memory).snapshot;
  decision.phases.push_back(
      {PhaseKind::move_state, to_nanoseconds(snapshot), "checkpoint into CPU memory over PCIe"});
  return decision;
}

}  // namespace

constinit const RecoveryEntry kAutohetRecovery = recovery_entry<AutohetRecovery>({
    .name = "autohet",
    .source = "AutoHet, section IV",
    .recovers =
        "new asymmetric plan by the planner autohet; layers from the own node, then from other "
        "nodes over RDMA, then from the cloud; split and concatenated where the TP degree changes",
    .needs = "any; host memory, NVMe or object storage for the checkpoints",
    .loses = "iterations since the newest checkpoint that is complete",
    .slow = kLeavesOutSlowDevices,
    .deviations = "reads the slices that a device needs, not whole files (option reads: files has "
                  "the paper's); intervals, the cost of a checkpoint and of a restart and what "
                  "happens when devices come are not published and are options; a save before a "
                  "planned change takes a closed-form time",
});

}  // namespace orrery::planners
