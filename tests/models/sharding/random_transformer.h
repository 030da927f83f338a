/// Random transformers under random plans, for the laws of annotated graphs.
#pragma once
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "tests/models/sharding/hetu_plans.h"
#include "tests/models/sharding/random_annotations.h"

namespace orrery::models::testing {

/// What a random case may have; drawn even where allowed.
struct TransformerFeatures {
  bool few_heads = true;  ///< Fewer key-value heads than tensor parts.
  bool sequence = true;   ///< Ulysses and ring groups, besides Megatron's.
  bool experts = false;   ///< With experts that consecutive groups share.
  bool tied = false;
  bool zero = false;  ///< With shard groups, and other settings for the last blocks.
  bool ends = false;  ///< Embedding and head are always blocks of their own.
  int widest = 4;     ///< Tensor-parallel degree.
};

struct TransformerCase {
  ir::ModelShape model;
  ir::Plan plan;
};

/// Three pipelines of three stages of two groups that share experts, each of eight devices.
inline constexpr int kMostDevices = 3 * 3 * 2 * 8;

class TransformerMaker {
 public:
  TransformerMaker(Rng& rng, const TransformerFeatures& features)
      : rng_(rng), features_(features), order_(random_devices(rng, 96, 96)) {
    while (order_.size() < kMostDevices) order_.push_back(static_cast<int>(order_.size()));
  }

  /// All widths are multiples of `unit` x 8.
  TransformerCase make(int layers, int unit) {
    TransformerCase made;
    made.model = toy_model(layers);
    ir::ModelShape& model = made.model;
    const int kv[] = {1, 2, 4, 8};
    model.kv_heads = features_.few_heads ? kv[draw(rng_, 0, 3)] : 8;
    model.head_dim = unit;
    model.hidden = model.ffn = model.vocabulary = 8 * unit;
    model.positions = rng_.bernoulli(0.5) ? 8 * unit : 0;
    model.biases = rng_.bernoulli(0.5);
    if (rng_.bernoulli(0.5)) model.normalization = ir::Normalization::layer_norm;
    if (rng_.bernoulli(0.5)) model.activation = ir::Activation::gelu;
    model.tied_embeddings = features_.tied && rng_.bernoulli(0.8);
    if (features_.experts) model.experts = 4;
    if (features_.experts) model.top_k = 2;
    blocks_ = layers + (features_.ends || rng_.bernoulli(0.5) ? 2 : 0);
    interleaved_ = rng_.bernoulli(0.2) && blocks_ >= 4;
    if (interleaved_) made.plan.schedule = ir::ScheduleKind::interleaved_one_f_one_b;
    if (interleaved_) made.plan.virtual_stages = 2;
    draw_zero(model.tied_embeddings);
    for (int p = draw(rng_, 1, 3); p > 0; --p) made.plan.pipelines.push_back(pipeline());
    return made;
  }

 private:
  void draw_zero(bool tied) {
    if (!features_.zero) return;
    for (ir::Zero* zero : {&first_, &last_}) {
      zero->stage = draw(rng_, 0, 3);
      if (zero->stage > 0 && rng_.bernoulli(0.5)) zero->shard_group = draw(rng_, 1, 3);
    }
    border_ = draw(rng_, 1, blocks_);
    if (tied) last_ = first_;
  }

  ir::Pipeline pipeline() {
    ir::Pipeline pipeline;
    pipeline.micro_batches = draw(rng_, 1, 3);
    pipeline.micro_batch_size = features_.experts ? 2 : draw(rng_, 1, 2);
    const int stages = interleaved_ ? 2 : draw(rng_, 1, std::min(3, blocks_));
    const int chunks = stages * (interleaved_ ? 2 : 1);
    for (int s = 0; s < stages; ++s) {
      const ir::Segment like = stage(pipeline.micro_batch_size);
      ir::Stage stage;
      for (int chunk = s; chunk < chunks; chunk += stages) {
        ir::Segment segment = like;
        segment.virtual_stage = chunk / stages;
        add(blocks_ * chunk / chunks, blocks_ * (chunk + 1) / chunks - 1, segment, stage);
      }
      pipeline.stages.push_back(std::move(stage));
    }
    return pipeline;
  }

  /// Cut where ZeRO changes.
  void add(int first, int last, ir::Segment segment, ir::Stage& stage) const {
    for (const bool front : {true, false}) {
      segment.first_block = BlockId{front ? first : std::max(first, border_)};
      segment.last_block = BlockId{front ? std::min(last, border_ - 1) : last};
      segment.zero = front ? first_ : last_;
      if (segment.first_block <= segment.last_block) stage.segments.push_back(segment);
    }
  }

  ir::Segment stage(int samples) {
    ir::Group group;
    group.tensor_parallel = 1 << draw(rng_, 0, features_.widest == 8 ? 3 : 2);
    group.sequence =
        static_cast<ir::SequenceParallelism>(draw(rng_, 0, features_.sequence ? 3 : 1));
    if (group.sequence == ir::SequenceParallelism::ulysses ||
        group.sequence == ir::SequenceParallelism::ring) {
      group.tensor_parallel = std::min(group.tensor_parallel, 4);
      group.sequence_degree = 2;
    }
    ir::Segment segment;
    if (features_.experts && rng_.bernoulli(0.7)) segment.expert_parallel = 2;
    group.samples = samples / segment.expert_parallel;
    for (int g = 0; g < segment.expert_parallel; ++g) {
      group.devices.clear();
      for (int i = 0; i < group.tensor_parallel * group.sequence_degree; ++i) {
        group.devices.push_back(DeviceId{order_.at(next_++)});
      }
      segment.groups.push_back(group);
    }
    return segment;
  }

  Rng& rng_;
  TransformerFeatures features_;
  std::vector<int> order_;
  std::size_t next_ = 0;
  int blocks_ = 0;
  bool interleaved_ = false;
  ir::Zero first_;  ///< Of the blocks before border_; last_ of the others.
  ir::Zero last_;
  int border_ = 1 << 20;
};

}  // namespace orrery::models::testing
