#include "tools/commands/execute_recovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "models/check/validate.h"
#include "models/ir/wire.h"
#include "models/spec/topology.h"
#include "planners/recovery/catalog.h"
#include "sim/replay/simulated_timers.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {
namespace {

/// A policy may search for a plan; longer than this the run does not wait.
constexpr int kPatience = 600;

bool write_text(int fd, const std::string& text) {
  const std::uint64_t size = text.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes += text;
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::write(fd, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

bool read_exactly(int fd, char* into, std::size_t size, int patience_ms) {
  for (std::size_t at = 0; at < size;) {
    pollfd entry{fd, POLLIN, 0};
    const int ready = ::poll(&entry, 1, patience_ms);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return false;
    const ssize_t count = ::read(fd, into + at, size - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    at += static_cast<std::size_t>(count);
  }
  return true;
}

/// True when something is to be read before patience ends or `waits` says so.
bool await(int fd, const PlanningProcess::Waits& waits) {
  for (int seconds = 0; seconds < kPatience && waits(seconds); ++seconds) {
    pollfd entry{fd, POLLIN, 0};
    if (::poll(&entry, 1, 1000) > 0) return true;
  }
  return false;
}

std::optional<std::string> read_text(int fd, int patience_ms) {
  std::uint64_t size = 0;
  if (!read_exactly(fd, reinterpret_cast<char*>(&size), sizeof size, patience_ms)) {
    return std::nullopt;
  }
  std::string text(size, '\0');
  if (!read_exactly(fd, text.data(), text.size(), patience_ms)) return std::nullopt;
  return text;
}

std::string to_text(const executor::LostDevices& lost) {
  std::string text = fmt::format("{} {}\n", lost.last_step, lost.generation);
  for (const auto* devices : {&lost.lost, &lost.live}) {
    for (const DeviceId device : *devices) text += fmt::format("{} ", device.value);
    text += "\n";
  }
  return text;
}

executor::LostDevices lost_from(const std::string& text) {
  executor::LostDevices lost;
  std::istringstream lines(text);
  std::string line;
  lines >> lost.last_step >> lost.generation;
  std::getline(lines, line);
  for (auto* devices : {&lost.lost, &lost.live}) {
    std::getline(lines, line);
    std::istringstream words(line);
    for (std::int32_t device = 0; words >> device;) devices->push_back({device});
  }
  return lost;
}

/// The first letter tells what follows: ok with a description, a newline and a program, or a
/// problem.
constexpr char kOk = '+';

std::string problem(const std::string& what) { return "-" + what; }

/// Of a checkpoint folder where the cluster file has no storage or NVMe. Policies that choose
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

/// Lives in the planning process.
class PolicyServer {
 public:
  PolicyServer(const experiments::LoadedRun& run, const PolicyQuestion& question)
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
    if (const auto* bad = std::get_if<planners::PlannerEntry::BadOption>(&made)) {
      throw std::runtime_error(fmt::format("option '{}': {}", bad->name, bad->what));
    }
    if (const auto* infeasible = std::get_if<models::Infeasible>(&made)) {
      throw std::runtime_error(fmt::format("{} ({})", infeasible->constraint, infeasible->witness));
    }
    policy_ = std::move(std::get<std::unique_ptr<models::RecoveryPolicy>>(made));
    require_runnable_plans();
  }

  std::string answer(const executor::LostDevices& lost) {
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
        return problem(fmt::format("{} has no plan: {}", question_.policy, reason));
      }
      if (decision.action == Action::resume) {
        plan_ = decision.plan;
        plans_.emplace_back(lost.last_step, plan_);
      }
    }
    const std::vector<DeviceId> working = ir::working_devices(*plan_);
    for (const DeviceId device : working) {
      if (std::binary_search(lost.live.begin(), lost.live.end(), device)) continue;
      return problem(
          fmt::format("{} wants device {}, which is lost", question_.policy, device.value));
    }
    for (const models::PlanDefect& defect :
         models::validate(*plan_, run_.cluster, run_.workload, run_.spec.job)) {
      return problem(
          fmt::format("the plan of {}: {}: {}", question_.policy, defect.path, defect.what));
    }
    const ExecutableProgram lowered = lower_for_ranks(run_, *plan_, question_.seed);
    if (!lowered.problems.empty()) {
      return problem(fmt::format("the plan of {}: {}", question_.policy, lowered.problems.front()));
    }
    if (!question_.out.empty()) write_later_plan(question_.out, lost.generation + 1, *plan_);
    std::replace(reason.begin(), reason.end(), '\n', ' ');
    return kOk + fmt::format("{}: {} ({} devices)\n", question_.policy, reason, working.size()) +
           ir::serialise(lowered.program);
  }

 private:
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
    models::StateCopy memory{lost.last_step, ir::Location::peer, plan_, {}, {}};
    const std::vector<DeviceId> devices = ir::devices_of(*plan_);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (!std::binary_search(lost.live.begin(), lost.live.end(), devices[i])) {
        memory.gone.push_back(static_cast<std::uint32_t>(i));
      }
    }
    state.copies.push_back(memory);
    // Survivors copy what they have to host memory when a generation ends.
    memory.location = ir::Location::host_memory;
    state.copies.push_back(memory);
    add_checkpoints(lost, state.copies);
    state.iteration_time = timers_.iterations().time(*plan_, {}, {});
    return state;
  }

  /// Those that are kept, newest first. Whether files of the newest one are torn is known to who
  /// reads them, and so is whether the agent of a node without ranks is there to serve its folder:
  /// here it is.
  void add_checkpoints(const executor::LostDevices& lost,
                       std::vector<models::StateCopy>& copies) const {
    const std::int64_t every = question_.checkpoint_every;
    if (every <= 0 || lost.live.empty()) return;
    std::int64_t step = lost.last_step - lost.last_step % every;
    for (std::int64_t kept = 0; kept < kKeptCheckpoints && step > 0; ++kept, step -= every) {
      const auto after = std::find_if(plans_.rbegin(), plans_.rend(),
                                      [&](const auto& one) { return one.first < step; });
      const models::PlanPointer& written = after->second;
      if (question_.local) {
        models::StateCopy copy{step, ir::Location::nvme, written, {}, {}};
        for (const DeviceId device : ir::devices_of(*written)) {
          const bool lives = std::binary_search(lost.live.begin(), lost.live.end(), device);
          copy.holders.push_back(lives ? device : lost.live.front());
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
};

int serve(const experiments::LoadedRun& run, const PolicyQuestion& question, int in, int out) {
  try {
    PolicyServer server(run, question);
    if (!write_text(out, std::string(1, kOk))) return 1;
    while (const auto asked = read_text(in, -1)) {
      std::string answer;
      try {
        answer = server.answer(lost_from(*asked));
      } catch (const std::exception& error) {
        answer = problem(error.what());
      }
      if (!write_text(out, answer)) return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    write_text(out, problem(error.what()));
    return 1;
  }
}

}  // namespace

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

struct PlanningProcess::State {
  pid_t pid = -1;
  int to = -1;
  int from = -1;
  ~State() {
    if (to >= 0) ::close(to);
    if (from >= 0) ::close(from);
    if (pid <= 0) return;
    ::kill(pid, SIGKILL);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
  }
};

PlanningProcess::PlanningProcess(const experiments::LoadedRun& run, const PolicyQuestion& question,
                                 const Waits& waits)
    : state_(std::make_unique<State>()) {
  int down[2];
  int up[2];
  if (::pipe2(down, O_CLOEXEC) != 0 || ::pipe2(up, O_CLOEXEC) != 0) {
    throw std::runtime_error(fmt::format("pipe: {}", std::strerror(errno)));
  }
  const pid_t parent = ::getpid();
  state_->pid = ::fork();
  if (state_->pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_IGN);
    ::close(down[1]);
    ::close(up[0]);
    ::_exit(serve(run, question, down[0], up[1]));
  }
  ::close(down[0]);
  ::close(up[1]);
  state_->to = down[1];
  state_->from = up[0];
  if (state_->pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  bool wanted = true;
  const auto waits_on = [&](int seconds) { return wanted = waits(seconds); };
  if (!await(state_->from, waits_on)) {
    if (!wanted) return;
    throw std::runtime_error(
        fmt::format("policy {} is not ready after {} s", question.policy, kPatience));
  }
  const auto ready = read_text(state_->from, kPatience * 1000);
  if (!ready) throw std::runtime_error("the planning process ended without a word");
  if (ready->front() != kOk) throw PolicyRefuses(ready->substr(1));
}

PlanningProcess::~PlanningProcess() = default;

std::variant<executor::NextProgram, std::string> PlanningProcess::ask(
    const executor::LostDevices& lost, const Waits& waits) {
  if (!write_text(state_->to, to_text(lost))) return "the planning process has ended";
  if (!await(state_->from, waits)) return "the planning process does not answer";
  const auto answer = read_text(state_->from, kPatience * 1000);
  if (!answer) return "the planning process does not answer";
  if (answer->front() != kOk) return answer->substr(1);
  const std::size_t line_end = answer->find('\n');
  auto program = ir::parse_program(std::string_view(*answer).substr(line_end + 1));
  if (const auto* what = std::get_if<std::string>(&program)) return "the new program " + *what;
  return executor::NextProgram{std::move(std::get<ir::Program>(program)),
                               answer->substr(1, line_end - 1)};
}

}  // namespace orrery::tools
