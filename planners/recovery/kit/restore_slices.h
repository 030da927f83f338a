/// The slow way of a restore: slice by slice, for devices that no copy serves with their whole
/// share. Private to the kit.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/plan.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/restore_view.h"

namespace orrery::planners {

/// Takes what is served: by which source, read through which device, for whom.
using ServedShare = std::function<void(StateSource source, int reader, int receiver, Bytes bytes)>;

struct UnservedShare {
  Bytes bytes;
  std::string witness;  ///< The first slice that nobody has.
};

/// Cuts the state that `receivers` (ascending, devices of `to`) need into the finest slices of all
/// layouts and serves each from the first source in the order that has it. Rows stand as in
/// models/reshard/reshard_plan.h; peers are chosen by models/sharding/batched_send_receive.h and
/// the bandwidth of models/reshard/link_ranks.h, that of their host memory or NVMe included, with
/// loads that count over all rows, apart for GPUs, host memory and NVMe.
UnservedShare serve_slices(const RestoreView& view, const models::Topology& topology,
                           const models::Workload& workload, const ir::Plan& to,
                           const std::vector<int>& receivers, const RestoreOptions& options,
                           const ServedShare& served);

}  // namespace orrery::planners
