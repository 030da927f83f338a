// Gemini: checkpoints in the host memory of several nodes, as often as idle network time allows,
// every iteration at best. After a loss the state comes from the own or from a peer's host memory;
// when all replicas of a share are gone, from the cloud. [Gemini, Wang et al., SOSP 2023]
#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/memory_cloud.h"

namespace orrery::planners {

extern const RecoveryEntry kGeminiRecovery;

namespace {

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.detect = {"15",
                   "Seconds until a lost device is noticed where the trace does not say [Gemini, "
                   "Figure 14, unverified]."};
  phases.detect_exception = {"15",
                             "As detect, for failed processes [Gemini, Figure 14, unverified]."};
  phases.reinitialize = {
      "240",
      "Seconds of restart warm-up until training goes on, the retrieval of the state apart "
      "[Gemini, Figure 14: more than 4 min, unverified]."};
  std::vector<OptionInfo> all = checkpointed_options(phases);
  all.push_back(
      {"replicas", "2", "Nodes that hold each share, the own one included [Gemini, 4.1]."});
  all.push_back({"placement", "mixed",
                 "mixed: groups of nodes, the last one a ring [Gemini, Algorithm 1]; or ring."});
  all.push_back({"idle_share", "1",
                 "Share of the idle network time that checkpoint traffic may use [Gemini, 5]."});
  all.push_back(kGeminiCloudInterval);
  return all;
}

class Gemini final : public MemoryCloudPolicy {
 public:
  Gemini(const PolicyInput& input, MemoryCloudOptions options)
      : MemoryCloudPolicy(input, std::move(options.rules), std::move(options.settings)) {}
  std::string name() const override { return kGeminiRecovery.name; }
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  const auto placement = reader.choice<ReplicaPlacement>(
      "placement", {{"mixed", ReplicaPlacement::mixed}, {"ring", ReplicaPlacement::ring}});
  const double idle_share = reader.number("idle_share", 0.001, 1);
  auto read = read_memory_cloud(reader, options(), "replicas", 1);
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto both = std::get<MemoryCloudOptions>(std::move(read));
  both.settings.memory.placement = placement;
  both.settings.memory.idle_share = idle_share;
  both.rules.drops_nodes = true;
  both.rules.save_first = ir::Location::host_memory;
  both.rules.order = {StateSource::own_host, StateSource::peer_host, StateSource::cloud};
  return std::make_unique<Gemini>(input, std::move(both));
}

}  // namespace

const RecoveryEntry kGeminiRecovery = {
    "gemini",
    "Gemini (Wang et al., SOSP 2023), 4 to 6",
    "restarts from checkpoints in the host memory of several nodes; else from the cloud",
    "any plan; host memory for the shares of `replicas` nodes",
    "one iteration where idle network time allows a checkpoint each, while a replica of each share "
    "survives; else back to the cloud's",
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it",
    "a spare or a smaller plan takes the place of lost machines, where Gemini waits for new ones; "
    "idle network time is taken from the breakdown of a simulated iteration, not from profiled "
    "gaps, and traffic placed there never delays training: copies to peers and uploads to the "
    "cloud do not slow iterations unless background transfers are "
    "simulated, which spreads them evenly over an iteration",
    options,
    make,
};

}  // namespace orrery::planners
