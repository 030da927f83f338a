/// How the devices of one node are connected, from `nvidia-smi topo -m` or NCCL's topology file, as
/// a cluster file of one node.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"

namespace orrery::calibration {

/// GPUs and NICs of one node. What is said of their pairs grows with the square.
constexpr std::size_t kMostNodeDevices = 1024;

/// By GPU (and NIC), in the order of the file.
struct NodeTopology {
  std::vector<std::vector<bool>> nvlink;       ///< Joined by NVLink or NVSwitch.
  std::vector<std::vector<bool>> same_switch;  ///< Below a common PCIe switch.
  std::vector<std::vector<int>> nic_distance;  ///< [GPU][NIC]; the nearest ones are used.
  std::size_t gpus() const { return nvlink.size(); }
};

/// The matrix that `nvidia-smi topo -m` prints; columns up to "CPU Affinity", GPU rows. Cells: X,
/// NV#, PIX and PXB (below a common switch), PHB, NODE, SYS. Unknown cells, missing rows and rows
/// of another length are problems at their position.
NodeTopology read_nvidia_topo(const std::string& path, config::Diagnostics& diagnostics);

/// The XML file that NCCL writes with NCCL_TOPO_DUMP_FILE. GPUs in the order of `dev`; GPUs with an
/// <nvlink> to a bridge (NVSwitch, tclass 0x068000) are all joined, others with the GPU at
/// `target`. Two devices below one <pci> are below a common switch. A <nic> with a <net> is a NIC.
NodeTopology read_nccl_topo(const std::string& path, config::Diagnostics& diagnostics);

/// GPUs that links join: those that are all joined are one domain; where they are not all joined to
/// each other, each joined pair is one.
std::vector<std::vector<int>> link_domains(const std::vector<std::vector<bool>>& joined);

/// Names in the library (or of the cluster file that the text goes into).
struct NodeNames {
  std::string node = "node";
  std::string gpu;
  std::string nvlink;  ///< Link classes.
  std::string pcie;
  std::string nic;
  std::string source;
};

/// A cluster file (orrery/cluster/1) of one node, with link_domains() of its NVLink. Each NIC may
/// be used by the GPUs to which no other is nearer. Names that are needed and missing are problems.
std::string node_yaml(const NodeTopology& topology, const NodeNames& names,
                      config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
