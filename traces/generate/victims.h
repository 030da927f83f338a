/// Which devices are present while a trace is generated, and which are hit next. Private to
/// traces/.
#pragma once
#include <cstdint>
#include <vector>

#include "models/base/rng.h"
#include "traces/generate/settings.h"
#include "traces/layout.h"

namespace orrery::traces {

/// A device is there if its node is neither away (spot) nor out (maintenance) and it has not
/// failed.
class Victims {
 public:
  Victims(const TraceLayout& layout, std::vector<int> leaf, const LemonNodes& lemons,
          const Rng& rng);

  bool away(NodeId node) const { return away_[node.index()]; }
  /// What leaves or comes with its node is not broken any more.
  void set_away(NodeId node, bool away);
  void set_out(NodeId node, bool out);
  int present(NodeId node) const;
  bool present(DeviceId device) const;
  bool any() const;

  /// 0: works.
  std::int64_t failure_of(DeviceId device) const { return failure_[device.index()]; }
  void fail(DeviceId device, std::int64_t failure);
  void mend(DeviceId device);

  /// Devices that a failure of this scope hits, ascending; none if there is nobody. gpu: a device
  /// that is there, by the weight of its node. node: all devices of a node that is complete. leaf:
  /// such a node and those that are complete among its neighbors: the nodes of a leaf, in order,
  /// in blocks of `nodes`.
  std::vector<DeviceId> draw(FailureScope scope, int nodes, Rng& rng) const;

 private:
  bool complete(NodeId node) const { return present(node) == layout_.gpus(node); }
  void mend_all(NodeId node);
  NodeId draw_node(bool whole, Rng& rng) const;
  void add_node(NodeId node, std::vector<DeviceId>& devices) const;

  const TraceLayout& layout_;
  std::vector<double> weight_;  ///< By node.
  std::vector<int> block_leaf_;
  std::vector<int> rank_;  ///< By node: its number among those of its leaf.
  std::vector<bool> away_;
  std::vector<bool> out_;
  std::vector<std::int64_t> failure_;  ///< By device.
  std::vector<int> broken_;            ///< Failed devices, by node.
};

}  // namespace orrery::traces
