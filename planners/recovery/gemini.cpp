// Gemini: checkpoints in the host memory of several nodes, as often as idle network time allows,
// every iteration at best. After a loss the state comes from the node's own or from a peer's host
// memory; when all replicas of a shard are lost, from the cloud. [Gemini, Wang et al., SOSP 2023]
#include <string>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointed.h"

namespace orrery::planners {

extern const RecoveryEntry kGeminiRecovery;

namespace {

struct GeminiSettings {
  CheckpointedSettings checkpointed = {
      .phases = {
          .detect = {{15},
                     "Seconds until a lost device is noticed where the trace does not say [Gemini, "
                     "Figure 14, unverified]."},
          .detect_exception = {{15},
                               "As detect, for failed processes [Gemini, Figure 14, unverified]."},
          .reinitialize = {
              {240},
              "Seconds of restart warm-up until training goes on, the retrieval of the state apart "
              "[Gemini, Figure 14: more than 4 min, unverified]."}}};
  InMemorySettings memory;
  OptionalInterval cloud_interval;
};

void describe(config::Visitor& v, GeminiSettings& s) {
  describe_checkpointed(v, s.checkpointed);
  describe_replicas(v, "replicas", s.memory, 1,
                    "Nodes that hold each share, the own one included [Gemini, 4.1].");
  v.optional("placement", s.memory.placement,
             "mixed: groups of nodes, the last one a ring [Gemini, Algorithm 1]; or ring.");
  v.optional("idle_share", s.memory.idle_share,
             "Share of the idle network time that checkpoint traffic may use [Gemini, 5].");
  v.between("idle_share", s.memory.idle_share, 0.001, 1.0);
  describe_gemini_cloud_interval(v, s.cloud_interval);
}

class Gemini final : public MemoryCloudPolicy {
 public:
  using Settings = GeminiSettings;
  Gemini(const PolicyInput& input, const Settings& s)
      : MemoryCloudPolicy(
            input, s.checkpointed,
            {.order = {StateSource::own_host, StateSource::peer_host, StateSource::cloud},
             .drops_nodes = true,
             .save_first = ir::Location::host_memory},
            s.memory, s.cloud_interval, kGeminiCloudInterval) {}
  std::string name() const override { return kGeminiRecovery.name; }
};

}  // namespace

constinit const RecoveryEntry kGeminiRecovery = recovery_entry<Gemini>({
    .name = "gemini",
    .source = "Gemini (Wang et al., SOSP 2023), 4 to 6",
    .recovers =
        "restarts from checkpoints in the host memory of several nodes; else from the cloud",
    .needs = "any plan; host memory for the shares of `replicas` nodes",
    .loses = "one iteration where idle network time allows a checkpoint each, while a replica of "
             "each share survives; else back to the cloud's",
    .slow = kLeavesOutSlowDevices,
    .deviations = "a spare or a smaller plan takes the place of lost machines, where Gemini waits "
                  "for new ones; idle network time is taken from the breakdown of a simulated "
                  "iteration, not from profiled gaps, and traffic is not placed into them: copies "
                  "to peers and uploads to the cloud are spread evenly over an iteration and slow "
                  "it",
});

}  // namespace orrery::planners
