/// Slurm's topology.conf or topology.yaml (topology/tree and block), as Slurm or NVIDIA's topograph
/// write them, as the leaves of a cluster.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/config/units.h"
#include "models/spec/library.h"

namespace orrery::calibration {

struct SlurmNode {
  std::string name;
  int leaf = 0;  ///< Number of its switch among those that have nodes, in the order of the file.
};

/// Nodes by name as the file lists them, host lists ("tux[0-3,12,018-020]") expanded. Lines:
/// SwitchName= or BlockName=, with Nodes= or Switches=; LinkSpeed= and BlockSizes= are not used. A
/// file whose name ends in .yaml or .yml is read as topology.yaml. Names of keys in any case; "#"
/// begins a comment. Unknown keys, switches that do not exist, nodes on two switches, broken host
/// lists and more than 100,000 hosts are problems at their position.
std::vector<SlurmNode> read_slurm_topology(const std::string& path,
                                           config::Diagnostics& diagnostics);

/// Host list as Slurm writes it: at most 100,000 names of at most 255 characters. Nothing when it
/// is broken, which `error` tells.
std::optional<std::vector<std::string>> expand_host_list(const std::string& text,
                                                         config::TextError& error);

/// A cluster file whose nodes are those of topology.conf, each as the only node of `node_file` (a
/// cluster file such as node_yaml's, of GPU types and link classes of the library or its own), with
/// its leaf. Levels above the leaves are one spine: clusters have two levels.
std::string import_slurm_topology(const std::string& path, const std::string& node_file,
                                  const models::Library& library, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
