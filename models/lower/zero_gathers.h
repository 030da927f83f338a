/// ZeRO-3: the gathers that bring a block's parameters together before a pass can use them.
/// Private to models/lower.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "models/base/id_vector.h"
#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/lower/block_replicas.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// All-gathers of `bytes` each (size of the gathered tensor), side by side.
struct GatherRound {
  std::vector<std::vector<DeviceId>> sets;
  Bytes bytes;
};

class ZeroGathers {
 public:
  ZeroGathers(const Workload& workload, const BlockReplicas& replicas, double bytes_per_weight);

  /// Blocks of one class have equal gathers; -1: none.
  int class_of(BlockId block) const { return class_of_[block]; }

  /// What the devices of a group gather, one round after the other, for a block of the class. All
  /// parameters of a block travel together, as in one flat buffer: tensors too short to be cut
  /// (norms), which one device sends to the others, count like parts of the gather. Where a device
  /// gathers with several sets (degrees differ between replicas) each round has one of them. A
  /// device that sits a round out is a set of its own, so that every device has its part in each
  /// collective of the group's passes. The bytes of a round are the mean of its true sets.
  std::vector<GatherRound> rounds(int block_class, const ir::Group& group) const;

 private:
  struct Gather {
    std::vector<DeviceId> devices;  ///< Ascending: rings run node by node.
    Bytes bytes;
  };
  struct BlockClass {
    std::vector<Gather> gathers;
    std::map<DeviceId, std::vector<std::size_t>> of_device;  ///< Indices into gathers, ascending.
  };
  static BlockClass make_class(BlockId block, const Workload& workload,
                               const BlockReplicas& replicas, double bytes_per_weight);

  IdVector<BlockId, int> class_of_;
  std::vector<BlockClass> classes_;
};

}  // namespace orrery::models
