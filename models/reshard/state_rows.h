/// Finest slices of every tensor with those that can give them and those that need them. Equal
/// tables of equal blocks and parameters are made once. For switches between plans and for restores
/// from several replicas of the state (planners/recovery).
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "models/lower/block_replicas.h"
#include "models/reshard/reshard_plan.h"

namespace orrery::models {

/// A layout of the state that slices can be taken from.
struct SliceSource {
  const BlockReplicas* layout = nullptr;
  std::vector<int> reader;  ///< By owner: the device through which its slices are read; -1: none.
};

/// Who can give a slice and who needs it, by ascending id.
struct SliceHolders {
  std::vector<std::vector<int>> readers;  ///< By SliceSource.
  std::vector<int> required;
  auto operator<=>(const SliceHolders&) const = default;
};

/// Bytes per parameter that belong to the part.
double bytes_of(StatePart part, const ReshardBytes& bytes);

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
  /// Keeps references, those of the sources included. `needs`: by device id, whether its state
  /// counts as needed.
  StateTables(const Workload& workload, std::vector<SliceSource> sources, const BlockReplicas& to,
              std::vector<bool> needs);

  /// Which parts of the block's states move apart: all together, or weights and optimizer states.
  std::vector<StatePart> parts(BlockId block, const ReshardBytes& bytes) const;
  /// Blocks are asked for in ascending order: the tables of one live until the first that lies
  /// otherwise.
  const TensorRows& rows(BlockId block, std::size_t parameter, StatePart part);
  const std::vector<SliceHolders>& holders() const { return holders_; }

 private:
  /// Length of the split, expert, tied, part: what decides the rows of a parameter among blocks
  /// that lie alike.
  using Key = std::tuple<std::int64_t, bool, bool, StatePart>;
  TensorRows make_rows(BlockId block, std::size_t parameter, StatePart part);
  std::size_t number(SliceHolders holders);

  const Workload& workload_;
  std::vector<SliceSource> sources_;
  const BlockReplicas& to_;
  std::vector<bool> needs_;
  BlockId current_;
  std::map<Key, TensorRows> known_;  ///< Of blocks like the current one.
  std::vector<SliceHolders> holders_;
  std::map<SliceHolders, std::size_t> numbers_;
};

}  // namespace orrery::models
