/// Forward and backward ops of a rank: from the ops of the Program to passes over blocks of its
/// shard. Private to executor/engine.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "executor/engine/activations.h"
#include "executor/engine/data.h"
#include "executor/engine/gathers.h"
#include "executor/engine/rank_view.h"
#include "executor/engine/worker.h"
#include "executor/model/shard.h"

namespace orrery::executor {

class Passes {
 public:
  Passes(const RankView& view, ModelShard& shard, ShardGathers& gathers,
         ActivationStore& activations, const TokenSource& tokens);

  void begin(std::int64_t step);
  /// Blocks go one by one, so that a backward op may cover a part of what a forward op covered: the
  /// last backward pass is cut where gradients are synchronized early.
  void run(const ir::Op& op, TensorGroup& group);
  std::vector<SampleLoss> take_losses() { return std::move(losses_); }

 private:
  /// Tokens of the samples that the op's group takes, each with one more.
  struct Samples {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> targets;
    std::int64_t first = 0;  ///< In the step.
  };
  const Samples& samples(const ir::Op& op, const ir::SegmentInfo& info);
  void forward(const ir::Op& op, const ir::SegmentInfo& info, TensorGroup& group);
  void backward(const ir::Op& op, const ir::SegmentInfo& info, TensorGroup& group);
  MicroBatch batch(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block);
  /// Rows of the micro-batch that the rank has between blocks: those of its group's samples, with
  /// sequence parallelism its own tokens of each. Equally many in each run.
  std::vector<UnitRange> runs(const ir::SegmentInfo& info, const TensorGroup& group) const;
  Tensor activation(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block,
                    bool gradient, const TensorGroup& group);
  void put(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block, bool gradient,
           const TensorGroup& group, const Tensor& tensor);
  KeptPointer& kept(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block);

  const RankView& view_;
  ModelShard& shard_;
  ShardGathers& gathers_;
  ActivationStore& activations_;
  const TokenSource& tokens_;
  std::int64_t step_ = 0;
  std::int32_t last_block_;
  double scale_;
  /// By pipeline, micro-batch, first sample and number of samples.
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t, std::int32_t>, Samples> samples_;
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, KeptPointer> kept_;
  std::vector<SampleLoss> losses_;
};

}  // namespace orrery::executor
