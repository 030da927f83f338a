#include "executor/model/shard.h"

#include <algorithm>
#include <utility>

#include "executor/model/block.h"
#include "executor/model/numbers.h"
#include "executor/model/parameters.h"
#include "models/base/check.h"
#include "models/base/ids.h"
#include "models/ir/op_traits.h"

namespace orrery::executor {
namespace {

/// What a run of blocks keeps, block by block.
class SegmentKept : public Kept {
 public:
  SegmentKept(const Backend& backend, BlockId first, BlockId last)
      : backend_(backend), first_(first), blocks_(last.value - first.value + 1) {}
  std::size_t bytes() const override {
    std::size_t sum = 0;
    for (const BlockKept& block : blocks_) sum += block.bytes(backend_);
    return sum;
  }
  BlockKept& at(BlockId block) {
    const std::size_t index = block.value - first_.value;
    ORRERY_CHECK(index < blocks_.size(), "block {} was not in the forward pass", block.value);
    return blocks_[index];
  }

 private:
  const Backend& backend_;
  BlockId first_;
  std::vector<BlockKept> blocks_;
};

SegmentKept& segment(const KeptPointer& kept) {
  ORRERY_CHECK(kept != nullptr, "a backward pass without its forward pass");
  return static_cast<SegmentKept&>(*kept);
}

/// Drops what the recompute mode makes again. The embedding keeps nothing, the head all.
void forget(ir::Recompute recompute, BlockKept& kept) {
  if (recompute == ir::Recompute::selective) kept.log_sum = {};
  if (recompute != ir::Recompute::full) return;
  const Tensor input = kept.input;
  kept = {};
  kept.input = input;
}

/// Units [begin, end) of a tensor of the units of `ranges`, one after the other; they lie in one of
/// them.
Tensor units_among(const std::vector<UnitRange>& ranges, const ParameterInfo& info,
                   const Tensor& tensor, std::int64_t begin, std::int64_t end) {
  std::int64_t before = 0;
  for (const UnitRange& range : ranges) {
    if (range.begin <= begin && end <= range.end) {
      return part(tensor, as_size((before + begin - range.begin) * info.unit),
                  as_size((before + end - range.begin) * info.unit));
    }
    before += range.end - range.begin;
  }
  ORRERY_CHECK(false, "units {}-{} of {} are not here", begin, end, info.name);
  return {};
}

std::int64_t count_of(const std::vector<UnitRange>& ranges) {
  std::int64_t sum = 0;
  for (const UnitRange& range : ranges) sum += range.end - range.begin;
  return sum;
}

Place place_of(const ModelShard::HeldBlock& at) {
  return {at.degree, at.position, at.expert_degree, at.expert_position, at.expert_members};
}

}  // namespace

UnitRange even_slice(std::int64_t length, int parts, int part) {
  const std::int64_t width = length / parts, longer = length % parts;
  const std::int64_t begin = part * width + std::min<std::int64_t>(part, longer);
  return {begin, begin + width + (part < longer ? 1 : 0)};
}

std::vector<UnitRange> without(const std::vector<UnitRange>& all, std::vector<UnitRange> gone) {
  std::sort(gone.begin(), gone.end(),
            [](const UnitRange& a, const UnitRange& b) { return a.begin < b.begin; });
  std::vector<UnitRange> out;
  for (const UnitRange& one : all) {
    std::int64_t at = one.begin;
    for (const UnitRange& range : gone) {
      const std::int64_t end = std::min(range.begin, one.end);
      if (end > at) out.push_back({at, end});
      at = std::max(at, range.end);
    }
    if (at < one.end) out.push_back({at, one.end});
  }
  return out;
}

class ModelShard::Impl {
 public:
  struct Part {
    HeldBlock held;
    std::vector<HeldParameter> parameters;
  };

  Impl(Backend& backend, const ir::ProgramHeader& header, const std::vector<HeldBlock>& blocks)
      : backend_(backend), header_(header) {
    for (const HeldBlock& held : blocks) {
      Part part = {held, {}};
      for (const ParameterInfo& info : parameters_of(header_, held.block)) {
        const std::size_t parameter = part.parameters.size();
        if (held.for_head && parameter > kToken) break;
        part.parameters.push_back(is_tied(header_, held.block, parameter)
                                      ? alias(info, held)
                                      : hold(info, held, static_cast<int>(parameter)));
      }
      const bool fresh = parts_.emplace(held.block, std::move(part)).second;
      ORRERY_CHECK(fresh, "block {} is held twice", held.block.value);
    }
  }

  std::map<BlockId, Part>& parts() { return parts_; }
  Part& part_of(BlockId block) {
    const auto found = parts_.find(block);
    ORRERY_CHECK(found != parts_.end(), "block {} is not held here", block.value);
    return found->second;
  }
  ir::BlockKind kind(BlockId block) const { return header_.blocks[block.index()]; }
  const ir::ProgramHeader& header() const { return header_; }

  BlockWork work(BlockId block, const MicroBatch& batch) {
    const auto rows = as_size(batch.samples) * as_size(header_.sequence_length);
    const bool reads_tokens = kind(block) == ir::BlockKind::embedding;
    const bool reads_targets = kind(block) == ir::BlockKind::head;
    ORRERY_CHECK((!reads_tokens || batch.tokens.size() == rows) &&
                     (!reads_targets || batch.targets.size() == rows),
                 "{} tokens and {} targets for {} rows", batch.tokens.size(), batch.targets.size(),
                 rows);
    Part& part = part_of(block);
    return {backend_, header_, part.parameters, batch, place_of(part.held), part.held.sequence};
  }

  void initialize() {
    for (auto& [block, part] : parts_) {
      for (std::size_t p = 0; p < part.parameters.size(); ++p) {
        HeldParameter& held = part.parameters[p];
        if (held.tied) continue;
        for (const UnitRange& range : held.sharded ? held.updated : held.slices) {
          upload_numbers(backend_,
                         initial_values(header_, block, p, range.begin * held.info.unit,
                                        range.end * held.info.unit),
                         held.master_units(range.begin, range.end));
        }
        const Tensor& narrow = held.sharded ? held.shard : held.weight;
        if (narrow.memory != held.master.memory) backend_.copy(held.master, narrow);
        for (const Tensor& tensor : {held.gradient, held.first_moment, held.second_moment}) {
          if (tensor.memory != nullptr) backend_.fill(tensor, 0);
        }
      }
    }
  }

  void input_gradient(BlockId block, const MicroBatch& batch, double scale, TensorGroup& group,
                      BlockKept& kept, Tensor& d_input) {
    const BlockWork own = work(block, batch);
    d_input = {};
    if (kind(block) == ir::BlockKind::embedding) {
      embedding_input_gradient(own, group, kept);
    } else if (kind(block) == ir::BlockKind::head) {
      head_input_gradient(own, group, scale, kept, d_input);
    } else {
      transformer_input_gradient(own, group, kept, d_input);
    }
  }

  void weight_gradients(BlockId block, const MicroBatch& batch, BlockKept& kept) {
    const BlockWork own = work(block, batch);
    if (kind(block) == ir::BlockKind::embedding) {
      embedding_weight_gradients(own, kept);
    } else if (kind(block) == ir::BlockKind::head) {
      head_weight_gradients(own, kept);
    } else {
      transformer_weight_gradients(own, kept);
    }
    kept = {};
  }

 private:
  /// The embedding's matrix under the name of a tied head's. Blocks come ascending.
  HeldParameter alias(const ParameterInfo& info, const HeldBlock& at) {
    const auto embedding = parts_.find({0});
    ORRERY_CHECK(embedding != parts_.end(), "a tied head without the embedding's matrix");
    HeldParameter held = embedding->second.parameters[kToken];
    const UnitRange slice = held_slices(info, place_of(at)).front();
    ORRERY_CHECK(held.slice().begin == slice.begin && held.slice().end == slice.end,
                 "the ends of a tied matrix in slices {}-{} and {}-{}", held.slice().begin,
                 held.slice().end, slice.begin, slice.end);
    held.info = info;
    held.updated.clear();
    held.first_moment = held.second_moment = {};
    held.tied = true;
    return held;
  }

  HeldParameter hold(const ParameterInfo& info, const HeldBlock& at, int parameter) {
    HeldParameter held;
    held.info = info;
    held.slices = held_slices(info, place_of(at));
    const auto elsewhere = at.elsewhere.find(parameter);
    held.updated = without(held.slices, elsewhere == at.elsewhere.end() ? std::vector<UnitRange>{}
                                                                        : elsewhere->second);
    const std::size_t elements = held.elements();
    const std::size_t moments = as_size(count_of(held.updated) * info.unit);
    held.sharded = at.sharded;
    const std::size_t kept = held.sharded ? moments : elements;
    held.master = backend_.allocate(kept, true);
    const bool rounded = backend_.element_bytes(false) != backend_.element_bytes(true);
    Tensor& narrow = held.sharded ? held.shard : held.weight;
    narrow = rounded ? backend_.allocate(kept, false) : held.master;
    narrow.wide = false;
    held.gradient = backend_.allocate(elements, true);
    if (header_.optimizer == ir::Optimizer::adam && moments > 0) {
      held.first_moment = backend_.allocate(moments, true);
      held.second_moment = backend_.allocate(moments, true);
    }
    return held;
  }

  Backend& backend_;
  ir::ProgramHeader header_;
  std::map<BlockId, Part> parts_;
};

std::size_t HeldParameter::elements() const { return as_size(count_of(slices) * info.unit); }

const UnitRange& HeldParameter::slice() const {
  ORRERY_CHECK(slices.size() == 1, "{} in {} slices", info.name, slices.size());
  return slices.front();
}

Tensor HeldParameter::units(const Tensor& tensor, std::int64_t from, std::int64_t to) const {
  return units_among(slices, info, tensor, from, to);
}

Tensor HeldParameter::own_units(const Tensor& tensor, std::int64_t from, std::int64_t to) const {
  return units_among(updated, info, tensor, from, to);
}

Tensor HeldParameter::master_units(std::int64_t from, std::int64_t to) const {
  return sharded ? own_units(master, from, to) : units(master, from, to);
}

Tensor HeldParameter::weight_units(std::int64_t from, std::int64_t to) const {
  return sharded ? own_units(shard, from, to) : units(weight, from, to);
}

ModelShard::ModelShard(Backend& backend, const ir::ProgramHeader& header,
                       const std::vector<HeldBlock>& blocks)
    : backend_(backend), impl_(std::make_unique<Impl>(backend, header, blocks)) {}

ModelShard::~ModelShard() = default;

void ModelShard::initialize() { impl_->initialize(); }

void ModelShard::clear_gradients() {
  for (auto& [block, part] : impl_->parts()) {
    for (const HeldParameter& held : part.parameters) backend_.fill(held.gradient, 0);
  }
}

std::vector<HeldParameter>& ModelShard::parameters(BlockId block) {
  return impl_->part_of(block).parameters;
}

KeptPointer ModelShard::forward(BlockId first, BlockId last, const MicroBatch& batch,
                                const Tensor& input, ir::Recompute recompute, TensorGroup& group,
                                Tensor& output, std::vector<double>& losses) {
  const auto kept = std::make_shared<SegmentKept>(backend_, first, last);
  Tensor x = input;
  for (const BlockId block : ids_from_to(first, last)) {
    const BlockWork work = impl_->work(block, batch);
    BlockKept& own = kept->at(block);
    own.input = x;
    x = {};
    switch (impl_->kind(block)) {
      case ir::BlockKind::embedding:
        embedding_forward(work, group, x);
        break;
      case ir::BlockKind::head:
        head_forward(work, group, own, losses);
        break;
      default:
        transformer_forward(work, group, own, x);
        forget(recompute, own);
    }
  }
  output = x;
  return kept;
}

void ModelShard::backward(ir::Pass pass, BlockId first, BlockId last, const MicroBatch& batch,
                          const KeptPointer& kept, const Tensor& d_output, double scale,
                          TensorGroup& group, Tensor& d_input) {
  const ir::OpTraits& makes = ir::traits(pass);
  Tensor gradient = d_output;
  for (BlockId block = last; block >= first; --block.value) {
    BlockKept& own = segment(kept).at(block);
    if (makes.input_gradients) {
      own.d_output = gradient;
      impl_->input_gradient(block, batch, scale, group, own, gradient);
    }
    if (makes.weight_gradients) impl_->weight_gradients(block, batch, own);
  }
  d_input = gradient;
}

}  // namespace orrery::executor
