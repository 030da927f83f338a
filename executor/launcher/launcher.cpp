#include "executor/launcher/launcher.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "executor/launcher/agent_spawner.h"
#include "executor/launcher/generation_tracker.h"
#include "executor/launcher/messages.h"
#include "executor/launcher/neighbors.h"
#include "executor/launcher/run_files.h"
#include "executor/launcher/thread_spawner.h"
#include "executor/net/clock.h"
#include "executor/net/message.h"
#include "models/base/check.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = MemberStatus::Kind;

constexpr milliseconds kReportPoll{5};
/// Until it is said which ranks the end of a generation waits for.
constexpr milliseconds kStuckWord{8'000};
/// For an agent to show that it lives: many pauses between its heartbeats, on a busy machine, too.
constexpr milliseconds kAnswer{5'000};
/// Generations in a row that lose no device and end no step, for a network that mends itself: each
/// takes the time of connecting or of a transfer, 20 to 60 s.
constexpr int kMostIdle = 4;

/// How a generation ended.
struct Ending {
  bool stopped = false;
  std::string error;               ///< That another attempt would meet again.
  std::vector<std::string> why;    ///< What the members say.
  std::vector<std::int32_t> dead;  ///< Devices whose rank is gone.
  std::int64_t failed_ns = 0;      ///< First notice, launcher's clock; 0: nothing failed.
};

/// The faults that a run asked for and that have not struck yet, so that nobody takes a run without
/// its failure for one that survived it.
class ArmedFaults {
 public:
  /// Those that end or stop their process; what only holds it is no failure.
  explicit ArmedFaults(const std::vector<FaultInjection>& faults) {
    for (const FaultInjection& fault : faults) {
      if (fault.hold.count() == 0) armed_.push_back(fault);
    }
  }

  /// `last_word` of a rank whose fault strikes, as RankGeneration says it: "device D ... of step
  /// S".
  void strike(const std::string& last_word) {
    const auto struck =
        std::find_if(armed_.begin(), armed_.end(), [&](const FaultInjection& fault) {
          return last_word.starts_with(fmt::format("device {} ", fault.device)) &&
                 last_word.ends_with(fmt::format(" of step {}", fault.step));
        });
    if (struck != armed_.end()) armed_.erase(struck);
  }

  /// One line that names all that are left; empty: none.
  std::string left() const {
    std::vector<std::string> names;
    for (const FaultInjection& fault : armed_) {
      names.push_back(fmt::format("device {} in step {}", fault.device, fault.step));
    }
    if (names.empty()) return {};
    return fmt::format("{} asked for did not strike: {} (lost before, or the step did not come)",
                       names.size() == 1 ? "a fault" : "faults", fmt::join(names, ", "));
  }

 private:
  std::vector<FaultInjection> armed_;
};

/// Nodes that have lost all their ranks, but not their agent: a process of the agent's keeps their
/// local checkpoints within reach. It takes a lost device's place among the members of the next
/// generation, as one that has state and no rank.
class CheckpointServers {
 public:
  /// Keeps a reference.
  explicit CheckpointServers(Spawner& spawner) : spawner_(spawner) {}

  /// A device for each node that had one of the `lost` devices, has none of `members` now, and
  /// whose agent answers; each node is tried once.
  std::vector<std::int32_t> find(const std::set<std::int32_t>& lost,
                                 const std::vector<std::int32_t>& members, const SpawnOptions& o) {
    std::vector<std::int32_t> out;
    if (o.settings.checkpoint_every == 0 || o.settings.local_checkpoints.empty()) return out;
    std::set<int> served;
    for (const std::int32_t device : members) served.insert(spawner_.node_of(device));
    for (const std::int32_t device : lost) {
      const int node = spawner_.node_of(device);
      if (served.contains(node) || !tried_.insert(node).second) continue;
      const std::string& name = spawner_.nodes()[node];
      const bool lives = spawner_.answers(node, kAnswer);
      if (lives) out.push_back(device);
      o.say(lives ? fmt::format("{} has no rank left: its agent serves its checkpoints", name)
                  : fmt::format("{} does not answer: its checkpoints are out of reach", name));
    }
    return out;
  }

 private:
  Spawner& spawner_;
  std::set<int> tried_;  ///< Nodes: what ends there once is not started again and again.
};

LaunchOptions with_least_data(LaunchOptions options) {
  options.settings.least_data_bytes = options.first.program.header.sequence_length + 1;
  return options;
}

class Launch {
 public:
  using MakeSpawner = std::function<std::unique_ptr<Spawner>(RunStore&, const LaunchOptions&)>;
  Launch(LaunchOptions options, const MakeSpawner& make_spawner)
      : o_(with_least_data(std::move(options))),
        origin_ns_(now_ns()),
        store_(o_),
        spawner_(make_spawner(store_, o_)),
        checkpoint_servers_(*spawner_),
        faults_(o_.settings.faults) {
    const auto neighbors =
        find_neighbors(o_, [this](DeviceId device) { return spawner_->node_of(device.value); });
    for (std::size_t n = 0; n < neighbors.size(); ++n) {
      store_.client().set(neighbors_key(spawner_->nodes()[n]), to_message(neighbors[n]));
    }
  }

  LaunchReport run() {
    try {
      if (!o_.out.empty()) {
        losses_ = std::make_unique<LossFile>(o_.out);
        if (o_.on_claimed) o_.on_claimed();
      }
      if (prepare()) run_generations();
    } catch (const TransportError& error) {
      fail(fmt::format("the store failed: {}", error.what()));
    }
    if (o_.is_interrupted() && report_.result != LaunchReport::Result::completed) {
      report_.result = LaunchReport::Result::interrupted;
      report_.problem = "interrupted";
    } else if (const std::string left = faults_.left();
               !left.empty() && report_.result != LaunchReport::Result::refused) {
      o_.say(left);
    }
    return std::move(report_);
  }

 private:
  void fail(const std::string& problem) {
    report_.result = LaunchReport::Result::failed;
    report_.problem = problem;
  }
  /// False when the run cannot begin.
  bool prepare() {
    const auto problem = spawner_->prepare();
    if (!problem) return !o_.is_interrupted();
    fail(problem->what);
    if (problem->refused) report_.result = LaunchReport::Result::refused;
    return false;
  }

  void run_generations() {
    NextProgram current = std::move(o_.first);
    std::int64_t last_step = 0;
    Ending before;
    for (std::int64_t g = 0; !o_.is_interrupted(); ++g) {
      if (g >= o_.most_generations) return fail(fmt::format("{} generations failed", g));
      const std::int64_t until = o_.switches.empty() ? o_.settings.steps : o_.switches.front().step;
      const std::int64_t planned_ns = now_ns();
      GenerationTracker record(current.program, g, members_of(current.program), origin_ns_);
      if (before.failed_ns > 0) {
        record.add_event(before.failed_ns, "t_detect", "first notice of the failure");
        if (fault_ns_) record.add_event(*fault_ns_, "t_fail", "injected fault");
      }
      fault_ns_.reset();
      if (g > 0) record.add_event(planned_ns, "t_plan", current.what);
      publish(record, current.program, until, last_step);
      if (g > 0) record.add_event(now_ns(), "t_spawn", "ranks told, processes started");
      const Ending ending = supervise(record);
      if (g > 0) add_phases(record);
      if (g > 0) tell_missing(last_step + 1, step_of_state(record));
      finish(record, current);
      last_step = std::max(record.last_step(last_step), std::int64_t{0});
      before = ending;
      if (ending.stopped) {
        if (!ending.error.empty()) o_.say(ending.error);
        return;
      }
      if (!ending.error.empty()) {
        return fail(fmt::format("after step {}: {}", last_step, ending.error));
      }
      if (ending.failed_ns == 0) {
        if (until >= o_.settings.steps) {
          report_.result = LaunchReport::Result::completed;
          if (!report_.steps.empty()) tell_missing(report_.steps.back().step + 1, until);
          return;
        }
        current = std::move(o_.switches.front().to);
        switched_after_ = o_.switches.front().step;
        o_.switches.erase(o_.switches.begin());
        o_.say(fmt::format("after step {}: {}", last_step, current.what));
        continue;
      }
      if (!recover(ending, g, last_step, current)) return;
    }
  }

  /// Devices by member: those of the program's ranks, then those that may have state in memory,
  /// then those that serve their node's files.
  std::vector<std::int32_t> members_of(const ir::Program& program) {
    std::vector<std::int32_t> members;
    for (const ir::Rank& rank : program.ranks) members.push_back(rank.device.value);
    for (const std::int32_t device : spawner_->alive()) {
      if (std::find(members.begin(), members.end(), device) == members.end()) {
        members.push_back(device);
      }
    }
    const auto servers = checkpoint_servers_.find(lost_, members, o_);
    members.insert(members.end(), servers.begin(), servers.end());
    return members;
  }

  void publish(const GenerationTracker& record, const ir::Program& program, std::int64_t until,
               std::int64_t last_step) {
    const std::int64_t g = generation_ = static_cast<std::int64_t>(report_.generations.size());
    store_.client().set(fmt::format("g/{}/program", g), ir::serialize(program));
    store_.client().set(fmt::format("g/{}/until", g), std::to_string(until));
    store_.client().set(fmt::format("g/{}/after", g), std::to_string(last_step));
    std::string text;
    for (const std::int32_t device : record.members()) text += fmt::format("{} ", device);
    store_.client().set(fmt::format("g/{}/members", g), text);
    const std::vector<std::int32_t> alive = spawner_->alive();
    for (const std::int32_t device : record.members()) {
      if (!std::binary_search(alive.begin(), alive.end(), device)) spawner_->start(device, g);
    }
  }

  /// Returns when all members have said how the generation ended for them, or will not.
  Ending supervise(GenerationTracker& record) {
    Ending ending;
    std::set<std::int32_t> dead;
    Clock::time_point since;  ///< Of the order to end.
    Clock::time_point limit = Clock::time_point::max();
    bool said = false;
    const auto trouble = [&] {
      if (ending.failed_ns != 0) return;
      ending.failed_ns = now_ns();
      since = Clock::now();
      limit = since + o_.settings.deadline + o_.settings.connect;
      store_.command(fmt::format("cancel {}", generation_));
    };
    for (;; std::this_thread::sleep_for(kReportPoll)) {
      collect(record);
      if (o_.is_interrupted() && !ending.stopped) {
        ending.stopped = true;
        since = Clock::now();
        limit = since + spawner_->grace();
        store_.command("stop");
      }
      for (const auto& [device, how] : spawner_->take_ended()) {
        dead.insert(device);
        ending.why.push_back(fmt::format("device {}: {}", device, how));
      }
      std::vector<std::int32_t> left;  // Those that have said nothing.
      for (std::size_t m = 0; m < record.members().size(); ++m) {
        const std::int32_t device = record.members()[m];
        const auto& status = record.status(static_cast<int>(m));
        const bool gone = dead.contains(device);
        const bool done = status && status->kind == Kind::done;
        if (!done && (gone || status)) trouble();
        if (!gone && !status) left.push_back(device);
      }
      if (left.empty()) break;
      if (limit == Clock::time_point::max()) {
        if (const std::string stall = spawner_->stall(); !stall.empty()) {
          ending.why.push_back(stall);
          trouble();
        }
        continue;
      }
      if (Clock::now() <= limit) {
        if (!said && Clock::now() > since + kStuckWord) {
          o_.say(fmt::format("waiting for device {} to end an op", fmt::join(left, ", device ")));
          said = true;
        }
        continue;
      }
      // Neither steps nor reports: as good as dead.
      for (const std::int32_t device : left) {
        dead.insert(device);
        ending.why.push_back(fmt::format("device {}: does not answer", device));
        spawner_->kill(device);
      }
    }
    collect(record);
    conclude(record, dead, ending);
    return ending;
  }

  void conclude(const GenerationTracker& record, const std::set<std::int32_t>& dead,
                Ending& ending) {
    std::int64_t first = ending.failed_ns;
    const bool explained = !ending.why.empty();
    for (std::size_t m = 0; m < record.members().size(); ++m) {
      const auto& status = record.status(static_cast<int>(m));
      if (!status || status->kind == Kind::done) continue;
      first = std::min(first, status->at_ns);
      const std::string who = fmt::format("device {}: {}", record.members()[m], status->message);
      if (status->kind == Kind::error && ending.error.empty()) ending.error = who;
      // What survivors say follows from the loss of the dead.
      if (!explained) ending.why.push_back(who);
    }
    ending.dead.assign(dead.begin(), dead.end());
    // Times of members on this machine are on this clock; others are only known by their messages.
    const bool all_here = std::all_of(o_.hosts.begin(), o_.hosts.end(),
                                      [](const HostSlots& h) { return !h.local_agent.empty(); });
    if (all_here && first > 0) ending.failed_ns = first;
  }

  void collect(GenerationTracker& record) {
    const std::string prefix = fmt::format("g/{}/out/", generation_);
    for (const auto& [key, value] : store_.client().list(prefix)) {
      const std::string rest = key.substr(prefix.size());
      record.take(rest, value);
      if (rest.ends_with("/fault")) {
        const auto fault = from_message<EventReport>(value, rest);
        fault_ns_ = fault.at_ns;
        o_.say("fault " + fault.detail);
        faults_.strike(fault.detail);
      }
      store_.client().remove(key);
    }
    for (const EventReport& event : record.take_events()) {
      if (event.kind == "checkpoint_failed") o_.say("checkpoint failed: " + event.detail);
      if (event.kind == "checkpoint_refused") o_.say("checkpoint not used: " + event.detail);
      if (event.kind == "checkpoints_pruned") o_.say("removed checkpoints: " + event.detail);
    }
    if (generation_ > told_state_) {
      if (const std::string found = record.state_found(); !found.empty()) {
        o_.say(fmt::format("generation {} goes on with the {}", generation_, found));
        told_state_ = generation_;
      }
    }
    for (const StepLine& line : record.take_finished()) {
      report_.steps.push_back(line);
      if (losses_) losses_->add(line);
      if (o_.on_step) o_.on_step(line);
    }
  }

  void add_phases(GenerationTracker& record) {
    const auto add = [&](const char* name, std::optional<std::int64_t> run_ns,
                         const std::string& what) {
      // The record turns it back: run time is counted from the origin.
      if (run_ns) record.add_event(*run_ns + origin_ns_, name, what);
    };
    add("t_comm", record.last_event("mesh"), "all connections are open");
    const std::vector<std::string> loaded = record.details("loaded");
    const std::string version =
        loaded.empty() ? "" : loaded.front().substr(0, loaded.front().find(':'));
    add("t_load", record.last_event("loaded"), "all ranks have the state after " + version);
    add("t_first_step", record.first_step_end(), "end of the first step");
  }

  /// The step after which the generation's ranks found a state.
  static std::int64_t step_of_state(const GenerationTracker& record) {
    std::int64_t found = 0;
    for (const std::string& detail : record.details("loaded")) {
      std::istringstream words(detail.substr(std::min(detail.size(), std::string("step ").size())));
      std::int64_t step = 0;
      if (words >> step) found = std::max(found, step);
    }
    return found;
  }

  /// Of steps that ended, but not all of whose losses came; once for each.
  void tell_missing(std::int64_t first, std::int64_t last) {
    first = std::max(first, told_missing_ + 1);
    if (first > last) return;
    told_missing_ = last;
    o_.say(fmt::format("steps {}-{} ended, but their losses went with a rank or a connection",
                       first, last));
  }

  void finish(const GenerationTracker& record, const NextProgram& current) {
    GenerationSummary summary = record.summary();
    summary.what = current.what;
    report_.generations.push_back(std::move(summary));
    if (o_.out.empty()) return;
    write_generation(
        o_.out, current.program, record.log(),
        [this](DeviceId id) { return spawner_->node_of(id.value); },
        [this](int node) { return spawner_->nodes()[node]; });
  }

  /// The program to go on with goes to `current`; false: there is none.
  bool recover(const Ending& ending, std::int64_t g, std::int64_t last_step, NextProgram& current) {
    std::string why;
    for (const std::string& one : ending.why) why += (why.empty() ? "" : "; ") + one;
    const bool came_further = !report_.steps.empty() && report_.steps.back().generation == g;
    idle_ = came_further || !ending.dead.empty() ? 0 : idle_ + 1;
    if (idle_ >= kMostIdle) {
      fail(
          fmt::format("after step {}: {} generations in a row lost no device and ended no step: {}",
                      last_step, idle_, why));
      return false;
    }
    if (!o_.settings.elastic || !o_.next_program) {
      fail(fmt::format("after step {}: {}", last_step, why));
      return false;
    }
    o_.say(fmt::format("generation {} ended after step {}: {}", g, last_step, why));
    LostDevices lost;
    for (const std::int32_t device : ending.dead) {
      // One that served the files of its node was lost before.
      if (lost_.insert(device).second) lost.lost.push_back({device});
    }
    for (const DeviceId device : o_.devices) {
      if (!lost_.contains(device.value)) lost.live.push_back(device);
    }
    lost.last_step = last_step;
    lost.generation = g;
    lost.switched_after = switched_after_;
    auto next = o_.next_program(lost);
    if (const auto* problem = std::get_if<std::string>(&next)) {
      fail(fmt::format("after step {}: {}; {}", last_step, why, *problem));
      return false;
    }
    current = std::move(std::get<NextProgram>(next));
    // A planned switch may need a device that is lost.
    std::erase_if(o_.switches, [&](const PlannedSwitch& planned) {
      const auto& ranks = planned.to.program.ranks;
      const bool broken = std::any_of(ranks.begin(), ranks.end(), [&](const ir::Rank& rank) {
        return lost_.contains(rank.device.value);
      });
      if (broken)
        o_.say(fmt::format("the switch after step {} is off: lost devices", planned.step));
      return broken;
    });
    o_.say(fmt::format("generation {}: {}", g + 1, current.what));
    return true;
  }

  LaunchOptions o_;
  std::int64_t origin_ns_;
  RunStore store_;
  std::unique_ptr<Spawner> spawner_;
  CheckpointServers checkpoint_servers_;
  ArmedFaults faults_;
  std::unique_ptr<LossFile> losses_;
  std::set<std::int32_t> lost_;
  std::int64_t generation_ = 0;
  std::int64_t switched_after_ = 0;  ///< Of LostDevices.
  std::int64_t told_state_ = 0;      ///< Generation whose state was told; the first has none.
  int idle_ = 0;                   ///< Generations in a row that lost no device and ended no step.
  std::int64_t told_missing_ = 0;  ///< Last step whose loss was told to be missing.
  std::optional<std::int64_t> fault_ns_;
  LaunchReport report_;
};

}  // namespace
}  // namespace orrery::executor

namespace orrery::ir {

void describe(config::Visitor& v, LogEvent& event) {
  double seconds = 1e-9 * static_cast<double>(event.at.nanoseconds);
  v.required("seconds", seconds, "from the start of the run");
  v.required("kind", event.kind, "");
  v.required("detail", event.detail, "");
}

}  // namespace orrery::ir

namespace orrery::executor {

void describe(config::Visitor& v, LostDevices& lost) {
  v.required("lost", lost.lost, "since the last question");
  v.required("live", lost.live, "ascending");
  v.required("last_step", lost.last_step, "that all ranks had finished");
  v.required("generation", lost.generation, "that ended");
  v.required("switched_after", lost.switched_after, "step of the planned switch made last");
}

std::vector<std::pair<LaunchReport::Result, const char*>> enum_names(LaunchReport::Result) {
  using Result = LaunchReport::Result;
  return {{Result::completed, "completed"},
          {Result::failed, "failed"},
          {Result::interrupted, "interrupted"},
          {Result::refused, "refused"}};
}

void describe(config::Visitor& v, StepLine& step) {
  v.required("generation", step.generation, "");
  v.required("step", step.step, "");
  v.required("loss", step.loss, "mean over tokens, nats");
  v.required("start_seconds", step.start_seconds, "from the start of the run");
  v.required("step_seconds", step.seconds, "");
  v.required("tokens_per_second", step.tokens_per_second, "");
}

void describe(config::Visitor& v, RankSummary& rank) {
  double offset = 1e-9 * static_cast<double>(rank.clock_offset_ns);
  double uncertainty = 1e-9 * static_cast<double>(rank.clock_uncertainty_ns);
  v.required("rank", rank.rank, "");
  v.required("device", rank.device, "");
  v.required("peak_bytes", rank.peak_bytes, "of tensors in the fullest step");
  v.required("sent_bytes", rank.sent_bytes, "");
  v.required("received_bytes", rank.received_bytes, "");
  v.required("clock_offset_seconds", offset, "to rank 0");
  v.required("clock_uncertainty_seconds", uncertainty, "");
}

void describe(config::Visitor& v, GenerationSummary& generation) {
  v.required("generation", generation.number, "");
  v.required("what", generation.what, "");
  v.required("ranks", generation.ranks, "");
  v.required("events", generation.events, "");
}

void describe(config::Visitor& v, LaunchReport& report) {
  v.title("A run");
  v.required("result", report.result, "completed, failed, interrupted or refused");
  v.required("problem", report.problem, "why it failed");
  v.required("steps", report.steps, "");
  v.required("generations", report.generations, "");
}

LaunchReport launch(LaunchOptions options) {
  const auto agents = [](RunStore& store, const LaunchOptions& o) -> std::unique_ptr<Spawner> {
    return std::make_unique<AgentSpawner>(store, o);
  };
  return Launch(std::move(options), agents).run();
}

LaunchReport launch_on_threads(LaunchOptions options, ThreadRanks ranks) {
  const RunSettings& s = options.settings;
  ORRERY_CHECK(s.faults.empty() && s.checkpoint_every == 0 && !s.elastic && s.transport == "tcp",
               "settings that ranks as threads cannot have");
  ORRERY_CHECK(options.hosts.empty() && options.switches.empty(),
               "ranks as threads are on one machine and have one plan");
  const auto threads = [&](RunStore& store, const LaunchOptions& o) -> std::unique_ptr<Spawner> {
    return std::make_unique<ThreadSpawner>(store, o, std::move(ranks));
  };
  return Launch(std::move(options), threads).run();
}

}  // namespace orrery::executor
