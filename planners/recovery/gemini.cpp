// Gemini: checkpoints in the host memory of several nodes, as often as idle network time allows,
// every iteration at best. After a loss the state comes from the own or from a peer's host memory;
// when all replicas of a share are gone, from the cloud. [Gemini, Wang et al., SOSP 2023]
#include <fmt/format.h>

#include <memory>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/checkpointed.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/in_memory.h"

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
  phases.reinitialise = {
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
  all.push_back({"cloud_interval", "10800",
                 "Seconds between checkpoints to the cloud, or a rule as young; 3 h, as for BLOOM "
                 "[Gemini, 7.1, unverified]. Without object storage there are none."});
  return all;
}

class Gemini final : public CheckpointedPolicy {
 public:
  Gemini(const PolicyInput& input, CheckpointedRules rules, InMemoryOptions memory,
         std::string cloud_interval)
      : CheckpointedPolicy(input, std::move(rules)),
        memory_(memory),
        cloud_interval_(std::move(cloud_interval)) {}
  std::string name() const override { return kGeminiRecovery.name; }
  std::vector<models::CheckpointLevel> checkpoints(const ir::Plan& plan,
                                                   Seconds iteration_time) const override {
    auto levels = in_memory_levels(input(), plan, iteration_time, memory_);
    const auto cloud = cloud_checkpoint(input(), cloud_interval_, plan,
                                        rules().phases.reinitialise.duration, iteration_time);
    levels.insert(levels.end(), cloud.begin(), cloud.end());
    return levels;
  }

 private:
  InMemoryOptions memory_;
  std::string cloud_interval_;
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  InMemoryOptions memory;
  memory.replicas = static_cast<int>(reader.integer("replicas", 1, 1'000));
  memory.placement = reader.choice<ReplicaPlacement>(
      "placement", {{"mixed", ReplicaPlacement::mixed}, {"ring", ReplicaPlacement::ring}});
  memory.idle_share = reader.number("idle_share", 0.001, 1);
  const std::string cloud_interval = reader.text("cloud_interval");
  if (const auto problem = checkpoint_interval_problem(cloud_interval); !problem.empty()) {
    return PlannerEntry::BadOption{"cloud_interval", problem};
  }
  auto read = read_checkpointed(reader, options());
  if (auto* bad = std::get_if<PlannerEntry::BadOption>(&read)) return std::move(*bad);
  auto rules = std::get<CheckpointedRules>(std::move(read));
  rules.drops_nodes = true;
  rules.save_first = ir::Location::host_memory;
  rules.order = {StateSource::own_host, StateSource::peer_host, StateSource::cloud};
  return std::make_unique<Gemini>(input, std::move(rules), memory, cloud_interval);
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
    options,
    make,
};

}  // namespace orrery::planners
