/// Model state on the host, slice by slice: what survives the worker that it was taken from. A
/// slice has the master weights and, with Adam, both moments of units [begin, end) of a parameter,
/// in the back end's wide format.
///
/// A process holds at most two versions: after the last finished step, and before its update
/// (the copy that it keeps when the run is elastic). Ranks are never more than one finished step
/// apart: an update needs gradients to which all ranks contribute in forward passes of that step,
/// and these start after their own last update. So survivors always share one of the two.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "executor/engine/worker.h"
#include "executor/model/shard.h"

namespace orrery::executor {

/// State after `step` as `generation` computed it. States of one step from different generations
/// differ in rounding and are not mixed. Later ones are greater.
struct StateVersion {
  std::int64_t step = 0;
  std::int64_t generation = 0;
  auto operator<=>(const StateVersion&) const = default;
};

/// Units of a parameter of a block.
struct StateSlice {
  std::int32_t block = 0;
  std::int32_t parameter = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  auto operator<=>(const StateSlice&) const = default;
};

/// Master weights, first and second moment; without moments (SGD) only the first.
inline constexpr std::size_t kMostParts = 3;

/// Slices with their bytes, in one version.
class StateBank {
 public:
  struct Entry {
    StateSlice slice;
    std::size_t unit_bytes = 0;  ///< Of one part.
    std::vector<std::vector<std::byte>> parts;
  };
  StateVersion version;

  const std::vector<Entry>& entries() const { return entries_; }
  void add(Entry entry) { entries_.push_back(std::move(entry)); }
  std::size_t bytes() const;
  /// The first `parts` parts of the slice, one after the other; an entry must cover it.
  std::vector<std::byte> read(const StateSlice& slice, std::size_t parts) const;
  bool covers(const StateSlice& slice) const;

 private:
  const Entry* find(const StateSlice& slice) const;
  std::vector<Entry> entries_;
};

/// Copies all that the worker updates. Downloads from the back end.
StateBank take_state(Worker& worker, StateVersion version);

/// Parts that the optimizer of this program keeps: 3, or 1 (SGD).
std::size_t state_parts(const ir::Program& program);

/// Puts the first `parts` parts of a slice, as StateBank::read() gives them, into the shard, and
/// the weights that follow from them.
void put_state(ModelShard& shard, const StateSlice& slice, std::size_t parts,
               std::span<const std::byte> bytes);

}  // namespace orrery::executor
