// Varuna's morphing: at each change of the GPUs the job restarts with the best pipeline depth and
// number of replicas for what is left, without tensor parallelism, from a checkpoint that was
// written layer by layer to local storage and then, during training, to the cloud.
// [Varuna, Athlur et al., EuroSys 2022, sections 4.4 and 5]
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kVarunaRecovery;

namespace {

struct VarunaMorphingSettings {
  CheckpointedSettings checkpointed = {
      .phases =
          {.detect = {{0},
                      "Seconds until a lost device is noticed where the trace does not say; 0: the "
                      "measured restarts include it [Oobleck's artifact]."},
           .detect_exception = {{0}, "As detect, for failed processes [Oobleck's artifact]."},
           .reinitialize =
               {{83},
                "Seconds of a restart: GPT-2 on up to 30 nodes as measured for Oobleck, less the "
                "checkpoint stall; 49 to 112 for BERT, 701 for GPT-3 6.7B [Oobleck's artifact, "
                "branch "
                "sosp23-artifact]."}},
      .planner = "varuna"};
  std::int64_t every = 0;
  CheckpointInterval interval;
};

void describe(config::Visitor& v, VarunaMorphingSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  v.optional("every", s.every,
             "Iterations between checkpoints (10 in Oobleck's measurements); 0: by interval.");
  v.between<std::int64_t>("every", s.every, 0, 1'000'000'000);
  v.optional("interval", s.interval,
             "Between checkpoints, where every is 0: young, daly, availability, tuned, or "
             "seconds.");
}

class VarunaMorphing final : public CheckpointedPolicy {
 public:
  using Settings = VarunaMorphingSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = location_problem(input.cluster, ir::Location::cloud)) return *problem;
    return std::make_unique<VarunaMorphing>(input, s);
  }
  VarunaMorphing(const PolicyInput& input, const Settings& s)
      : CheckpointedPolicy(input, s.checkpointed, restart_from(ir::Location::cloud, false)),
        settings_(s) {}
  std::string name() const override { return kVarunaRecovery.name; }

  /// Replicas share the writing of their layers evenly. Training stops until the local write ends:
  /// to NVMe, or to host memory where nodes have none. The upload overlaps training.
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    const bool nvme = !location_problem(input().cluster, ir::Location::nvme);
    const CheckpointCost local =
        checkpoint_cost(input(), plan, nvme ? ir::Location::nvme : ir::Location::host_memory);
    CheckpointCost cloud = checkpoint_cost(input(), plan, ir::Location::cloud);
    const auto replicas = static_cast<double>(plan.pipelines.size());
    const Seconds stall = (local.snapshot + local.persist) / replicas;
    const CheckpointTimes times{stall, stall + cloud.persist, phases().reinitialize.duration};
    models::CheckpointLevel level;
    level.location = ir::Location::cloud;
    level.stall = to_nanoseconds(times.stall);
    level.persist = to_nanoseconds(times.persist);
    level.every = settings_.every > 0
                      ? settings_.every
                      : iterations_between(settings_.interval, times, iteration_time,
                                           expected_interruptions(input()));
    level.source = fmt::format("Varuna 5: {} first, then the cloud; closed form of the links",
                               nvme ? "local NVMe" : "host memory");
    level.background = std::move(cloud.uploads);
    return {level};
  }

 private:
  VarunaMorphingSettings settings_;
};

}  // namespace

constinit const RecoveryEntry kVarunaRecovery = recovery_entry<VarunaMorphing>({
    .name = "varuna",
    .source = "Varuna (Athlur et al., EuroSys 2022), 4.4 and 5",
    .recovers =
        "morphs: restarts with the best pipeline depth and number of replicas for what is left",
    .needs = "no tensor parallelism (planner varuna); object storage",
    .loses = "all iterations since the last checkpoint in the cloud",
    .slow = kLeavesOutSlowDevices,
    .deviations = "the time of a checkpoint is a closed form of the links; the restart time is one "
                  "number, measured for GPT-2 by Oobleck's authors, whatever model and cluster",
});

}  // namespace orrery::planners
