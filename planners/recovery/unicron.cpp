// Unicron: a ladder of answers by severity. A failed process is restarted in place; after the loss
// of a node the job continues with what is left at once. State comes from the nearest replica: GPU
// of a data-parallel peer, host memory, disk, cloud. Detection is in-band: node, process,
// exception. [Unicron, He et al. 2023, arXiv 2401.00134, sections 4 to 6] Deviation: partial
// gradients of the iteration in flight are not reused: training resumes from finished iterations
// only, so that iteration is lost; and when the job itself fails, GPU memory is lost with it. One
// job has the cluster, so that the weighted sum over jobs is its speed.
#include <string>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kUnicronRecovery;

namespace {

struct UnicronSettings {
  CheckpointedSettings checkpointed = {
      .phases = {
          .detect = {{5.6},
                     "Seconds until a lost device is noticed where the trace does not say: node "
                     "health monitoring [Unicron, Table 2, unverified]."},
          .detect_exception =
              {{1.8},
               "Seconds until a failed process is noticed: process supervision; an exception that "
               "the process reports takes 0.3 [Unicron, Table 2, unverified]."},
          .reinitialize = {{5},
                           "Seconds to build new communicators: below 5 s on 2,048 GPUs; Unicron "
                           "names no figure "
                           "of its own [MegaScale, Jiang et al., NSDI 2024, unverified]."}}};
  Stall restart_process = {
      {27.2},
      "Seconds to start a failed process again in place; Unicron gives none: a requeue of 5 min "
      "[Kokolis et al. 2025] over 11.04 [ByteRobust, in-place update, unverified]; derived."};
  InMemorySettings memory;
  OptionalInterval cloud_interval;
};

void describe(config::Visitor& v, UnicronSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  describe_stall(v, "restart_process", s.restart_process);
  describe_replicas(v, "memory_replicas", s.memory, 0,
                    "Nodes that hold each share in host memory, the own one included: Unicron's "
                    "checkpoints are Gemini's; 0: none.");
  describe_gemini_cloud_interval(v, s.cloud_interval);
}

class Unicron final : public MemoryCloudPolicy {
 public:
  using Settings = UnicronSettings;
  Unicron(const PolicyInput& input, const Settings& s)
      : MemoryCloudPolicy(
            input, s.checkpointed,
            {.order = {StateSource::own_gpu, StateSource::peer_gpu, StateSource::own_host,
                       StateSource::peer_host, StateSource::own_nvme, StateSource::peer_nvme,
                       StateSource::cloud},
             .restart_processes = s.restart_process,
             .bring_up = {.processes = Processes::stay}},
            s.memory, s.cloud_interval, kGeminiCloudInterval) {}
  std::string name() const override { return kUnicronRecovery.name; }
};

}  // namespace

constinit const RecoveryEntry kUnicronRecovery = recovery_entry<Unicron>({
    .name = "unicron",
    .source = "Unicron (arXiv 2401.00134), 4 to 6",
    .recovers = "by severity: starts a failed process again, or goes on at once with the best plan "
                "for what is left; state from the nearest holder",
    .needs = "any plan; data-parallel replicas make GPU memory enough",
    .loses = "the iteration in flight, while each share has a holder",
    .slow = kLeavesOutSlowDevices,
    .deviations = "the ladder has no retry rung: a failed process is started again at once; "
                  "partial gradients of the iteration in flight are not reused, it is lost; GPU "
                  "memory is lost when the job itself fails; one job has the cluster, so that the "
                  "weighted sum over jobs is its speed",
});

}  // namespace orrery::planners
