#include "tools/commands/execute_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "models/check/validate.h"
#include "models/spec/topology.h"
#include "planners/recovery/catalog.h"
#include "sim/replay/simulated_timers.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {
namespace {

/// Speed of a checkpoint folder where the cluster file has no storage or NVMe. Policies that choose
/// between stalls see it; the run itself is as fast as the folder. [choice: a disk of a cloud VM]
constexpr BytesPerSecond kFolderSpeed{1e9};
/// Checkpoints that are kept. [executor/launcher/checkpoint.cpp]
constexpr std::int64_t kKeptCheckpoints = 3;

/// The cluster with the run's checkpoint folders as its object storage and NVMe, as far as it has
/// none.
models::Cluster with_folders(models::Cluster cluster, const PolicyQuestion& question) {
  if (question.cloud && !cluster.storage) {
    cluster.storage = models::ObjectStorage{kFolderSpeed, models::BandwidthScope::shared, {}};
  }
  for (models::Node& node : cluster.nodes) {
    if (!question.local || node.nvme_write.value > 0) continue;
    node.nvme_read = node.nvme_write = kFolderSpeed;
    node.nvme_capacity = Bytes{std::numeric_limits<double>::max()};
  }
  return cluster;
}

/// A policy that can read checkpoints from either place reads them from where they are.
planners::Options policy_options(const planners::RecoveryEntry& policy,
                                 const PolicyQuestion& question) {
  if (!question.local || question.cloud) return {};
  for (const planners::OptionInfo& option : policy.options()) {
    if (std::string(option.name) == "location") return {{"location", "nvme"}};
  }
  return {};
}

}  // namespace

class PolicyServer::Impl {
 public:
  Impl(const experiments::LoadedRun& run, const PolicyQuestion& question)
      : run_(run),
        question_(question),
        cluster_(with_folders(run.cluster, question)),
        topology_(cluster_, run.profile),
        timers_(cluster_, topology_, run.workload, run.spec.job, run.profile),
        input_{.cluster = cluster_,
               .topology = topology_,
               .workload = run.workload,
               .job = run.spec.job,
               .profile = run.profile,
               .evaluator = timers_.evaluator(),
               .plan = run.plan,
               .seed = question.seed},
        plan_(std::make_shared<ir::Plan>(*run.plan)),
        plans_{{0, plan_}} {
    const planners::RecoveryEntry& entry = *planners::find_policy(question.policy);
    auto made = entry.make(input_, policy_options(entry, question));
    if (const auto* infeasible = std::get_if<models::Infeasible>(&made)) {
      throw std::runtime_error(fmt::format("{} ({})", infeasible->constraint, infeasible->witness));
    }
    policy_ = std::move(std::get<std::unique_ptr<models::RecoveryPolicy>>(made));
    require_runnable_plans();
  }

  Answer answer(const executor::LostDevices& lost) {
    Answer given = decide(lost);
    if (!given.problem.empty()) return given;
    if (!question_.out.empty()) write_later_plan(question_.out, lost.generation + 1, *plan_);
    given.what = fmt::format("{}: {} ({} devices)", question_.policy, given.what,
                             ir::working_devices(*plan_).size());
    return given;
  }

  std::string find_unanswered_loss() {
    const models::PlanPointer plan = plan_;
    const std::int64_t switched_after = switched_after_;
    const auto plans = plans_;
    std::string found;
    executor::LostDevices lost;
    lost.live = question_.devices;
    const std::vector<WantedLoss>& losses = question_.losses;
    for (auto at = losses.begin(); at != losses.end() && found.empty();) {
      lost.lost.clear();
      lost.last_step = at->step - 1;
      lost.switched_after = newest_switch(lost);
      follow_switch(lost);
      const std::vector<DeviceId> working = ir::working_devices(*plan_);
      for (; at != losses.end() && at->step == lost.last_step + 1; ++at) {
        const bool works = std::find(working.begin(), working.end(), at->device) != working.end();
        if (works && std::erase(lost.live, at->device) > 0) lost.lost.push_back(at->device);
      }
      if (lost.lost.empty()) continue;  // It does not strike.
      std::sort(lost.lost.begin(), lost.lost.end());
      if (const std::string why = decide(lost).problem; !why.empty()) {
        std::vector<std::int32_t> names;
        for (const DeviceId device : lost.lost) names.push_back(device.value);
        found = fmt::format("without {} {} from step {} on: {}",
                            names.size() == 1 ? "device" : "devices", fmt::join(names, ", "),
                            lost.last_step + 1, why);
      }
      ++lost.generation;
    }
    plan_ = plan;
    plans_ = plans;
    switched_after_ = switched_after;
    return found;
  }

 private:
  /// The last switch that is made by then: the executor leaves out those that need a lost device.
  std::int64_t newest_switch(const executor::LostDevices& lost) const {
    std::int64_t step = switched_after_;
    for (const PlanSwitch& one : question_.switches) {
      const std::vector<DeviceId> devices = ir::working_devices(*one.plan);
      const bool lives =
          std::includes(lost.live.begin(), lost.live.end(), devices.begin(), devices.end());
      if (lives && one.step > step && one.step <= lost.last_step) step = one.step;
    }
    return step;
  }

  /// What runs after a planned switch is its plan.
  void follow_switch(const executor::LostDevices& lost) {
    for (const PlanSwitch& one : question_.switches) {
      if (one.step <= switched_after_ || one.step > lost.switched_after) continue;
      plan_ = one.plan;
      plans_.emplace_back(one.step, plan_);
      switched_after_ = one.step;
    }
  }

  /// The same with the policy's bare reason; `plan_` is the plan to go on with.
  Answer decide(const executor::LostDevices& lost) {
    follow_switch(lost);
    std::string reason = "all processes live: the same plan again";
    if (!lost.lost.empty()) {
      ir::ClusterEvent event;
      event.kind = ir::EventKind::fail;
      event.scope.devices = lost.lost;
      event.cause = "process lost";
      const std::vector<ir::ClusterEvent> events = {event};
      const models::RecoveryDecision decision = policy_->on_events(state(lost), events);
      reason = decision.reason;
      if (decision.action == models::RecoveryDecision::Action::resume &&
          decision.resume_iteration < lost.last_step) {
        reason +=
            "; the executor takes the newest complete state that survivors or checkpoints "
            "have";
      }
      using Action = models::RecoveryDecision::Action;
      if (decision.action == Action::wait) {
        return {fmt::format("{} has no plan: {}", question_.policy, reason), {}, {}};
      }
      if (decision.action == Action::resume) {
        plan_ = decision.plan;
        plans_.emplace_back(lost.last_step, plan_);
      }
    }
    for (const DeviceId device : ir::working_devices(*plan_)) {
      if (std::binary_search(lost.live.begin(), lost.live.end(), device)) continue;
      return {
          fmt::format("{} wants device {}, which is lost", question_.policy, device.value), {}, {}};
    }
    for (const models::PlanDefect& defect :
         models::validate(*plan_, run_.cluster, run_.workload, run_.spec.job)) {
      return {fmt::format("the plan of {}: {}: {}", question_.policy, defect.path, defect.what),
              {},
              {}};
    }
    ExecutableProgram lowered = lower_for_ranks(run_, *plan_, question_.seed);
    if (!lowered.problems.empty()) {
      return {
          fmt::format("the plan of {}: {}", question_.policy, lowered.problems.front()), {}, {}};
    }
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    return {{}, reason, std::move(lowered.program)};
  }

  /// A policy all of whose plans have what the executor lacks is told from the plan that it would
  /// begin with. Throws std::runtime_error.
  void require_runnable_plans() const {
    std::vector<DeviceId> all;
    for (const models::Device& device : run_.cluster.devices) all.push_back(device.id);
    const auto first = policy_->first_plan(all);
    const auto* plan = std::get_if<models::PlanPointer>(&first);
    if (plan == nullptr) return;
    const ExecutableProgram lowered = lower_for_ranks(run_, **plan, question_.seed);
    if (lowered.problems.empty()) return;
    throw std::runtime_error(fmt::format("plans of its kind: {}", lowered.problems.front()));
  }

  models::JobState state(const executor::LostDevices& lost) const {
    models::JobState state;
    state.iteration = lost.last_step;
    state.plan = plan_;
    state.live = lost.live;
    models::StateReplica memory{lost.last_step, ir::Location::peer, plan_, {}, {}};
    const std::vector<DeviceId> devices = ir::devices_of(*plan_);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (!std::binary_search(lost.live.begin(), lost.live.end(), devices[i])) {
        memory.lost_shards.push_back(static_cast<std::uint32_t>(i));
      }
    }
    state.replicas.push_back(memory);
    // Survivors copy what they have to host memory when a generation ends.
    memory.location = ir::Location::host_memory;
    state.replicas.push_back(memory);
    add_checkpoints(lost, state.replicas);
    state.iteration_time = timers_.iterations().time(*plan_);
    return state;
  }

  /// Those that are kept, newest first. Whether files of the newest one are torn is known to who
  /// reads them, and so is whether the agent of a node without ranks is there to serve its folder:
  /// here it is.
  void add_checkpoints(const executor::LostDevices& lost,
                       std::vector<models::StateReplica>& copies) const {
    const std::int64_t every = question_.checkpoint_every;
    if (every <= 0 || lost.live.empty()) return;
    std::int64_t step = lost.last_step - lost.last_step % every;
    for (std::int64_t kept = 0; kept < kKeptCheckpoints && step > 0; ++kept, step -= every) {
      const auto after = std::find_if(plans_.rbegin(), plans_.rend(),
                                      [&](const auto& one) { return one.first < step; });
      const models::PlanPointer& written = after->second;
      if (question_.local) {
        models::StateReplica copy{step, ir::Location::nvme, written, {}, {}};
        for (const DeviceId device : ir::devices_of(*written)) {
          const bool lives = std::binary_search(lost.live.begin(), lost.live.end(), device);
          copy.stored_on.push_back(lives ? device : lost.live.front());
        }
        copies.push_back(std::move(copy));
      }
      if (question_.cloud) copies.push_back({step, ir::Location::cloud, written, {}, {}});
    }
  }

  const experiments::LoadedRun& run_;
  const PolicyQuestion& question_;
  models::Cluster cluster_;  ///< For the policy; programs and plans are of the run's own.
  models::Topology topology_;
  sim::SimulatedTimers timers_;
  planners::PolicyInput input_;
  std::unique_ptr<models::RecoveryPolicy> policy_;
  models::PlanPointer plan_;
  /// The plans so far, each with the last step before it.
  std::vector<std::pair<std::int64_t, models::PlanPointer>> plans_;
  std::int64_t switched_after_ = 0;  ///< Step of the last planned switch.
};

PolicyServer::PolicyServer(const experiments::LoadedRun& run, const PolicyQuestion& question)
    : impl_(std::make_unique<Impl>(run, question)) {}

PolicyServer::~PolicyServer() = default;

PolicyServer::Answer PolicyServer::answer(const executor::LostDevices& lost) {
  return impl_->answer(lost);
}

std::string PolicyServer::find_unanswered_loss() { return impl_->find_unanswered_loss(); }

std::vector<WantedLoss> wanted_losses(const executor::LaunchOptions& options) {
  std::vector<WantedLoss> losses;
  for (const executor::FaultInjection& fault : options.settings.faults) {
    losses.push_back({{fault.device}, fault.step});
  }
  std::stable_sort(losses.begin(), losses.end(),
                   [](const WantedLoss& a, const WantedLoss& b) { return a.step < b.step; });
  return losses;
}

std::string assumed_storage(const models::Cluster& cluster, const PolicyQuestion& question) {
  const bool cloud = question.cloud && !cluster.storage;
  const bool local =
      question.local && std::any_of(cluster.nodes.begin(), cluster.nodes.end(),
                                    [](const auto& n) { return n.nvme_write.value <= 0; });
  if (!cloud && !local) return {};
  return fmt::format("policy {} counts {} as {:g} GB/s, which the cluster file does not say",
                     question.policy,
                     cloud && local ? "--checkpoints and --cloud"
                     : cloud        ? "--cloud"
                                    : "--checkpoints",
                     kFolderSpeed.value / 1e9);
}

}  // namespace orrery::tools
