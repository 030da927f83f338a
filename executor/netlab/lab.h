/// Labs: emulated nodes that stay when the command that made them has ended. A lab is its
/// namespaces, the process of its switch, and two files in a state folder: NAME.lab (what it is and
/// who its switch is) and NAME.counters.
///
/// The state is written before what it speaks of is made, and a switch ends when its state is gone,
/// so that netlab_down() finds all that any crash leaves. Commands on labs exclude each other by a
/// lock on the folder.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/netlab/error.h"
#include "executor/netlab/spec.h"

namespace orrery::executor {

/// Where states lie: the first of $XDG_RUNTIME_DIR/orrery, /run/orrery and /tmp/orrery-UID in which
/// this user may write. A state that lies in another of them is found too.
std::vector<std::string> netlab_state_folders();

struct NetlabOptions {
  std::vector<std::string> state_folders = netlab_state_folders();
  /// Program and arguments that serve_netlab_switch(), to which the path of the state is added.
  /// Empty: the switch is a copy of the calling process, which must have one thread.
  std::vector<std::string> switch_command;
};

enum class NetlabUp { created, already_up };

/// Sets the lab up. A lab of this name whose switch has died is removed first. Throws NetlabError,
/// having removed all it made: not permitted, the name is in use by a lab with other settings.
NetlabUp netlab_up(const NetlabSpec& spec, const NetlabOptions& options);

struct NetlabDown {
  std::string name;  ///< Of the lab.
  bool switch_ran = false;
  std::vector<std::string> removed;  ///< Namespaces.
  std::vector<int> processes;        ///< Still run in removed namespaces.
};
void describe(config::Visitor& v, NetlabDown& down);
/// Removes the lab of the spec's name: its switch, its namespaces, those that `spec` names, and its
/// files, as far as they are there.
NetlabDown netlab_down(const NetlabSpec& spec, const NetlabOptions& options);

/// From now on frames of the lab fare as told, until they are told otherwise or the lab is taken
/// down. Throws NetlabError: no such lab is up.
void netlab_disturb(const NetlabSpec& spec, const NetlabDisturbance& disturbance,
                    const NetlabOptions& options);

struct NetlabPortStatus {
  bool present = false;  ///< Its namespace is there.
  std::int64_t sent_frames = 0;
  std::int64_t sent_bytes = 0;
  std::int64_t received_frames = 0;
  std::int64_t received_bytes = 0;
  std::int64_t dropped = 0;
  std::int64_t lost = 0;  ///< As a disturbance told.
  std::int64_t stranded = 0;
  std::int64_t refused = 0;
  std::vector<int> processes;
};
struct NetlabStatus {
  bool known = false;  ///< A state is there.
  bool same = false;   ///< Its settings are those of the spec that was asked for.
  int switch_pid = 0;  ///< 0: no switch runs.
  bool real_time = false;
  std::int64_t late_frames = 0;
  double worst_late_seconds = 0;
  NetlabDisturbance disturbance;
  std::vector<NetlabPortStatus> ports;  ///< By node of the spec.
  bool up() const { return switch_pid > 0; }
};
NetlabStatus netlab_status(const NetlabSpec& spec, const NetlabOptions& options);

/// First argument of a program that is to serve_netlab_switch(); the path of the state follows.
inline constexpr const char* kNetlabSwitchCommand = "netlab-switch";
/// The switch of the lab with this state: waits for a line on standard input, builds the ports,
/// answers "ok" or what went wrong in one line on standard output, and carries frames until it is
/// ended. Returns the exit status.
int serve_netlab_switch(const std::string& state_path);

}  // namespace orrery::executor
