/// Which devices of a run have the same machine: ranks decide by it whether they share GPUs. The
/// launcher knows it and tells each node through the store. Private to executor/launcher.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "executor/launcher/launcher.h"
#include "models/config/visitor.h"

namespace orrery::executor {

struct Neighbors {
  /// The machine plays several nodes: those of an emulated network.
  bool emulated_nodes = false;
  std::vector<int> devices;  ///< That may run on the machine in any generation; ascending.
};
void describe(config::Visitor& v, Neighbors& neighbors);

/// By node, in the order of the hosts (of one for this machine where there are none). `node_of`
/// gives a device's node. With settings.elastic any device of the run may get a rank, else those
/// of the programs that are known.
std::vector<Neighbors> find_neighbors(const LaunchOptions& options,
                                      const std::function<int(DeviceId)>& node_of);

/// Where a node finds its own in the store.
std::string neighbors_key(const std::string& node);

}  // namespace orrery::executor
