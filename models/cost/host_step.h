/// Optimizer states in host memory, which the CPU steps (ir::Plan::optimizer_offload) [Ren et al.,
/// ZeRO-Offload, ATC 2021, 4.1; Megatron-LM, megatron/core/optimizer/cpu_offloading].
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "models/base/id_vector.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"

namespace orrery::models {

/// What the cluster file lacks to say how a device reaches its host's memory: "pcie",
/// "host_memory"; "": nothing.
std::string lacks_host(const Cluster& cluster, DeviceId device);

/// What one device has of its host while the others on the node do the same.
struct HostShare {
  BytesPerSecond link;    ///< Between device and host, each way.
  BytesPerSecond memory;  ///< Of the host memory's bandwidth.
};

/// Slots of a shared class and uplinks of PCIe switches are shared by the used devices behind them,
/// the host's memory by those of the node. Keeps the reference; no device lacks_host().
class HostShares {
 public:
  HostShares(const Cluster& cluster, std::span<const DeviceId> used);
  HostShare of(DeviceId device) const;

 private:
  using Switch = std::pair<NodeId, int>;
  const Cluster& cluster_;
  IdVector<NodeId, int> on_node_;
  std::map<Switch, int> behind_switch_;
};

/// Of the devices of a plan or program that work (ir::working_devices): others take no share. None
/// where nothing lives in host memory.
std::optional<HostShares> host_shares(const ir::Plan& plan, const Cluster& cluster);
std::optional<HostShares> host_shares(const ir::Program& program, const Cluster& cluster);

/// The CPU's part of an optimizer step, over `parameters` elements: gradients go down, the CPU
/// reads them, reads and writes master copies and moments, and parameters come up. The three run
/// side by side, parameter by parameter (Megatron-LM's --overlap-cpu-optimizer-d2h-h2d, which it
/// recommends; ZeRO-Offload's tiles), so that the slowest counts; the way of the first gradient and
/// of the last parameter is left out. Copies cross the host's memory, too.
Seconds host_step(const HostShare& share, double parameters, const StateBytes& bytes);

/// Bytes in host memory for `parameters` elements: master copies, moments, and the pinned buffers
/// that gradients go down to.
Bytes host_bytes(double parameters, const StateBytes& bytes);

}  // namespace orrery::models
