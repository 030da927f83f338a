/// The emulated network of `orrery execute --netlab`: set up for the run, removed after it, with an
/// agent in each node. Private to the execute command.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "executor/netlab/spec.h"
#include "models/config/diagnostics.h"
#include "models/spec/cluster.h"

namespace orrery::tools {

/// The cluster as a lab; what it cannot be is reported at --netlab.
executor::NetlabSpec netlab_for_run(const models::Cluster& cluster,
                                    config::Diagnostics& diagnostics);

class ExecuteLab {
 public:
  /// Sets it up, or uses it if it is up with the same settings. `say` gets lines. Throws
  /// NetlabError.
  ExecuteLab(executor::NetlabSpec spec, std::function<void(const std::string&)> say);
  /// Removes it, if this object set it up.
  ~ExecuteLab();
  ExecuteLab(const ExecuteLab&) = delete;
  ExecuteLab& operator=(const ExecuteLab&) = delete;

  /// A host for each node, whose agent is started in the node's namespace.
  std::vector<executor::HostSlots> hosts() const;
  /// By device: how far its compute is stretched, so that devices differ as the cluster says and
  /// all together need no more cores than there are (netlab_slowdowns()).
  std::map<std::int32_t, double> slowdowns() const;
  /// executor::launch() in the first node's namespace: nodes see each other, not the machine.
  executor::LaunchReport launch(executor::LaunchOptions options) const;

 private:
  executor::NetlabSpec spec_;
  std::function<void(const std::string&)> say_;
  bool created_ = false;
};

}  // namespace orrery::tools
