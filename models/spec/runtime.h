/// The runtime under a job: what it takes on a cluster to notice a failure, to start processes, to
/// connect ranks and to search a plan. It is the same for whatever recovers the job; a recovery
/// policy pays for each of these when it does it (planners/recovery/kit/bring_up.h).
///
/// Sources disagree by more than an order of magnitude; each setting names its range, and
/// experiments/llama3/runtime sweeps it.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"

namespace orrery::config {
class Visitor;
}

namespace orrery::models {

/// What notices that a device, a node or a process is gone.
enum class Monitor {
  timeout,      ///< Nobody: the collective that hangs runs into its time-out.
  agent,        ///< Launchers that keep each other alive, as torchrun's.
  heartbeat,    ///< A service that replicas report to, as torchft's lighthouse.
  inspection,   ///< A daemon that looks at the GPUs of each node, as ByteRobust's.
  supervision,  ///< Nodes and processes supervised in-band, as Unicron's agents.
};
std::vector<std::pair<Monitor, const char*>> enum_names(Monitor);

struct Runtime {
  Monitor monitor = Monitor::agent;
  std::optional<Seconds> detect_loss;     ///< None: the monitor's.
  std::optional<Seconds> detect_process;  ///< None: the monitor's.
  Seconds start_node{300};
  Seconds start_process{27.2};
  Seconds connect_rank{5.0 / 2048};
  std::map<std::string, Seconds> search;  ///< By planner; planners that are not named take none.
};

/// YAML and options of `runtime:`.
void describe(config::Visitor& v, Runtime& runtime);

/// Until lost devices are noticed.
Seconds detection_of_loss(const Runtime& runtime);
/// Until the end of a process, or of a machine that closes its connections, is noticed.
Seconds detection_of_process(const Runtime& runtime);
/// "monitor agent: keep-alive 3 x 5 s [...]", for phases.
std::string monitor_source(const Runtime& runtime);

}  // namespace orrery::models
