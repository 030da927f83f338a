#include "executor/netlab/lab.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <set>
#include <utility>

#include "executor/netlab/namespaces.h"
#include "executor/netlab/process.h"
#include "executor/netlab/state.h"
#include "executor/netlab/switch.h"
#include "executor/netlab/tap.h"
#include "models/base/check.h"
#include "models/base/file.h"

namespace orrery::executor {
namespace {

constexpr std::chrono::milliseconds kPatience(2'000);  // with a switch that is asked to end
constexpr int kReadyMs = 30'000;                       // until a switch has built its ports
constexpr const char* kReady = "ok";
constexpr double kMillion = 1e6;

int size_of(const NetlabSpec& spec) { return static_cast<int>(spec.nodes.size()); }

void require_sound(const NetlabSpec& spec) {
  const std::vector<std::string> problems = find_problems(spec);
  if (!problems.empty()) throw NetlabError(fmt::format("{}", fmt::join(problems, "; ")));
}

std::set<std::string> namespaces_of(const NetlabSpec& spec) {
  std::set<std::string> names;
  for (int node = 0; node < size_of(spec); ++node) names.insert(namespace_name(spec, node));
  return names;
}

/// Everything of the lab, as far as it is there. Goes on after a failure and throws the first one.
NetlabDown remove_all(const std::optional<std::string>& path, const NetlabSpec& asked) {
  NetlabDown done;
  done.name = asked.name;
  std::set<std::string> names = namespaces_of(asked);
  std::string problem;
  const auto attempt = [&](const auto& step) {
    try {
      step();
    } catch (const NetlabError& error) {
      if (problem.empty()) problem = error.what();
    }
  };
  const std::optional<NetlabState> state = path ? read_netlab_state(*path) : std::nullopt;
  if (state) {
    names.merge(namespaces_of(state->spec));
    done.switch_ran = is_running(state->switch_process);
    attempt([&] { end_process(state->switch_process, kPatience); });
  }
  for (const std::string& name : names) {
    for (const int pid : processes_in(name)) {
      if (pid != getpid()) done.processes.push_back(pid);
    }
    attempt([&] {
      if (remove_namespace(name)) done.removed.push_back(name);
    });
  }
  // The state goes last: until then another `down` finds what is left.
  if (!problem.empty()) throw NetlabError(problem);
  if (path) {
    unlink(netlab_counters_path(*path).c_str());
    unlink(path->c_str());
  }
  return done;
}

bool is_whole(const NetlabState& state) {
  const std::set<std::string> names = namespaces_of(state.spec);
  return is_running(state.switch_process) &&
         std::all_of(names.begin(), names.end(), [](const auto& n) { return namespace_exists(n); });
}

/// One line, without its end; empty when none came in time.
std::string read_answer(int fd, int timeout_ms) {
  std::string line;
  pollfd waiting{fd, POLLIN, 0};
  char c = 0;
  while (c != '\n') {
    const int ready = poll(&waiting, 1, timeout_ms);
    if (ready < 0 && errno == EINTR) continue;  // The signal is somebody else's to answer.
    if (ready <= 0 || read(fd, &c, 1) != 1) return "";
    if (c != '\n') line += c;
  }
  return line;
}

void start_switch(const std::string& path, NetlabState& state, const NetlabOptions& options) {
  std::vector<std::string> command = options.switch_command;
  if (!command.empty()) command.push_back(path);
  const Detached started = start_detached(command, [&] { return serve_netlab_switch(path); });
  state.switch_process = started.process;
  write_netlab_state(path, state);
  const bool told = send(started.channel.fd(), "\n", 1, MSG_NOSIGNAL) == 1;
  const std::string said = told ? read_answer(started.channel.fd(), kReadyMs) : "";
  if (said == kReady) return;
  throw NetlabError(said.empty() ? "the switch does not start" : said);
}

/// False: whoever started this process has gone.
bool wait_for_start() {
  char c = 0;
  return read(STDIN_FILENO, &c, 1) == 1;
}

void answer(const std::string& text) {
  const std::string line = text + '\n';
  // Nobody may be there to read it; the switch then works all the same.
  [[maybe_unused]] const ssize_t written = write(STDOUT_FILENO, line.data(), line.size());
}

/// The content of a file; empty if it cannot be read.
std::string text_of(const std::string& path) {
  std::string text;
  return read_file(path, text) ? "" : text;
}

NetlabDisturbance disturbance_of(const NetlabCounters::Told& told, int nodes) {
  NetlabDisturbance out;
  out.loss = static_cast<double>(told.lost.load()) / kMillion;
  out.late = static_cast<double>(told.late.load()) / kMillion;
  out.lateness = Seconds{1e-9 * static_cast<double>(told.late_ns.load())};
  for (int from = 0; from < nodes; ++from) {
    const std::uint64_t cut = told.cut[from].load();
    for (int to = 0; to < nodes; ++to) {
      if ((cut >> to & 1) != 0) out.cuts.emplace_back(from, to);
    }
  }
  return out;
}

std::vector<Socket> open_taps(const NetlabSpec& spec) {
  const Socket own(open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  std::vector<Socket> taps;
  for (int node = 0; node < size_of(spec); ++node) {
    enter_namespace(namespace_name(spec, node));
    taps.push_back(open_tap(spec, node));
  }
  if (setns(own.fd(), CLONE_NEWNET) != 0) throw_netlab("leave the nodes' namespaces", errno);
  return taps;
}

}  // namespace

std::vector<std::string> netlab_state_folders() {
  std::vector<std::string> folders;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime == '/') folders.push_back(fmt::format("{}/orrery", runtime));
  folders.emplace_back("/run/orrery");
  folders.push_back(fmt::format("/tmp/orrery-{}", geteuid()));
  return folders;
}

NetlabUp netlab_up(const NetlabSpec& spec, const NetlabOptions& options) {
  require_sound(spec);
  const std::string folder = netlab_writable_folder(options.state_folders);
  const NetlabLock lock(folder);
  if (const auto found = find_netlab_state(spec.name, options.state_folders)) {
    const std::optional<NetlabState> old = read_netlab_state(*found);
    if (old && is_whole(*old)) {
      if (old->spec == spec) return NetlabUp::already_up;
      throw NetlabError(
          fmt::format("the lab '{}' is up with other settings; take it down first", spec.name));
    }
    remove_all(found, spec);
  }
  for (const std::string& name : namespaces_of(spec)) {
    if (namespace_exists(name)) {
      throw NetlabError(fmt::format(
          "there is a namespace {} of no lab that is known; `orrery netlab down` removes it",
          name));
    }
  }
  if (const std::string reason = netlab_unavailable(); !reason.empty()) throw NetlabError(reason);
  const std::string path = netlab_state_path(folder, spec.name);
  NetlabState state{spec, {}};
  try {
    write_netlab_state(path, state);
    map_netlab_counters(netlab_counters_path(path), true);
    for (const std::string& name : namespaces_of(spec)) create_namespace(name);
    start_switch(path, state, options);
  } catch (...) {
    remove_all(path, spec);
    throw;
  }
  return NetlabUp::created;
}

void describe(config::Visitor& v, NetlabDown& down) {
  v.required("name", down.name, "");
  v.required("switch_ran", down.switch_ran, "");
  v.required("removed", down.removed, "");
  v.required("processes", down.processes, "");
}

NetlabDown netlab_down(const NetlabSpec& spec, const NetlabOptions& options) {
  require_sound(spec);
  const NetlabLock lock(netlab_writable_folder(options.state_folders));
  return remove_all(find_netlab_state(spec.name, options.state_folders), spec);
}

void netlab_disturb(const NetlabSpec& spec, const NetlabDisturbance& disturbance,
                    const NetlabOptions& options) {
  require_sound(spec);
  if (const auto problems = find_problems(spec, disturbance); !problems.empty()) {
    throw NetlabError(fmt::format("{}", fmt::join(problems, "; ")));
  }
  const auto path = find_netlab_state(spec.name, options.state_folders);
  const std::optional<NetlabState> state = path ? read_netlab_state(*path) : std::nullopt;
  const std::shared_ptr<NetlabCounters> counters =
      state ? map_netlab_counters(netlab_counters_path(*path), false) : nullptr;
  if (!counters || state->spec != spec || !is_whole(*state)) {
    throw NetlabError(fmt::format("no lab '{}' with these settings is up", spec.name));
  }
  std::array<std::uint64_t, kMostNetlabNodes> cuts{};
  for (const auto& [from, to] : disturbance.cuts) cuts[from] |= std::uint64_t{1} << to;
  NetlabCounters::Told& told = counters->told;
  told.lost = std::llround(kMillion * disturbance.loss);
  told.late = std::llround(kMillion * disturbance.late);
  told.late_ns = std::llround(1e9 * disturbance.lateness.value);
  std::copy(cuts.begin(), cuts.end(), told.cut);
}

NetlabStatus netlab_status(const NetlabSpec& spec, const NetlabOptions& options) {
  require_sound(spec);
  NetlabStatus status;
  status.ports.resize(spec.nodes.size());
  for (int node = 0; node < size_of(spec); ++node) {
    NetlabPortStatus& port = status.ports[node];
    port.present = namespace_exists(namespace_name(spec, node));
    port.processes = processes_in(namespace_name(spec, node));
  }
  const auto path = find_netlab_state(spec.name, options.state_folders);
  const std::optional<NetlabState> state = path ? read_netlab_state(*path) : std::nullopt;
  if (!state) return status;
  status.known = true;
  status.same = state->spec == spec;
  if (is_running(state->switch_process)) status.switch_pid = state->switch_process.pid;
  const std::shared_ptr<NetlabCounters> counters =
      map_netlab_counters(netlab_counters_path(*path), false);
  if (!counters || !status.same) return status;
  status.real_time = counters->real_time.load() != 0;
  status.late_frames = counters->late_frames.load();
  status.worst_late_seconds = 1e-9 * static_cast<double>(counters->worst_late_ns.load());
  status.disturbance = disturbance_of(counters->told, size_of(spec));
  for (std::size_t node = 0; node < status.ports.size(); ++node) {
    const NetlabCounters::Port& from = counters->ports[node];
    NetlabPortStatus& port = status.ports[node];
    port.sent_frames = from.sent_frames.load();
    port.sent_bytes = from.sent_bytes.load();
    port.received_frames = from.received_frames.load();
    port.received_bytes = from.received_bytes.load();
    port.dropped = from.dropped.load();
    port.lost = from.lost.load();
    port.stranded = from.stranded.load();
    port.refused = from.refused.load();
  }
  return status;
}

int serve_netlab_switch(const std::string& state_path) {
  if (!wait_for_start()) return 1;
  try {
    const std::optional<NetlabState> state = read_netlab_state(state_path);
    if (!state) throw NetlabError(fmt::format("{} is no state of a lab", state_path));
    const std::shared_ptr<NetlabCounters> counters =
        map_netlab_counters(netlab_counters_path(state_path), false);
    if (!counters) throw NetlabError(fmt::format("{} has no counters", state_path));
    const std::vector<Socket> taps = open_taps(state->spec);
    take_real_time(*counters);
    answer(kReady);
    // Frames wait meanwhile: texts are compared, not read.
    run_netlab_switch(state->spec, taps, *counters, [&, known = text_of(state_path)] {
      return !known.empty() && text_of(state_path) == known;
    });
    return 0;
  } catch (const NetlabError& error) {
    answer(error.what());
    return 1;
  }
}

}  // namespace orrery::executor
