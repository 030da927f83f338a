/// Moves of model state between devices and storage, and the interface through which their time is
/// asked for: the simulator with contention, or a fixed rate.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "models/ir/program.h"

namespace orrery::models {

/// One transfer, simulated as a flow. The path goes from the source's storage over its PCIe and
/// NIC to the destination's GPU, or the other way round:
/// - peer: GPU memory of `source`;
/// - host_memory, nvme: of the node of `source`, whose bandwidth its devices share; a source on
///   another node than the destination's is read over the network;
/// - cloud: the cluster's object storage, `source` is invalid.
struct StateTransfer {
  ir::Location from = ir::Location::peer;
  ir::Location to = ir::Location::peer;
  DeviceId source;
  DeviceId destination;  ///< Of what is written to the cloud invalid.
  Bytes bytes;
  auto operator<=>(const StateTransfer&) const = default;
};

/// Names of links (Topology::links()) that are slower than they are built, with the share of their
/// bandwidth that is left, in (0, 1].
using DegradedLinks = std::vector<std::pair<std::string, double>>;

class TransferTimer {
 public:
  virtual ~TransferTimer() = default;
  /// From the common start of all transfers to the end of the last. 0 of none.
  virtual Nanoseconds time(const std::vector<StateTransfer>& transfers,
                           const DegradedLinks& degraded_links = {}) const = 0;
};

}  // namespace orrery::models
