// Varuna's morphing: at each change of the GPUs the job restarts with the best pipeline depth and
// number of replicas for what is left, without tensor parallelism, from a checkpoint that was
// written layer by layer to local storage and then, during training, to the cloud.
// [Varuna, Athlur et al., EuroSys 2022, sections 4.4 and 5]
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
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
               {{-1},
                "Seconds of a restart, less the checkpoint stall, as measured for Oobleck on up to "
                "30 nodes; -1: by the number of parameters, 83 up to 0.345 billion, 515 at 2.7, "
                "701 from 6.7 billion on, linear in between [Oobleck's artifact, branch "
                "sosp23-artifact]."}},
      .planner = "varuna"};
  std::int64_t every = 0;
  CheckpointInterval interval;
};

void describe(config::Visitor& v, VarunaMorphingSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  if (v.reading() && s.checkpointed.planner != "varuna") {
    v.problem("planner", "Varuna has no tensor parallelism, which plans of other planners may use");
  }
  v.optional("every", s.every,
             "Iterations between checkpoints (10 in Oobleck's measurements); 0: by interval.");
  v.between<std::int64_t>("every", s.every, 0, 1'000'000'000);
  v.optional("interval", s.interval,
             "Between checkpoints, where every is 0: auto and own (Young's), young, daly, "
             "availability, tuned, or seconds.");
}

/// Linear between the sizes that Oobleck's authors measured: GPT-2 (the same as GPT-3 Medium but
/// for 4 s), GPT-3 2.7B and 6.7B.
Seconds published_restart(const models::Workload& workload) {
  constexpr std::array<std::pair<double, double>, 3> kKnown = {
      {{0.345e9, 83}, {2.7e9, 515}, {6.7e9, 701}}};
  const auto size = static_cast<double>(models::parameters(workload));
  if (size <= kKnown.front().first) return {kKnown.front().second};
  for (std::size_t i = 1; i < kKnown.size(); ++i) {
    const auto& [from, least] = kKnown[i - 1];
    const auto& [to, most] = kKnown[i];
    if (size <= to) return {least + (most - least) * (size - from) / (to - from)};
  }
  return {kKnown.back().second};
}

/// Why Varuna cannot run the user's plan.
std::optional<models::Infeasible> tensor_parallelism(const ir::Plan& plan) {
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (std::size_t s = 0; s < pipeline.stages.size(); ++s) {
      for (const ir::Segment& segment : pipeline.stages[s].segments) {
        for (const ir::Group& group : segment.groups) {
          if (group.tensor_parallel == 1) continue;
          return models::Infeasible{
              "tensor parallelism",
              fmt::format("Varuna has none, stage {} of the plan has degree {}", s,
                          group.tensor_parallel)};
        }
      }
    }
  }
  return std::nullopt;
}

class VarunaMorphing final : public CheckpointedPolicy {
 public:
  using Settings = VarunaMorphingSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = location_problem(input.cluster, ir::Location::cloud)) return *problem;
    if (input.plan) {
      if (auto problem = tensor_parallelism(*input.plan)) return *problem;
    }
    VarunaMorphingSettings own = s;
    Stall& restart = own.checkpointed.phases.reinitialize;
    if (restart.duration.value < 0) restart.duration = published_restart(input.workload);
    own.interval =
        chosen(s.interval, {CheckpointInterval::Rule::young, {}}, s.checkpointed.phases.constants);
    return std::make_unique<VarunaMorphing>(input, own);
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
    const CheckpointTimes times{stall, stall + cloud.persist, restart_estimate(plan)};
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
    .deviations = "the time of a checkpoint is a closed form of the links; the published restart "
                  "time is interpolated between the models that Oobleck's authors measured",
});

}  // namespace orrery::planners
