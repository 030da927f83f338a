/// Does a plan fit? A value, not an error.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"

namespace orrery::ir {

/// Peak memory of the worst device of one GPU type.
struct MemoryUse {
  std::string gpu;
  DeviceId device;
  int pipeline = 0;
  int stage = 0;
  Bytes need;
  Bytes have;
  bool fits() const { return need <= have; }
};

/// Model states in host memory (Plan::optimizer_offload) of the node whose devices have most of it.
struct HostMemoryUse {
  std::string node;
  Bytes need;
  Bytes have;
  bool fits() const { return need <= have; }
};

/// A verdict, not an error: published plans that do not fit are simulated and marked.
struct MemoryVerdict {
  std::vector<MemoryUse> by_gpu_type;  ///< Worst device of each type that the plan uses.
  std::optional<HostMemoryUse> host;   ///< None where nothing lives there.
  bool fits() const;
  /// "stage 3 of pipeline 0 needs 91 GiB, RTX 4090 has 24 GiB", or "fits".
  std::string explain() const;
};

}  // namespace orrery::ir
