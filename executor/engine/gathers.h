/// ZeRO-3: weights are kept in shards, and those of a block are brought together for each pass over
/// it, by one all-gather inside each shard group, and a broadcast in the tensor-parallel group of
/// what all its members hold with equal gradients. Private to executor/engine.
///
/// All members of a shard group run the same passes in the same order (find_unrunnable() refuses
/// other programs), so that they meet. Deviation: with full recompute the Program counts a second
/// gather in a backward op; here the weights that the recomputation used are still there.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "executor/engine/rank_view.h"
#include "executor/model/shard.h"
#include "executor/net/transport.h"

namespace orrery::executor {

class ShardGathers {
 public:
  /// Keeps references.
  ShardGathers(const RankView& view, ModelShard& shard, Transport& transport);

  void begin(std::int64_t step);
  /// Makes the weights of the block whole, if they are not. `group` is that of the pass. Throws
  /// TransportError.
  void bring(BlockId block, TensorGroup& group);
  /// Frees what bring() made.
  void drop(BlockId block);

  /// Wall and processor time in gathers, and bytes that this rank sent.
  struct Spent {
    std::int64_t nanoseconds = 0;
    std::int64_t cpu_nanoseconds = 0;
    std::int64_t bytes = 0;
  };
  /// Since the last question.
  Spent take_spent() { return std::exchange(spent_, {}); }

 private:
  void gather(const RankView::ShardGather& what, std::vector<HeldParameter>& parameters);

  const RankView& view_;
  ModelShard& shard_;
  Transport& transport_;
  std::uint64_t step_ = 0;
  std::map<std::uint64_t, std::uint64_t> done_;  ///< Gathers of this step, by tag.
  Spent spent_;
};

}  // namespace orrery::executor
