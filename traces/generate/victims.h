/// Which devices are present while a trace is generated, and which are hit next. Private to
/// traces/.
#pragma once
#include <cstdint>
#include <vector>

#include "models/base/id_vector.h"
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

  bool away(NodeId node) const { return away_[node]; }
  /// What leaves or comes with its node is not broken any more.
  void set_away(NodeId node, bool away);
  void set_out(NodeId node, bool out);
  int present(NodeId node) const;
  bool present(DeviceId device) const;
  bool any() const;

  /// 0: works.
  std::int64_t failure_of(DeviceId device) const { return failure_[device]; }
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
  IdVector<NodeId, double> weight_;
  IdVector<NodeId, int> leaf_;
  IdVector<NodeId, int> rank_;  ///< Its number among the nodes of its leaf.
  IdVector<NodeId, bool> away_;
  IdVector<NodeId, bool> out_;
  IdVector<DeviceId, std::int64_t> failure_;
  IdVector<NodeId, int> broken_;  ///< How many of its devices have failed.
};

}  // namespace orrery::traces
