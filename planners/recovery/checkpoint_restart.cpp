// Checkpoint and restart as Megatron-LM and DeepSpeed jobs do it: uniform grids only. After a loss
// all processes are started again and load the last checkpoint; with a spare in the gap the plan
// stays, else the job goes on with the largest grid on what is left, for which a node that has lost
// a GPU counts as lost. [Narayanan et al. 2021; Hetu v2, Appendix A.3]
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"
#include "planners/recovery/kit/checkpointing.h"

namespace orrery::planners {

extern const RecoveryEntry kCheckpointRestartRecovery;

namespace {

enum class Save { blocking, asynchronous };

struct CheckpointRestartSettings {
  ir::Location location = ir::Location::cloud;
  std::string interval;
  Save save = Save::blocking;
};

std::vector<OptionInfo> options() {
  std::vector<OptionInfo> all = checkpointed_options();
  all.push_back({"location", "cloud",
                 "cloud: object storage, replicas written once; nvme: each device to its own node, "
                 "so that a lost node's shares come from replicas on other nodes."});
  all.push_back({"interval", "young",
                 "Between checkpoints: young, daly, availability, tuned (best expected ETTR), or "
                 "seconds."});
  all.push_back({"save", "blocking",
                 "blocking: training stops until the checkpoint is persisted; asynchronous: for "
                 "the copy to host memory only [PyTorch asynchronous DCP]."});
  all.push_back({"drop_nodes", "yes",
                 "yes: a node that has lost a GPU is left out [Hetu v2, A.3]; no: its other GPUs "
                 "stay."});
  return all;
}

class CheckpointRestart final : public CheckpointedPolicy {
 public:
  CheckpointRestart(const PolicyInput& input, CheckpointedRules rules,
                    CheckpointRestartSettings settings)
      : CheckpointedPolicy(input, std::move(rules)), settings_(std::move(settings)) {}
  std::string name() const override { return kCheckpointRestartRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    CheckpointCost cost =
        checkpoint_cost(input(), plan, settings_.location, models::all_state_bytes(input().job),
                        settings_.location == ir::Location::cloud);
    const Seconds written = cost.snapshot + cost.persist;
    const Seconds stall = settings_.save == Save::blocking ? written : cost.snapshot;
    models::CheckpointLevel level;
    level.location = settings_.location;
    level.stall = to_nanoseconds(stall);
    level.persist = to_nanoseconds(written);
    level.every =
        iterations_between(settings_.interval, stall, written, rules().phases.reinitialize.duration,
                           iteration_time, expected_interruptions(input()));
    level.source = fmt::format("closed form of the links; interval {}", settings_.interval);
    if (settings_.save == Save::asynchronous) level.background = std::move(cost.uploads);
    return {level};
  }

 private:
  CheckpointRestartSettings settings_;
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  CheckpointRestartSettings settings;
  settings.location = reader.choice<ir::Location>(
      "location", {{"cloud", ir::Location::cloud}, {"nvme", ir::Location::nvme}});
  settings.save = reader.choice<Save>(
      "save", {{"blocking", Save::blocking}, {"asynchronous", Save::asynchronous}});
  settings.interval = reader.text("interval");
  const bool drop_nodes = reader.choice<bool>("drop_nodes", {{"yes", true}, {"no", false}});
  if (const std::string problem = interval_problem(settings.interval); !problem.empty()) {
    return PlannerEntry::BadOption{"interval", problem};
  }
  auto read = read_checkpointed(reader, options());
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto rules = std::get<CheckpointedRules>(std::move(read));
  if (const std::string problem = location_problem(input.cluster, settings.location);
      !problem.empty()) {
    return models::Infeasible{"checkpoint location", problem};
  }
  rules.drops_nodes = drop_nodes;
  rules.save_first = settings.location;
  rules.order = settings.location == ir::Location::cloud
                    ? std::vector<StateSource>{StateSource::cloud}
                    : std::vector<StateSource>{StateSource::own_nvme, StateSource::peer_nvme};
  return std::make_unique<CheckpointRestart>(input, std::move(rules), std::move(settings));
}

}  // namespace

const RecoveryEntry kCheckpointRestartRecovery = {
    "checkpoint_restart",
    "Megatron-LM (Narayanan et al. 2021) and DeepSpeed (Rajbhandari et al. 2020); Hetu v2, A.3",
    "restarts all processes from the last checkpoint: spares in the gaps, else the largest uniform "
    "grid on what is left",
    "any plan; replans with megatron_grid, or deepspeed as an option",
    "all iterations since the last persisted checkpoint",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "a save before a planned change takes a closed-form time; no person and no queue is waited for "
    "beyond the phases; with save: asynchronous, persists do not slow iterations unless "
    "background transfers are simulated",
    options,
    make,
};

}  // namespace orrery::planners
