// Checkpoint and restart as Megatron-LM and DeepSpeed jobs do it: uniform grids only. After a loss
// all processes are started again and load the last checkpoint; with a spare in the gap the plan
// stays, else the job goes on with the largest grid on what is left, for which a node that has lost
// a GPU counts as lost. [Narayanan et al. 2021; Hetu v2, Appendix A.3]
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kCheckpointRestartRecovery;

namespace {

enum class Save { automatic, blocking, asynchronous };

std::vector<std::pair<Save, const char*>> enum_names(Save) {
  return {{Save::automatic, "auto"},
          {Save::blocking, "blocking"},
          {Save::asynchronous, "asynchronous"}};
}

struct CheckpointRestartSettings {
  CheckpointedSettings checkpointed;
  PersistTo location = PersistTo::cloud;
  CheckpointInterval interval;
  Save save = Save::automatic;
  bool drop_nodes = true;
};

void describe(config::Visitor& v, CheckpointRestartSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  v.optional("location", s.location,
             "cloud: object storage, replicas written once; nvme: each device to its own node, "
             "so that a lost node's shares come from replicas on other nodes.");
  v.optional("interval", s.interval,
             "Between checkpoints: auto and own (Young's), young, daly, availability, tuned (best "
             "expected ETTR), or seconds.");
  v.optional("save", s.save,
             "blocking: training stops until the checkpoint is persisted; asynchronous: for "
             "the copy to host memory only, as the saves of other policies [PyTorch asynchronous "
             "DCP]; auto: asynchronous, with constants=as_published blocking.");
  v.optional("drop_nodes", s.drop_nodes,
             "true: a node that has lost a GPU is left out [Hetu v2, A.3]; false: its other GPUs "
             "stay.");
}

class CheckpointRestart final : public CheckpointedPolicy {
 public:
  using Settings = CheckpointRestartSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = location_problem(input.cluster, location_of(s.location))) return *problem;
    return std::make_unique<CheckpointRestart>(input, s);
  }
  CheckpointRestart(const PolicyInput& input, const Settings& s)
      : CheckpointedPolicy(input, s.checkpointed,
                           restart_from(location_of(s.location), s.drop_nodes)),
        settings_(s) {
    const bool published = s.checkpointed.phases.constants == Constants::as_published;
    if (s.save == Save::automatic) {
      settings_.save = published ? Save::blocking : Save::asynchronous;
    }
    settings_.interval =
        chosen(s.interval, {CheckpointInterval::Rule::young, {}}, s.checkpointed.phases.constants);
  }
  std::string name() const override { return kCheckpointRestartRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    const ir::Location location = location_of(settings_.location);
    CheckpointCost cost = checkpoint_cost(input(), plan, location);
    const Seconds written = cost.snapshot + cost.persist;
    const CheckpointTimes times{settings_.save == Save::blocking ? written : cost.snapshot, written,
                                restart_estimate(plan)};
    models::CheckpointLevel level;
    level.location = location;
    level.stall = to_nanoseconds(times.stall);
    level.persist = to_nanoseconds(times.persist);
    level.every = iterations_between(settings_.interval, times, iteration_time,
                                     expected_interruptions(input()));
    level.source =
        fmt::format("closed form of the links; interval {}", to_scalar(settings_.interval));
    if (settings_.save == Save::asynchronous) level.background = std::move(cost.uploads);
    return {level};
  }

 private:
  CheckpointRestartSettings settings_;
};

}  // namespace

constinit const RecoveryEntry kCheckpointRestartRecovery = recovery_entry<CheckpointRestart>({
    .name = "checkpoint_restart",
    .source =
        "Megatron-LM (Narayanan et al. 2021) and DeepSpeed (Rajbhandari et al. 2020); Hetu v2, A.3",
    .recovers = "restarts all processes from the last checkpoint: spares in the gaps, else the "
                "largest uniform grid on what is left",
    .needs = "any plan; replans with megatron_grid, or deepspeed as an option",
    .loses = "all iterations since the last persisted checkpoint",
    .slow = kLeavesOutSlowDevices,
    .deviations = "a save before a planned change takes a closed-form time; no person and no queue "
                  "is waited for beyond the phases",
});

}  // namespace orrery::planners
