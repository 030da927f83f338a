#include "executor/engine/passes.h"

#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/names.h"
#include "models/ir/op_traits.h"

namespace orrery::executor {

Passes::Passes(const RankView& view, ModelShard& shard, ShardGathers& gathers,
               ActivationStore& activations, const TokenSource& tokens)
    : view_(view),
      shard_(shard),
      gathers_(gathers),
      activations_(activations),
      tokens_(tokens),
      last_block_(static_cast<std::int32_t>(view.program().header.blocks.size()) - 1),
      scale_(1.0 / (static_cast<double>(view.program().header.global_batch) *
                    static_cast<double>(view.program().header.sequence_length))) {}

void Passes::begin(std::int64_t step) {
  step_ = step;
  samples_.clear();
  kept_.clear();
  losses_.clear();
}

void Passes::run(const ir::Op& op, TensorGroup& group) {
  const ir::SegmentInfo& info = view_.segment(op);
  ORRERY_CHECK(ir::is_pass(op.kind), "op {} on the compute stream", ir::name_of(op.kind));
  ir::is_backward(op.kind) ? backward(op, info, group) : forward(op, info, group);
}

const Passes::Samples& Passes::samples(const ir::Op& op, const ir::SegmentInfo& info) {
  Samples& out = samples_[{info.pipeline, op.micro_batch.value, info.first_sample, info.samples}];
  if (!out.tokens.empty()) return out;
  const ir::ProgramHeader& header = view_.program().header;
  const auto& pipeline = view_.program().pipelines[info.pipeline];
  const std::size_t length = header.sequence_length;
  out.first = pipeline.first_sample +
              std::int64_t{op.micro_batch.value} * pipeline.micro_batch_size + info.first_sample;
  std::vector<std::int32_t> text(length + 1);
  for (std::int64_t i = 0; i < info.samples; ++i) {
    tokens_.sample((step_ - 1) * header.global_batch + out.first + i, text);
    out.tokens.insert(out.tokens.end(), text.begin(), text.end() - 1);
    out.targets.insert(out.targets.end(), text.begin() + 1, text.end());
  }
  return out;
}

MicroBatch Passes::batch(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block) {
  MicroBatch out;
  out.samples = info.samples;
  if (block > 0 && block < last_block_) return out;
  const Samples& text = samples(op, info);
  out.tokens = text.tokens;
  out.targets = text.targets;
  return out;
}

std::vector<UnitRange> Passes::runs(const ir::SegmentInfo& info, const TensorGroup& group) const {
  const std::int64_t length = view_.program().header.sequence_length;
  const std::int64_t first = info.first_sample * length;
  const bool divided = info.sequence == ir::SequenceParallelism::megatron && group.degree() > 1;
  if (!divided) return {{first, first + info.samples * length}};
  const UnitRange tokens = even_slice(length, group.degree(), group.position());
  std::vector<UnitRange> out;
  for (std::int64_t sample = 0; sample < info.samples; ++sample) {
    out.push_back({first + sample * length + tokens.begin, first + sample * length + tokens.end});
  }
  return out;
}

Tensor Passes::activation(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block,
                          bool gradient, const TensorGroup& group) {
  const ActivationKey key = {info.pipeline, op.micro_batch.value, block, gradient};
  const std::vector<UnitRange> all = runs(info, group);
  if (all.size() == 1) return activations_.rows(key, all.front().begin, all.front().end);
  const std::size_t width = as_size(view_.program().header.model.hidden);
  const std::size_t each = as_size(all.front().end - all.front().begin) * width;
  Tensor out = shard_.backend().allocate(all.size() * each, false);
  for (std::size_t i = 0; i < all.size(); ++i) {
    shard_.backend().copy(activations_.rows(key, all[i].begin, all[i].end),
                          part(out, i * each, (i + 1) * each));
  }
  return out;
}

void Passes::put(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block, bool gradient,
                 const TensorGroup& group, const Tensor& tensor) {
  const ActivationKey key = {info.pipeline, op.micro_batch.value, block, gradient};
  const std::vector<UnitRange> all = runs(info, group);
  const std::size_t each = tensor.elements / all.size();
  if (all.size() == 1 && all.front().end - all.front().begin == activations_.rows_of(key)) {
    return activations_.adopt(key, tensor);
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    shard_.backend().copy(part(tensor, i * each, (i + 1) * each),
                          activations_.rows(key, all[i].begin, all[i].end));
  }
}

KeptPointer& Passes::kept(const ir::Op& op, const ir::SegmentInfo& info, std::int32_t block) {
  return kept_[{info.pipeline, op.micro_batch.value, block}];
}

void Passes::forward(const ir::Op& op, const ir::SegmentInfo& info, TensorGroup& group) {
  Tensor input;
  if (info.first_block.value > 0) {
    input = activation(op, info, info.first_block.value - 1, false, group);
  }
  std::vector<double> losses;
  for (const BlockId b : ids_from_to(info.first_block, info.last_block)) {
    Tensor output;
    gathers_.bring(b, group);
    kept(op, info, b.value) = shard_.forward(b, b, batch(op, info, b.value), input, info.recompute,
                                             group, output, losses);
    gathers_.drop(b);
    input = output;
  }
  if (info.last_block.value < last_block_) {
    put(op, info, info.last_block.value, false, group, input);
  } else if (group.position() == 0) {
    const std::int64_t first = samples(op, info).first;
    for (std::size_t i = 0; i < losses.size(); ++i) {
      losses_.push_back({first + static_cast<std::int64_t>(i), losses[i]});
    }
  }
}

void Passes::backward(const ir::Op& op, const ir::SegmentInfo& info, TensorGroup& group) {
  const ir::OpTraits& pass = ir::traits(op.kind);
  Tensor gradient;
  if (pass.input_gradients && info.last_block.value < last_block_) {
    gradient = activation(op, info, info.last_block.value, true, group);
  }
  for (std::int32_t b = info.last_block.value; b >= info.first_block.value; --b) {
    Tensor below;
    KeptPointer& of_block = kept(op, info, b);
    ORRERY_CHECK(of_block != nullptr, "backward of block {} before its forward pass", b);
    if (pass.input_gradients) gathers_.bring({b}, group);
    shard_.backward(*pass.priced_as, {b}, {b}, batch(op, info, b), of_block, gradient, scale_,
                    group, below);
    if (pass.input_gradients) gathers_.drop({b});
    if (pass.weight_gradients) of_block.reset();
    gradient = below;
  }
  if (pass.input_gradients && info.first_block.value > 0) {
    put(op, info, info.first_block.value - 1, true, group, gradient);
  }
}

}  // namespace orrery::executor
