/// The table of a plan switch: finest slices of every tensor with those that have them before and
/// those that need them after. Equal tables of equal blocks and parameters stand once. Private to
/// models/reshard.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/lower/block_replicas.h"
#include "models/reshard/reshard_plan.h"

namespace orrery::models {

/// Who has a slice before and who needs it after, by ascending id.
struct SliceHolders {
  std::vector<int> owners;  ///< Alive.
  std::vector<int> lost;    ///< Owners that are lost.
  std::vector<int> required;
  auto operator<=>(const SliceHolders&) const = default;
};

/// A slice and its holders, as an index into StateTables::holders().
struct HeldSlice {
  Slice slice;
  std::size_t holders = 0;
};

/// The slices of a tensor that somebody needs, upwards.
struct TensorRows {
  std::int64_t length = 0;
  std::vector<HeldSlice> slices;
};

class StateTables {
 public:
  /// Keeps references. `is_lost` is by device id.
  StateTables(const Workload& workload, const BlockReplicas& from, const BlockReplicas& to,
              std::vector<bool> is_lost);

  /// Which parts of the block's states move apart: all together, or weights and optimizer states.
  std::vector<StatePart> parts(BlockId block, const ReshardBytes& bytes) const;
  /// Blocks are asked for in ascending order: the tables of one live until the first that lies
  /// otherwise.
  const TensorRows& rows(BlockId block, std::size_t parameter, StatePart part);
  const std::vector<SliceHolders>& holders() const { return holders_; }

 private:
  /// Length of the split, expert, tied, sharded before, sharded after: what decides the rows of a
  /// parameter among blocks that lie alike.
  using Key = std::tuple<std::int64_t, bool, bool, bool, bool>;
  TensorRows make_rows(const Layout& before, const Layout& after);
  std::size_t number(SliceHolders holders);

  const Workload& workload_;
  const BlockReplicas& from_;
  const BlockReplicas& to_;
  std::vector<bool> is_lost_;
  BlockId current_;
  std::map<Key, TensorRows> known_;  ///< Of blocks like the current one.
  std::vector<SliceHolders> holders_;
  std::map<SliceHolders, std::size_t> numbers_;
};

}  // namespace orrery::models
