/// Nodes of a cluster that are emulated on one machine, as plain data: a network namespace for each
/// node, and a switch in user space that gives each port and each pair of nodes its rate and its
/// latency (lab.h sets it up, fabric.h says how frames pass).
///
/// Rates count whole Ethernet frames. Frames carry 9,000 bytes of IP, so that TCP reaches 99.3 % of
/// a rate: a rate here is what the simulator calls the achieved bandwidth of a link.
#pragma once
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/config/visitor.h"

namespace orrery::executor {

struct NetlabNode {
  std::string name;     ///< Letters, digits, '_', '.', '-'.
  BytesPerSecond rate;  ///< Of its port, each direction.
  Seconds latency;      ///< Of its port, one way. A frame takes that of both ends.
  int uplink = -1;   ///< Index into NetlabSpec::uplinks: frames to nodes with another uplink pass
                     ///< both; -1: none.
  int devices = 1;   ///< Ranks that compute on it.
  double speed = 1;  ///< Of one of its devices, in any unit that all nodes share.

  bool operator==(const NetlabNode&) const = default;
};

/// Both directions, each with a rate of its own.
struct NetlabPair {
  int a = 0;
  int b = 0;
  std::optional<BytesPerSecond> rate;  ///< A limit on top of those of the ports.
  std::optional<Seconds> latency;      ///< One way, instead of the ports' latencies.

  bool operator==(const NetlabPair&) const = default;
};

/// What the nodes of a leaf switch share towards all others, each direction.
struct NetlabUplink {
  BytesPerSecond rate;

  bool operator==(const NetlabUplink&) const = default;
};

struct NetlabSpec {
  std::string name;
  std::vector<NetlabNode> nodes;
  std::vector<NetlabPair> pairs;  ///< Each pair at most once.
  std::vector<NetlabUplink> uplinks;

  bool operator==(const NetlabSpec&) const = default;
};

/// What befalls frames on their way, on top of rates and latencies. Nothing by default.
struct NetlabDisturbance {
  double loss = 0;  ///< Share of the frames that are lost, of all pairs of nodes.
  double late = 0;  ///< Share that are held back by `lateness`: later ones overtake them.
  Seconds lateness{0.01};
  std::vector<std::pair<int, int>> cuts;  ///< (from, to): what the first sends does not arrive.

  bool operator==(const NetlabDisturbance&) const = default;
};

/// Most nodes of one lab: each takes a namespace, and ranks share the cores of one machine.
inline constexpr int kMostNetlabNodes = 64;
/// Bytes of IP in a frame.
inline constexpr int kNetlabMtu = 9000;
/// The nodes' device in their namespaces.
inline constexpr const char* kNetlabDevice = "eth0";

/// What cannot be set up, in words: names, counts, rates, latencies, indices. Empty: it can.
std::vector<std::string> find_problems(const NetlabSpec& spec);
/// What is wrong with a disturbance of the lab: shares, lateness, nodes. Empty: nothing.
std::vector<std::string> find_problems(const NetlabSpec& spec,
                                       const NetlabDisturbance& disturbance);

/// "orrery-<lab>-<node>".
std::string namespace_name(const NetlabSpec& spec, int node);
/// 10.77.0.1 is the first node's; all are in 10.77.0.0/24. Labs do not see each other.
std::string netlab_address(int node);
/// One way, from sending a frame of no length to its arrival.
Seconds netlab_latency(const NetlabSpec& spec, int a, int b);

/// The part of `cores` that is left to the switch and to the ranks' transport threads: half a core,
/// but at most a quarter of what there is. Without it ranks whose passes meet wait for a core, and
/// an op takes longer than its stretched time (`disturbed` in the run log).
double netlab_reserve(double cores);

/// For each node the factor by which each of its ranks must stretch the compute time that it
/// measures (WorkerOptions::slowdown), so that all ranks together need at most the `cores` cores
/// less what netlab_reserve() leaves to the network, and devices differ as their speeds do:
/// 1 / (k speed), k = min(1 / max speed, cores for ranks / sum of all devices' speeds). The fastest
/// device is not stretched where there are cores enough.
std::vector<double> netlab_slowdowns(const NetlabSpec& spec, double cores);

/// Quantities in base units, so that they are read back equal.
void describe(config::Visitor& v, NetlabSpec& spec);

}  // namespace orrery::executor
