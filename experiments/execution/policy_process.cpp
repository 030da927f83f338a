#include "experiments/execution/policy_process.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

#include "executor/net/socket.h"
#include "executor/net/transport.h"
#include "experiments/execution/rank_job.h"
#include "experiments/execution/run_inputs.h"
#include "models/base/check.h"
#include "models/base/subprocess.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/ir/wire.h"
#include "models/spec/topology.h"
#include "planners/recovery/catalog.h"
#include "sim/replay/simulated_timers.h"

namespace orrery::experiments {
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

/// The policy and the plan that runs, in the process that answers.
class PolicyServer {
 public:
  struct Answer {
    std::string problem;  ///< Why there is no program; empty: there is one.
    std::string what;     ///< The policy's words, one line.
    ir::Program program;
  };

  /// Keeps both references. Throws std::runtime_error if the policy cannot serve this job on this
  /// cluster.
  PolicyServer(const LoadedRun& run, const PolicyQuestion& question)
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

  /// Writes the plan to the run's folder, if it has one.
  Answer answer(const executor::LostDevices& lost) {
    Answer given = decide(lost);
    if (!given.problem.empty()) return given;
    if (!question_.out.empty()) write_later_plan(question_.out, lost.generation + 1, *plan_);
    given.what = fmt::format("{}: {} ({} devices)", question_.policy, given.what,
                             ir::working_devices(*plan_).size());
    return given;
  }

  /// What keeps the run from going on after the losses that the question names; empty: nothing.
  /// Later answers do not know of it.
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

  const LoadedRun& run_;
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

/// A policy may search for a plan; longer than this the run does not wait.
constexpr int kPatience = 600;

/// Only where a signal comes between: the sockets block.
executor::SteadyTime patience() {
  return std::chrono::steady_clock::now() + std::chrono::seconds(kPatience);
}

/// A message is its length and its bytes. Throw TransportError when the other side has ended.
void send(const executor::Socket& link, const std::string& text) {
  const std::uint64_t size = text.size();
  executor::write_all(link, std::as_bytes(std::span(&size, 1)), patience(), -1);
  executor::write_all(link, std::as_bytes(std::span(text)), patience(), -1);
}

std::string receive(const executor::Socket& link) {
  std::uint64_t size = 0;
  executor::read_all(link, std::as_writable_bytes(std::span(&size, 1)), patience(), -1);
  std::string text(size, '\0');
  executor::read_all(link, std::as_writable_bytes(std::span(text)), patience(), -1);
  return text;
}

/// True when something is to be read before patience ends or `waits` says so.
bool await(const executor::Socket& link, const PolicyProcess::Waits& waits) {
  for (int seconds = 0; seconds < kPatience && waits(seconds); ++seconds) {
    pollfd entry{link.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 1000) > 0) return true;
  }
  return false;
}

/// The first letter tells what follows: ok with a description, a newline and a program, a problem,
/// or a loss that the policy has no plan for.
constexpr char kOk = '+';
constexpr char kNoPlanForLoss = '!';

std::string problem(const std::string& what) { return "-" + what; }

/// Until the launcher ends.
void serve(const LoadedRun& run, const PolicyQuestion& question, const executor::Socket& link) {
  PolicyServer server(run, question);
  const std::string loss = server.find_unanswered_loss();
  send(link, loss.empty() ? std::string(1, kOk) : kNoPlanForLoss + loss);
  for (;;) {
    config::Diagnostics none;
    const auto lost = config::load_text<executor::LostDevices>(receive(link), "question", none);
    ORRERY_CHECK(none.empty(), "question to a policy: {}", none.problems().front().what);
    try {
      const PolicyServer::Answer given = server.answer(lost);
      send(link, given.problem.empty() ? kOk + given.what + "\n" + ir::serialize(given.program)
                                       : problem(given.problem));
    } catch (const executor::TransportError&) {
      throw;
    } catch (const std::exception& error) {
      send(link, problem(error.what()));
    }
  }
}

}  // namespace

struct PolicyProcess::State {
  Subprocess child;
  executor::Socket link;
};

PolicyProcess::PolicyProcess(const LoadedRun& run, const PolicyQuestion& question,
                             const Waits& waits)
    : state_(std::make_unique<State>()) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw std::system_error(errno, std::generic_category(), "socketpair");
  }
  state_->link = executor::Socket(ends[0]);
  const executor::Socket own(ends[1]);
  SubprocessOptions options;
  options.body = [&] {
    state_->link.close();
    try {
      serve(run, question, own);
    } catch (const executor::TransportError&) {  // The launcher has ended.
    } catch (const std::exception& error) {
      send(own, problem(error.what()));
    }
    return 0;
  };
  options.signals = ChildSignals::ignore_interrupt;
  options.death_signal = SIGKILL;
  state_->child = Subprocess(options);
  bool wanted = true;
  const auto waits_on = [&](int seconds) { return wanted = waits(seconds); };
  if (!await(state_->link, waits_on)) {
    if (!wanted) return;
    throw std::runtime_error(
        fmt::format("policy {} is not ready after {} s", question.policy, kPatience));
  }
  const std::string ready = receive(state_->link);
  if (ready.front() != kOk) throw PolicyRefuses(ready.substr(1), ready.front() == kNoPlanForLoss);
}

PolicyProcess::~PolicyProcess() = default;

std::variant<executor::NextProgram, std::string> PolicyProcess::ask(
    const executor::LostDevices& lost, const Waits& waits) {
  try {
    send(state_->link, config::dump(lost));
    if (!await(state_->link, waits)) return "the planning process does not answer";
    const std::string answer = receive(state_->link);
    if (answer.front() != kOk) return answer.substr(1);
    const std::size_t line_end = answer.find('\n');
    auto program = ir::parse_program(std::string_view(answer).substr(line_end + 1));
    if (const auto* what = std::get_if<std::string>(&program)) return "the new program " + *what;
    return executor::NextProgram{std::move(std::get<ir::Program>(program)),
                                 answer.substr(1, line_end - 1)};
  } catch (const executor::TransportError&) {
    return "the planning process has ended";
  }
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

}  // namespace orrery::experiments
