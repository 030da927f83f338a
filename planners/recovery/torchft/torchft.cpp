// torchft and fault-tolerant HSDP: only the replica that lost a device stops, the others go on
// without it, and it joins again with the weights of a live peer as soon as its devices are back.
// [torchft, pytorch.org; FT-HSDP, arXiv 2602.00277]
#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/replica_planner.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/torchft/replicas.h"

namespace orrery::planners {

extern const RecoveryEntry kTorchftRecovery;

namespace {

struct TorchftSettings {
  Phases phases = {
      .detect = {{5},
                 "Seconds until a lost replica is noticed where the trace does not say: "
                 "heartbeat timeout of the lighthouse [torchft, unverified]."},
      .detect_exception = {{5}, "As detect, for failed processes [torchft, unverified]."},
      .reinitialize =
          {{5},
           "Seconds until the others commit again: quorum and new process groups [torchft, "
           "unverified; FT-HSDP reports a stall of 180 s in all on about 100,000 GPUs]. The quorum "
           "of undisturbed steps overlaps their forward pass and is not charged."},
      .restart = kRestart};
  std::string planner = "megatron_grid";
  Spares spares = Spares::leave;
  Stall rejoin = {{5},
                  "Seconds for all when a replica joins: quorum and new process groups, without "
                  "the transfer of weights [torchft, unverified]."};
  OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, TorchftSettings& s) {
  describe_phases(v, s.phases);
  describe_planner(v, s.planner,
                   "Who makes the first plan, and a new one when no replica is left: a name of "
                   "the catalog of planners.");
  describe_spares(v, s.spares);
  describe_stall(v, "rejoin", s.rejoin);
  describe_checkpoint_interval(v, s.checkpoint_interval);
}

class Torchft final : public ElasticPolicy {
 public:
  using Settings = TorchftSettings;
  static MadePolicy make(const PolicyInput& input, const Settings& s) {
    if (auto problem = ReplicaPlanner::job_problem(input.job)) return *problem;
    return std::make_unique<Torchft>(input, s);
  }
  Torchft(const PolicyInput& input, const Settings& s)
      : ElasticPolicy(input, s.phases, s.checkpoint_interval),
        planner_(input, s.planner),
        planner_name_(s.planner),
        spares_(s.spares),
        rejoin_stall_(settled(s.rejoin, s.phases.constants)) {}

  std::string name() const override { return kTorchftRecovery.name; }

 protected:
  FoundPlan fresh(const std::vector<DeviceId>& live) const override {
    return planner_.plan_for(live);
  }

  /// Deviation: torchft commits a step with fewer samples. A plan takes the job's whole batch, so
  /// that the other replicas share the lost one's micro-batches: the same samples per second but
  /// for fixed costs of a step. The step in flight is lost, torchft would commit it.
  FoundChange shrink(const models::JobState& state,
                     const std::vector<DeviceId>& live) const override {
    auto left = surviving_pipelines(*state.plan, input().cluster, live);
    if (auto* plan = std::get_if<ir::Plan>(&left)) {
      const std::string problem = problem_of(input(), *plan);
      if (problem.empty()) {
        std::string what = fmt::format("{} of {} replicas go on", plan->pipelines.size(),
                                       state.plan->pipelines.size());
        return ElasticChange{std::make_shared<const ir::Plan>(std::move(*plan)), std::move(what)};
      }
      return models::Infeasible{"surviving replicas", problem};
    }
    return std::get<models::Infeasible>(std::move(left));
  }

  std::optional<ElasticChange> grow(const models::JobState& state,
                                    const std::vector<DeviceId>& live) const override {
    ir::Plan plan = *state.plan;
    const int added = add_pipelines(plan, state.first.get(), input().cluster, live);
    if (added == 0 || !problem_of(input(), plan).empty()) return std::nullopt;
    return ElasticChange{std::make_shared<const ir::Plan>(std::move(plan)),
                         fmt::format("{} replica(s) join", added)};
  }

  Stall stall_of(const models::JobState&, const ir::Plan&, bool planned) const override {
    return planned ? rejoin_stall_ : phases().reinitialize;
  }

  std::string planner() const override { return planner_name_; }
  bool takes_spares() const override { return spares_ == Spares::take; }

 private:
  ReplicaPlanner planner_;
  std::string planner_name_;
  Spares spares_;
  Stall rejoin_stall_;
};

}  // namespace

constinit const RecoveryEntry kTorchftRecovery = recovery_entry<Torchft>({
    .name = "torchft",
    .source = "torchft (PyTorch) and FT-HSDP (arXiv 2602.00277)",
    .recovers = "the replica that lost a device stops, the others go on; it joins again with a "
                "peer's weights",
    .needs = "ZeRO off between replicas; two pipelines at least, with micro-batches of one size",
    .loses = "the iteration in flight; what came after the last checkpoint once no replica is left",
    .slow = kKeepsSlowDevices,
    .deviations = "a plan takes the whole batch, so that the others share out a lost replica's "
                  "micro-batches, where torchft commits a step with fewer samples; the iteration "
                  "in flight is lost, where torchft commits it; all replicas stop while one that "
                  "joins loads its weights, where only the peer that sends them is busy; the "
                  "quorum costs time at changes of membership only; a lost replica starts on spare "
                  "devices when devices come, with spares=take also right after the loss",
});

}  // namespace orrery::planners
