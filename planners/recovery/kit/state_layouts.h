/// How a plan's state lies on its devices, tensor by tensor, each different layout once; and how
/// much that is by device, remembered for plans that cut the state alike. Private to the kit.
#pragma once
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "models/ir/plan.h"
#include "models/reshard/link_ranks.h"
#include "models/reshard/reshard_plan.h"
#include "models/sharding/layout.h"
#include "models/spec/cluster.h"
#include "models/spec/workload.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Device of `layout` -> device of `plan` when both cut the state alike, by device id of the
/// layout (-1: not in it); none when they do not.
std::optional<std::vector<int>> same_shares(const ir::Plan& layout, const ir::Plan& plan,
                                            int devices);

/// By device id: whether it surely has the same share of the state under both plans, whatever the
/// others do. All false where shares depend on others: under ZeRO, expert parallelism and shadows.
std::vector<bool> unchanged_shares(const ir::Plan& layout, const ir::Plan& plan, int devices);

/// How much state is where, for all plans with the same shares (same_shares()).
struct StateSizes {
  /// A slice of a tensor, or of tensors that lie alike, and who holds it whole, by device id.
  struct Replicas {
    double bytes = 0;
    std::vector<int> holders;
  };
  ir::Plan plan;
  models::ReshardBytes per_parameter;
  std::vector<double> of_device;  ///< By id.
  std::vector<Replicas> slices;
};

/// Remembers the sizes of the plans that were asked for last, so that those of 16,384 devices under
/// other names take a look at each device and no more; and how fast paths between devices are.
class StateMemory {
 public:
  struct Answer {
    const StateSizes* sizes = nullptr;  ///< Until the next question.
    std::vector<int> to;                ///< Device of sizes->plan -> device of the plan.
  };
  Answer sizes_of(const PolicyInput& input, const ir::Plan& plan,
                  const models::ReshardBytes& bytes);
  /// Of what senders have in `store`. All inputs must name one cluster.
  models::LinkRanks& ranks(const PolicyInput& input, ir::Location store);

 private:
  std::deque<StateSizes> known_;  ///< Asked for last first.
  std::map<ir::Location, models::LinkRanks> ranks_;
};

}  // namespace orrery::planners
