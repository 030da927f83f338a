/// The nodes of a cluster as emulated nodes of this machine: what the simulator reads from the
/// cluster file is what the emulated network gets. What `orrery netlab` does, and a lab for the
/// time of a run.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/netlab/lab.h"
#include "executor/netlab/spec.h"
#include "experiments/study/call.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"
#include "models/spec/cluster.h"

namespace orrery::experiments {

enum class NetlabAction { up, down, status, disturb };
std::vector<std::pair<NetlabAction, const char*>> enum_names(NetlabAction);

/// Emulated nodes on this machine.
struct NetlabSettings {
  NetlabAction action = NetlabAction::status;
  std::string cluster;
  executor::NetlabDisturbance disturbance;  ///< But its cuts.
  std::vector<std::string> cuts;            ///< FROM:TO by nodes' names.
};
void describe(config::Visitor& v, NetlabSettings& settings);

/// One node of a lab.
struct LabNode {
  executor::NetlabNode node;
  std::string network_namespace;
  std::string address;
  double slowdown = 1;
  executor::NetlabPortStatus port;
};
void describe(config::Visitor& v, LabNode& node);

/// A lab as it is.
struct LabReport {
  executor::NetlabSpec spec;
  executor::NetlabStatus status;
  std::string state;  ///< up, up with other settings, down, broken
  std::vector<LabNode> nodes;
  std::vector<std::string> differences;  ///< netlab_differences()
};
void describe(config::Visitor& v, LabReport& report);

/// What is there; after `down` what was taken away.
struct NetlabResult {
  std::variant<LabReport, executor::NetlabDown> is;
};
void describe(config::Visitor& v, NetlabResult& result);

/// Throws ConfigError for a cluster that cannot be emulated, NetlabError.
NetlabResult netlab(const NetlabSettings& settings, const Call& call);

/// Port: the sum of the node's NICs, each at what large messages achieve, and half of the latency
/// of its slowest NIC and of its leaf. Leaves share uplinks, pairs have their overrides. Speed of a
/// node's devices: peak x efficiency at fp32, or at the first dtype that all GPU types have. Links
/// inside nodes are not emulated.
executor::NetlabSpec netlab_of(const models::Cluster& cluster);

/// What the emulation cannot do as the simulator does it, in words: several NICs of a node are one
/// port, devices of a node are joined by its loopback.
std::vector<std::string> netlab_differences(const models::Cluster& cluster);

/// The cluster as a lab; what it cannot be is reported at the setting `netlab`.
executor::NetlabSpec netlab_for_run(const models::Cluster& cluster,
                                    config::Diagnostics& diagnostics);

/// By device of the lab: how far its compute is stretched, so that devices differ as the cluster
/// says and all together need no more cores than there are (netlab_slowdowns()).
std::map<std::int32_t, double> lab_slowdowns(const executor::NetlabSpec& spec);

/// The emulated network of a run: set up for it, removed after it, with an agent in each node.
class ClusterLab {
 public:
  /// Sets it up, or uses it if it is up with the same settings. `say` gets lines. Throws
  /// NetlabError.
  ClusterLab(executor::NetlabSpec spec, std::function<void(const std::string&)> say);
  /// Removes it, if this object set it up.
  ~ClusterLab();
  ClusterLab(const ClusterLab&) = delete;
  ClusterLab& operator=(const ClusterLab&) = delete;

  /// A host for each node, whose agent is started in the node's namespace.
  std::vector<executor::HostSlots> hosts() const;
  /// executor::launch() in the first node's namespace: nodes see each other, not the machine.
  executor::LaunchReport launch(executor::LaunchOptions options) const;

 private:
  executor::NetlabSpec spec_;
  std::function<void(const std::string&)> say_;
  bool created_ = false;
};

}  // namespace orrery::experiments
