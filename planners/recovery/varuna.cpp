// Varuna's morphing: at each change of the GPUs the job restarts with the best pipeline depth and
// number of replicas for what is left, without tensor parallelism, from a checkpoint that was
// written layer by layer to local storage and then, beside training, to the cloud.
// [Varuna, Athlur et al., EuroSys 2022, sections 4.4 and 5]
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"
#include "planners/recovery/kit/checkpointing.h"

namespace orrery::planners {

extern const RecoveryEntry kVarunaRecovery;

namespace {

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.detect = {"0",
                   "Seconds until a lost device is noticed where the trace does not say; 0: the "
                   "measured restarts include it [Oobleck's artifact]."};
  phases.detect_exception = {"0", "As detect, for failed processes [Oobleck's artifact]."};
  phases.reinitialize = {
      "83",
      "Seconds of a restart: GPT-2 on up to 30 nodes as measured for Oobleck, less the checkpoint "
      "stall; 49 to 112 for BERT, 701 for GPT-3 6.7B [Oobleck's artifact, branch "
      "sosp23-artifact]."};
  std::vector<OptionInfo> all = checkpointed_options(phases, "varuna");
  all.push_back({"every", "0",
                 "Iterations between checkpoints (10 in Oobleck's measurements); 0: by interval."});
  all.push_back({"interval", "young",
                 "Between checkpoints, where every is 0: young, daly, availability, tuned, or "
                 "seconds."});
  return all;
}

struct VarunaMorphingSettings {
  std::int64_t every = 0;
  std::string interval;
};

class VarunaMorphing final : public CheckpointedPolicy {
 public:
  VarunaMorphing(const PolicyInput& input, CheckpointedRules rules, VarunaMorphingSettings settings)
      : CheckpointedPolicy(input, std::move(rules)), settings_(std::move(settings)) {}
  std::string name() const override { return kVarunaRecovery.name; }

  /// Replicas share the writing of their layers evenly. Training stops until the local write ends:
  /// to NVMe, or to host memory where nodes have none. The upload follows beside training.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    const bool nvme = location_problem(input().cluster, ir::Location::nvme).empty();
    const models::ReshardBytes bytes = models::all_state_bytes(input().job);
    const CheckpointCost local = checkpoint_cost(
        input(), plan, nvme ? ir::Location::nvme : ir::Location::host_memory, bytes, false);
    CheckpointCost cloud = checkpoint_cost(input(), plan, ir::Location::cloud, bytes, true);
    const auto replicas = static_cast<double>(plan.pipelines.size());
    const Seconds stall = (local.snapshot + local.persist) / replicas;
    const Seconds written = stall + cloud.persist;
    models::CheckpointLevel level;
    level.location = ir::Location::cloud;
    level.stall = to_nanoseconds(stall);
    level.persist = to_nanoseconds(written);
    level.every = settings_.every > 0
                      ? settings_.every
                      : iterations_between(settings_.interval, stall, written,
                                           rules().phases.reinitialize.duration, iteration_time,
                                           expected_interruptions(input()));
    level.source = fmt::format("Varuna 5: {} first, then the cloud; closed form of the links",
                               nvme ? "local NVMe" : "host memory");
    level.background = std::move(cloud.uploads);
    return {level};
  }

 private:
  VarunaMorphingSettings settings_;
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  VarunaMorphingSettings settings;
  settings.every = reader.integer("every", 0, 1'000'000'000);
  settings.interval = reader.text("interval");
  if (const std::string problem = interval_problem(settings.interval); !problem.empty()) {
    return PlannerEntry::BadOption{"interval", problem};
  }
  auto read = read_checkpointed(reader, options());
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto rules = std::get<CheckpointedRules>(std::move(read));
  if (const std::string problem = location_problem(input.cluster, ir::Location::cloud);
      !problem.empty()) {
    return models::Infeasible{"checkpoint location", problem};
  }
  rules.save_first = ir::Location::cloud;
  rules.order = {StateSource::cloud};
  return std::make_unique<VarunaMorphing>(input, std::move(rules), std::move(settings));
}

}  // namespace

const RecoveryEntry kVarunaRecovery = {
    "varuna",
    "Varuna (Athlur et al., EuroSys 2022), 4.4 and 5",
    "morphs: restarts with the best pipeline depth and number of replicas for what is left",
    "no tensor parallelism (planner varuna); object storage",
    "all iterations since the last checkpoint in the cloud",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "the time of a checkpoint is a closed form of the links; the restart time is one number, "
    "measured for GPT-2 by Oobleck's authors, whatever model and cluster; asynchronous persists "
    "and uploads do not slow iterations unless background transfers are simulated",
    options,
    make,
};

}  // namespace orrery::planners
