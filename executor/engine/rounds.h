/// Gradients that are synchronized several times in a step: what a round has brought together is
/// set aside before the next pass adds to it, and joins the last round's for the optimizer. Private
/// to executor/engine.
///
/// Deviation: this takes a second gradient buffer, which a Program does not count; with one round
/// there is none.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "executor/compute/backend.h"
#include "executor/engine/rank_view.h"
#include "executor/model/shard.h"

namespace orrery::executor {

class GradientRounds {
 public:
  /// Keeps references.
  GradientRounds(const RankView& view, ModelShard& shard) : view_(view), shard_(shard) {}

  /// All gradients are 0.
  void begin();
  /// The op has ended. May be called from any thread.
  void ended(const ir::Op& op);
  /// The op is about to run.
  void before(const ir::Op& op);
  /// Gradients become those of the step.
  void finish();

 private:
  using Key = std::pair<BlockId, std::int32_t>;  ///< Block, parameter.
  struct Earlier {
    Tensor sum;
    bool used = false;  ///< In this step.
  };
  const Tensor& gradient(const Key& key);

  const RankView& view_;
  ModelShard& shard_;
  std::map<Key, Earlier> earlier_;
  std::mutex mutex_;
  /// Synchronized since a pass last added to them.
  std::set<Key> synchronized_;
};

}  // namespace orrery::executor
