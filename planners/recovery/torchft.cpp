// torchft and fault-tolerant HSDP: only the replica that lost a device stops, the others go on
// without it, and it joins again with the weights of a live peer as soon as its devices are back.
// [torchft, pytorch.org; FT-HSDP, arXiv 2602.00277]
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "planners/kit/options.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/replica_planner.h"
#include "planners/recovery/kit/unit_chains.h"

namespace orrery::planners {

extern const RecoveryEntry kTorchftRecovery;

namespace {

std::vector<OptionInfo> options() {
  PhaseDefaults phases;
  phases.detect = {"5",
                   "Seconds until a lost replica is noticed where the trace does not say: "
                   "heartbeat timeout of the lighthouse [torchft, unverified]."};
  phases.detect_exception = {"5", "As detect, for failed processes [torchft, unverified]."};
  phases.reinitialize = {
      "5",
      "Seconds until the others commit again: quorum and new process groups [torchft, unverified; "
      "FT-HSDP reports a stall of 180 s in all on about 100,000 GPUs]. The quorum of undisturbed "
      "steps overlaps their forward pass and is not charged."};
  phases.restart = kRestart;
  std::vector<OptionInfo> all = phase_options(phases);
  const std::vector<OptionInfo> more = {
      {"planner", "megatron_grid",
       "Who makes the first plan, and a new one when no replica is left: a name of the catalog of "
       "planners."},
      {"rejoin", "5",
       "Seconds for all when a replica joins: quorum and new process groups, without the transfer "
       "of weights [torchft, unverified]."},
      {"checkpoint_interval", "young",
       "Seconds between checkpoints to the cloud, young, daly, availability, tuned, or never."},
  };
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

class Torchft final : public ElasticPolicy {
 public:
  Torchft(const PolicyInput& input, ElasticStalls stalls, std::string interval,
          const std::string& planner)
      : ElasticPolicy(input, std::move(stalls), std::move(interval)), planner_(input, planner) {}

  std::string name() const override { return kTorchftRecovery.name; }

 protected:
  std::variant<models::PlanPointer, models::Infeasible> fresh(
      const std::vector<DeviceId>& live) const override {
    return planner_.plan_for(live);
  }

  /// Deviation: torchft commits a step with fewer samples. A plan takes the job's whole batch, so
  /// that the others share out what the lost replica leaves: the same samples per second but for
  /// fixed costs of a step. The step in flight is lost, torchft would commit it.
  std::variant<ElasticChange, models::Infeasible> shrink(
      const models::JobState& state, const std::vector<DeviceId>& live) const override {
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

 private:
  ReplicaPlanner planner_;
};

std::variant<std::unique_ptr<models::RecoveryPolicy>, PlannerEntry::BadOption, models::Infeasible>
make(const PolicyInput& input, const Options& given) {
  OptionReader reader(options(), given);
  const std::string planner = reader.text("planner");
  ElasticStalls stalls;
  stalls.phases = read_phases(reader, options());
  stalls.gain = stall_option(reader, options(), "rejoin");
  const std::string interval = reader.text("checkpoint_interval");
  if (reader.problem()) return *reader.problem();
  if (const std::string problem = checkpoint_interval_problem(interval); !problem.empty()) {
    return PlannerEntry::BadOption{"checkpoint_interval", problem};
  }
  if (const std::string problem = ReplicaPlanner::planner_problem(planner); !problem.empty()) {
    return PlannerEntry::BadOption{"planner", problem};
  }
  if (auto problem = ReplicaPlanner::job_problem(input.job)) return *problem;
  return std::make_unique<Torchft>(input, std::move(stalls), interval, planner);
}

}  // namespace

const RecoveryEntry kTorchftRecovery = {
    "torchft",
    "torchft (PyTorch) and FT-HSDP (arXiv 2602.00277)",
    "the replica that lost a device stops, the others go on; it joins again with a peer's weights",
    "ZeRO off between replicas; two pipelines at least, with micro-batches of one size",
    "the iteration in flight; what came after the last checkpoint once no replica is left",
    "trains on at the pace of the slowest device",
    "a plan takes the whole batch, so that the others share out a lost replica's micro-batches, "
    "where torchft commits a step with fewer samples; the iteration in flight is lost, where "
    "torchft commits it; all replicas stop while one that joins loads its weights, where only the "
    "peer that sends them is busy; the quorum costs time at changes of membership only; a lost "
    "replica starts on spare devices when devices come, not at the loss; asynchronous persists and "
    "uploads do not slow iterations unless background transfers are simulated",
    options,
    make,
};

}  // namespace orrery::planners
