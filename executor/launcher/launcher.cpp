#include "executor/launcher/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <set>
#include <sstream>
#include <thread>
#include <utility>

#include "executor/launcher/agent.h"
#include "executor/launcher/armed_faults.h"
#include "executor/launcher/file_keepers.h"
#include "executor/launcher/generation_record.h"
#include "executor/launcher/neighbors.h"
#include "executor/launcher/node_agents.h"
#include "executor/launcher/process_table.h"
#include "executor/launcher/remote_agents.h"
#include "executor/launcher/reports.h"
#include "executor/launcher/run_files.h"
#include "executor/net/clock.h"
#include "executor/net/handshake.h"
#include "executor/net/store.h"
#include "models/ir/wire.h"

namespace orrery::executor {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Kind = MemberStatus::Kind;

constexpr milliseconds kReportPoll{5};
/// Between looks at heartbeats.
constexpr milliseconds kHeartbeatLook{100};
/// For processes to end after the stop was ordered.
constexpr milliseconds kStopGrace{8'000};

/// How a generation ended.
struct Ending {
  bool stopped = false;
  std::string error;               ///< That another attempt would meet again.
  std::vector<std::string> why;    ///< What the members say.
  std::vector<std::int32_t> dead;  ///< Devices whose process is gone.
  std::int64_t failed_ns = 0;      ///< First notice, launcher's clock; 0: nothing failed.
};

class Launch {
 public:
  explicit Launch(LaunchOptions options)
      : o_(std::move(options)),
        token_(o_.token.empty() ? make_token() : o_.token),
        origin_ns_(now_ns()),
        server_(Listener(address(), o_.port), token_),
        client_({own_address(), server_.port()}, token_),
        processes_(client_, o_.hosts, o_.settings),
        keepers_(processes_, o_.settings),
        faults_(o_.settings.faults) {
    if (o_.settings.run.empty()) o_.settings.run = make_token().substr(0, 16);
    if (o_.executable.empty()) o_.executable = own_executable();
    o_.settings.least_data_bytes = o_.first.program.header.sequence_length + 1;
    std::string nodes;
    for (const std::string& node : processes_.nodes()) nodes += node + "\n";
    client_.set("settings", to_text(o_.settings));
    client_.set("nodes", nodes);
    const auto neighbors =
        find_neighbors(o_, [this](DeviceId device) { return processes_.node_of(device.value); });
    for (std::size_t n = 0; n < neighbors.size(); ++n) {
      client_.set(neighbors_key(processes_.nodes()[n]), to_text(neighbors[n]));
    }
    agents_ = std::make_unique<NodeAgents>(o_, processes_.nodes(), client_,
                                           [this](const std::string& line) { say(line); });
  }

  ~Launch() {
    try {
      processes_.end(kStopGrace);
    } catch (const TransportError&) {
      // The store has failed: agents notice that and end their ranks.
    }
    agents_.reset();
  }

  LaunchReport run() {
    try {
      if (!o_.out.empty()) losses_ = std::make_unique<LossFile>(o_.out);
      if (bring_up_agents()) run_generations();
    } catch (const TransportError& error) {
      fail(fmt::format("the store failed: {}", error.what()));
    }
    if (interrupted() && report_.result != LaunchReport::Result::completed) {
      report_.result = LaunchReport::Result::interrupted;
      report_.problem = "interrupted";
    } else if (const std::string left = faults_.left();
               !left.empty() && report_.result != LaunchReport::Result::refused) {
      say(left);
    }
    return std::move(report_);
  }

 private:
  std::string address() const {
    if (!o_.listen.empty()) return o_.listen;
    return o_.hosts.empty() ? "" : "0.0.0.0";
  }
  /// Where this machine reaches its own store.
  std::string own_address() const {
    const std::string listens = address();
    return listens.empty() || listens == "0.0.0.0" ? "127.0.0.1" : listens;
  }
  /// Where other machines reach it.
  std::string advertised_address() const {
    if (!o_.advertise.empty()) return o_.advertise;
    return o_.listen.empty() || o_.listen == "0.0.0.0" ? own_host_name() : o_.listen;
  }
  bool interrupted() const { return o_.interrupted != nullptr && *o_.interrupted; }
  void say(const std::string& line) const {
    if (o_.on_message) o_.on_message(line);
  }
  void fail(const std::string& problem) {
    report_.result = LaunchReport::Result::failed;
    report_.problem = problem;
  }
  /// False when the run cannot begin.
  bool bring_up_agents() {
    agents_->start({own_address(), server_.port()}, {advertised_address(), server_.port()}, token_);
    const auto problem = agents_->await();
    if (!problem) return !interrupted();
    fail(problem->what);
    if (problem->refused) report_.result = LaunchReport::Result::refused;
    return false;
  }

  void run_generations() {
    NextProgram current = std::move(o_.first);
    std::int64_t last_step = 0;
    Ending before;
    for (std::int64_t g = 0; !interrupted(); ++g) {
      if (g >= o_.most_generations) return fail(fmt::format("{} generations failed", g));
      const std::int64_t until = o_.switches.empty() ? o_.settings.steps : o_.switches.front().step;
      const std::int64_t planned_ns = now_ns();
      GenerationRecord record(current.program, g, members_of(current.program), origin_ns_);
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
      if (g > 0) tell_missing(record, last_step);
      finish(record, current);
      last_step = std::max(record.last_step(last_step), std::int64_t{0});
      before = ending;
      if (ending.stopped) return;
      if (!ending.error.empty()) return fail(ending.error);
      if (ending.failed_ns == 0) {
        if (until >= o_.settings.steps) {
          report_.result = LaunchReport::Result::completed;
          return;
        }
        current = std::move(o_.switches.front().to);
        switched_after_ = o_.switches.front().step;
        o_.switches.erase(o_.switches.begin());
        say(fmt::format("after step {}: {}", last_step, current.what));
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
    for (const std::int32_t device : processes_.devices()) {
      if (std::find(members.begin(), members.end(), device) == members.end()) {
        members.push_back(device);
      }
    }
    const auto keepers =
        keepers_.find(lost_, members, [this](const std::string& line) { say(line); });
    members.insert(members.end(), keepers.begin(), keepers.end());
    return members;
  }

  void publish(const GenerationRecord& record, const ir::Program& program, std::int64_t until,
               std::int64_t last_step) {
    const std::int64_t g = generation_ = static_cast<std::int64_t>(report_.generations.size());
    client_.set(fmt::format("g/{}/program", g), ir::serialize(program));
    client_.set(fmt::format("g/{}/until", g), std::to_string(until));
    client_.set(fmt::format("g/{}/after", g), std::to_string(last_step));
    std::string text;
    for (const std::int32_t device : record.members()) text += fmt::format("{} ", device);
    client_.set(fmt::format("g/{}/members", g), text);
    for (const std::int32_t device : record.members()) {
      if (!processes_.alive(device)) processes_.start(device, g);
    }
  }

  Ending supervise(GenerationRecord& record) {
    Ending ending;
    std::set<std::int32_t> dead;
    Clock::time_point limit = Clock::time_point::max();
    const auto trouble = [&] {
      if (ending.failed_ns != 0) return;
      ending.failed_ns = now_ns();
      limit = Clock::now() + o_.settings.deadline + o_.settings.connect;
      processes_.order(fmt::format("cancel {}", generation_));
    };
    for (Clock::time_point next_look = Clock::now();; std::this_thread::sleep_for(kReportPoll)) {
      collect(record);
      if (interrupted() && !ending.stopped) {
        ending.stopped = true;
        limit = Clock::now() + kStopGrace;
        processes_.order("stop");
      }
      for (const auto& [device, how] : processes_.take_exits()) {
        dead.insert(device);
        ending.why.push_back(fmt::format("device {}: {}", device, how));
      }
      if (Clock::now() >= next_look) {
        for (const std::int32_t device : processes_.silent()) {
          if (!dead.insert(device).second) continue;
          ending.why.push_back(fmt::format("device {}: silent", device));
          processes_.kill(device);
        }
        next_look = Clock::now() + kHeartbeatLook;
      }
      bool all = true;
      for (std::size_t m = 0; m < record.members().size(); ++m) {
        const auto& status = record.status(static_cast<int>(m));
        const bool gone = dead.contains(record.members()[m]);
        const bool done = status && status->kind == Kind::done;
        if (!done && (gone || status)) trouble();
        all = all && (gone || status);
      }
      if (all) break;
      if (Clock::now() <= limit) continue;
      // Neither steps nor reports: as good as dead.
      for (std::size_t m = 0; m < record.members().size(); ++m) {
        const std::int32_t device = record.members()[m];
        if (record.status(static_cast<int>(m)) || !dead.insert(device).second) continue;
        ending.why.push_back(fmt::format("device {}: does not answer", device));
        processes_.kill(device);
      }
    }
    collect(record);
    conclude(record, dead, ending);
    return ending;
  }

  void conclude(const GenerationRecord& record, const std::set<std::int32_t>& dead,
                Ending& ending) {
    std::int64_t first = ending.failed_ns;
    for (std::size_t m = 0; m < record.members().size(); ++m) {
      const auto& status = record.status(static_cast<int>(m));
      if (!status || status->kind == Kind::done) continue;
      first = std::min(first, status->at_ns);
      const std::string who = fmt::format("device {}: {}", record.members()[m], status->message);
      if (status->kind == Kind::error && ending.error.empty()) ending.error = who;
      // What survivors say follows from the loss of the dead.
      if (dead.empty()) ending.why.push_back(who);
    }
    ending.dead.assign(dead.begin(), dead.end());
    // Times of members on this machine are on this clock; others are only told by their messages.
    const bool all_here = std::all_of(o_.hosts.begin(), o_.hosts.end(),
                                      [](const HostSlots& h) { return !h.local_agent.empty(); });
    if (all_here && first > 0) ending.failed_ns = first;
  }

  void collect(GenerationRecord& record) {
    const std::string prefix = fmt::format("g/{}/out/", generation_);
    for (const auto& [key, value] : client_.list(prefix)) {
      const std::string rest = key.substr(prefix.size());
      record.take(rest, value);
      if (rest.ends_with("/fault")) {
        fault_ns_ = std::stoll(value);
        // "<ns> fault device ...".
        const std::string what = value.substr(value.find(' ') + 1);
        say(what);
        faults_.strike(what.substr(what.find(' ') + 1));
      }
      client_.remove(key);
    }
    if (generation_ > told_state_) {
      if (const std::string found = record.state_found(); !found.empty()) {
        say(fmt::format("generation {} goes on with the {}", generation_, found));
        told_state_ = generation_;
      }
    }
    for (const StepLine& line : record.take_finished()) {
      report_.steps.push_back(line);
      if (losses_) losses_->add(line);
      if (o_.on_step) o_.on_step(line);
    }
  }

  void add_phases(GenerationRecord& record) {
    const auto add = [&](const char* name, std::optional<std::int64_t> run_ns,
                         const std::string& what) {
      // The record turns it back: run time is counted from the origin.
      if (run_ns) record.add_event(*run_ns + origin_ns_, name, what);
    };
    add("t_comm", record.last_event("mesh"), "all connections stand");
    const std::vector<std::string> loaded = record.details("loaded");
    const std::string version =
        loaded.empty() ? "" : loaded.front().substr(0, loaded.front().find(':'));
    add("t_load", record.last_event("loaded"), "all ranks have the state after " + version);
    add("t_first_step", record.first_step_end(), "end of the first step");
  }

  /// Steps whose state was found, but not all of whose losses were reported.
  void tell_missing(const GenerationRecord& record, std::int64_t last_step) const {
    std::int64_t loaded = 0;
    for (const std::string& detail : record.details("loaded")) {
      std::istringstream words(detail.substr(std::min(detail.size(), std::string("step ").size())));
      std::int64_t step = 0;
      if (words >> step) loaded = std::max(loaded, step);
    }
    if (loaded <= last_step) return;
    say(fmt::format("steps {}-{} were not repeated; their losses went with the lost ranks",
                    last_step + 1, loaded));
  }

  void finish(const GenerationRecord& record, const NextProgram& current) {
    GenerationSummary summary = record.summary();
    summary.what = current.what;
    report_.generations.push_back(std::move(summary));
    for (const std::string& detail : record.details("checkpoint_failed")) {
      say("checkpoint failed: " + detail);
    }
    for (const std::string& detail : record.details("checkpoint_refused")) {
      say("checkpoint not used: " + detail);
    }
    for (const std::string& detail : record.details("checkpoints_pruned")) {
      say("removed checkpoints: " + detail);
    }
    if (o_.out.empty()) return;
    write_generation(
        o_.out, current.program, record.log(),
        [this](DeviceId id) { return processes_.node_of(id.value); },
        [this](int node) { return processes_.nodes()[static_cast<std::size_t>(node)]; });
  }

  /// The program to go on with goes to `current`; false: there is none.
  bool recover(const Ending& ending, std::int64_t g, std::int64_t last_step, NextProgram& current) {
    std::string why;
    for (const std::string& one : ending.why) why += (why.empty() ? "" : "; ") + one;
    if (!o_.settings.elastic || !o_.next_program) {
      fail(fmt::format("after step {}: {}", last_step, why));
      return false;
    }
    say(fmt::format("generation {} ended after step {}: {}", g, last_step, why));
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
      if (broken) say(fmt::format("the switch after step {} is off: lost devices", planned.step));
      return broken;
    });
    say(fmt::format("generation {}: {}", g + 1, current.what));
    return true;
  }

  LaunchOptions o_;
  std::string token_;
  std::int64_t origin_ns_;
  StoreServer server_;
  StoreClient client_;
  ProcessTable processes_;
  FileKeepers keepers_;
  ArmedFaults faults_;
  std::unique_ptr<NodeAgents> agents_;
  std::unique_ptr<LossFile> losses_;
  std::set<std::int32_t> lost_;
  std::int64_t generation_ = 0;
  std::int64_t switched_after_ = 0;  ///< Of LostDevices.
  std::int64_t told_state_ = 0;      ///< Generation whose state was said; the first begins anew.
  std::optional<std::int64_t> fault_ns_;
  LaunchReport report_;
};

}  // namespace

LaunchReport launch(LaunchOptions options) { return Launch(std::move(options)).run(); }

}  // namespace orrery::executor
