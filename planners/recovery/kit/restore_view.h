/// The copies of one iteration as a restore sees them: who can still read which share of which
/// layout, and where. Private to the kit.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/base/ids.h"
#include "models/interfaces/recovery_policy.h"
#include "models/spec/cluster.h"
#include "planners/recovery/kit/restore.h"

namespace orrery::planners {

/// Device of `layout` -> device of `plan` when both cut the state alike, by device id of the
/// layout (-1: not in it); none when they do not.
std::optional<std::vector<int>> same_shares(const ir::Plan& layout, const ir::Plan& plan,
                                            int devices);

/// A copy without what is gone.
struct ViewedCopy {
  ir::Location location = ir::Location::peer;
  std::size_t layout = 0;  ///< Index into RestoreView::layouts().
  /// By device id of the layout: the live device through which its share is read, -1 when it is
  /// gone or nobody reaches it. In the cloud the device itself.
  std::vector<int> reader;
  bool whole = false;  ///< Every share of the layout is there.
};

class RestoreView {
 public:
  /// Keeps references. A GPU's memory is reached while the device lives, host memory and NVMe
  /// while any device of the node does: through the holder itself, else the first live device.
  RestoreView(const models::Cluster& cluster, const models::JobState& state,
              std::int64_t iteration);

  const models::Cluster& cluster() const { return cluster_; }
  const std::vector<ViewedCopy>& copies() const { return copies_; }
  const std::vector<const ir::Plan*>& layouts() const { return layouts_; }
  /// What `receiver` may read from a reader of a copy in `location` by `source`.
  bool reaches(StateSource source, int reader, int receiver) const;

 private:
  int reader_of(ir::Location location, DeviceId holder) const;

  const models::Cluster& cluster_;
  std::vector<bool> live_;         ///< By device.
  std::vector<int> live_of_node_;  ///< By node: its first live device, -1.
  std::vector<ViewedCopy> copies_;
  std::vector<const ir::Plan*> layouts_;
};

/// Where the source's copies lie.
ir::Location location_of(StateSource source);

}  // namespace orrery::planners
