/// One rank's share of the model: its slices of the parameters of its blocks, forward and backward
/// passes over them. Written once on compute/backend.h; knows nothing of Programs, schedules or
/// sockets.
///
/// Numbering of blocks and parameters is that of the Program's header and of the workload that it
/// was lowered from: embedding {token, [position]}, transformer {norm1.gain, attention.query, .key,
/// .value, .output, norm2.gain, [mlp.gate,] mlp.up, mlp.down}, with experts {..., norm2.gain,
/// router, [experts.gate,] experts.up, experts.down}, head {norm.gain, output}, each gain of a
/// LayerNorm and each matrix of a model with biases (but the router) followed by its bias. A test
/// holds the two lists equal. A tied head's output is the embedding's token: its weights, gradients
/// and states are those of block 0, which programs name too, also on ranks that hold the head
/// alone. Parameters start from a counter-based generator keyed by (seed, block, parameter, element
/// of the whole tensor), so that they do not depend on the plan.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "models/base/ids.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"

namespace orrery::executor {

/// What this program cannot be run for, in words, all of it: Ulysses' and ring sequence
/// parallelism, layers with experts beside layers without, convolution, ZeRO-3 with tied
/// embeddings, tied embeddings whose ends a rank holds in different slices. Empty: it can.
///
/// In Programs gradients are scattered once a round of synchronization, after its last backward
/// pass, with any ZeRO stage. Deviation: until then each rank holds them whole, where ZeRO-2 and 3
/// would keep a shard of each block's [Rajbhandari et al. 2020, 5.2, unverified].
std::vector<std::string> find_unsupported(const ir::Program& program);

struct ParameterInfo {
  std::string name;
  std::int64_t split_length = 0;  ///< Units along the split dimension; 0: replicated.
  std::int64_t unit = 0;          ///< Elements of one unit (of the whole tensor if replicated).
  int experts = 0;                ///< Each has split_length / experts units; 0: no experts' tensor.
  std::int64_t elements() const { return unit * (split_length > 0 ? split_length : 1); }
};
/// In the order of the workload. Vocabularies that do not divide are cut unevenly, as lowering
/// does.
std::vector<ParameterInfo> parameters_of(const ir::ProgramHeader& header, BlockId block);

/// Rows of a micro-batch, sample by sample, of which the members of a group have the even parts of
/// each sample's tokens (Megatron's sequence parallelism).
struct TokenRows {
  int samples = 0;
  int tokens = 0;  ///< Per sample.
  int width = 0;
};

/// Of a member of those that hold the experts of a block together.
struct ExpertMember {
  int experts = 0;  ///< That it holds.
  int samples = 0;  ///< Of a micro-batch, that it takes.
};

/// What the ranks that share a pass exchange in it: those of a tensor-parallel group, and those
/// that hold the other experts. Calls of all members come in the same order.
class TensorGroup {
 public:
  virtual ~TensorGroup() = default;
  virtual int degree() const = 0;
  virtual int position() const = 0;
  /// The sum over the group, in place.
  virtual void all_reduce(const Tensor& tensor) = 0;
  virtual void all_reduce_maximum(const Tensor& tensor) = 0;  ///< Of wide ones.
  /// The sum of `whole`, of which each member gets its own tokens.
  virtual void reduce_scatter(const Tensor& whole, const TokenRows& rows, const Tensor& own) = 0;
  /// The tokens of all members.
  virtual void all_gather(const Tensor& own, const TokenRows& rows, const Tensor& whole) = 0;
  /// From the first member.
  virtual void broadcast(const Tensor& tensor) = 0;
  /// Members that hold experts together, and this one's place: others than those above.
  virtual int expert_degree() const = 0;
  virtual int expert_position() const = 0;
  /// The next sent[i] elements of `from` go to the i-th of them, and the next received[i] of `to`
  /// come from there.
  virtual void exchange(const Tensor& from, const std::vector<std::size_t>& sent, const Tensor& to,
                        const std::vector<std::size_t>& received) = 0;
};

/// Units of a parameter of a block.
struct UnitRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
/// Part `part` of `parts` of `length`: the first ones are one longer.
UnitRange even_slice(std::int64_t length, int parts, int part);
/// `all` (ascending) without `gone` (in any order), ascending.
std::vector<UnitRange> without(const std::vector<UnitRange>& all, std::vector<UnitRange> gone);

/// The first member of a group that exchanges nothing: of one member, or where exchanges are priced
/// apart.
class SilentGroup final : public TensorGroup {
 public:
  explicit SilentGroup(int degree = 1) : degree_(degree) {}
  int degree() const override { return degree_; }
  int position() const override { return 0; }
  void all_reduce(const Tensor&) override {}
  void all_reduce_maximum(const Tensor&) override {}
  void reduce_scatter(const Tensor&, const TokenRows&, const Tensor&) override {}
  void all_gather(const Tensor&, const TokenRows&, const Tensor&) override {}
  void broadcast(const Tensor&) override {}
  int expert_degree() const override { return 1; }
  int expert_position() const override { return 0; }
  void exchange(const Tensor&, const std::vector<std::size_t>&, const Tensor&,
                const std::vector<std::size_t>&) override {}

 private:
  int degree_;
};

/// The units of a parameter that this rank holds, with its states.
/// Gradients of what several members of the tensor-parallel group hold are whole on each of them
/// (norms), or, of key-value heads, each member's own part: a program's gradient collectives add
/// those up.
struct HeldParameter {
  ParameterInfo info;
  /// Ascending, one after the other in the tensors below: one slice, of experts perhaps several; 0
  /// to 1 of what is replicated.
  std::vector<UnitRange> slices;
  Tensor weight;    ///< Empty where it is sharded, but during passes over the block.
  Tensor gradient;  ///< Wide.
  Tensor master;    ///< Wide; shares memory with the weight where precisions agree.
  /// Units whose optimizer states are here, ascending: all that are held, or with ZeRO this rank's
  /// shard.
  std::vector<UnitRange> updated;
  /// For the units of `updated`, one range after the other. Empty with Optimizer::sgd.
  Tensor first_moment;
  Tensor second_moment;
  /// ZeRO-3: the master weights, too, are only those of `updated`, one range after the other, and
  /// so is `shard`, the weights that follow from them (in the same memory where precisions agree).
  bool sharded = false;
  Tensor shard;
  /// A tied head's output: weight, gradient and master are those of the embedding's token, which
  /// has the states. Nothing is updated or saved under this name.
  bool tied = false;

  /// Elements of all units here.
  std::size_t elements() const;
  /// The only slice.
  const UnitRange& slice() const;
  /// Units [begin, end), in one slice, of a tensor of all units: weight, gradient, master unless
  /// sharded.
  Tensor units(const Tensor& tensor, std::int64_t begin, std::int64_t end) const;
  /// Units [begin, end) of a tensor of the units of `updated`; they lie in one range of it.
  Tensor own_units(const Tensor& tensor, std::int64_t begin, std::int64_t end) const;
  /// Units [begin, end), in one range of `updated`, of the master weights and of the weights.
  Tensor master_units(std::int64_t begin, std::int64_t end) const;
  Tensor weight_units(std::int64_t begin, std::int64_t end) const;
};

/// Tokens of one micro-batch on this rank: `samples` x sequence length each.
struct MicroBatch {
  int samples = 0;
  std::span<const std::int32_t> tokens;
  std::span<const std::int32_t> targets;
};

/// Activations kept from forward to backward for one (segment, micro-batch). The input tensor of
/// the pass is kept by reference: nobody writes to it until the backward pass has ended.
class Kept {
 public:
  virtual ~Kept() = default;
  /// Held now. 0 when the last half of the backward pass has ended.
  virtual std::size_t bytes() const = 0;
};
using KeptPointer = std::shared_ptr<Kept>;

class ModelShard {
 public:
  /// `blocks` ascending, with the tensor-parallel degree and position of each.
  struct HeldBlock {
    BlockId block;
    int degree = 1;
    int position = 0;
    int expert_degree = 1;
    int expert_position = 0;
    /// By member of those that hold the experts together; empty: all hold and take as much.
    std::vector<ExpertMember> expert_members = {};
    /// Megatron's sequence parallelism: activations between the blocks are those of the member's
    /// own part of each sample's tokens.
    bool sequence = false;
    /// By parameter: units that other ranks update, in any order. They need no moments here.
    std::map<int, std::vector<UnitRange>> elsewhere = {};
    bool sharded = false;  ///< ZeRO-3: those are not here at all outside of passes.
    /// The embedding for a tied head that is held without it: its token matrix and nothing else.
    bool for_head = false;
  };
  ModelShard(Backend& backend, const ir::ProgramHeader& header,
             const std::vector<HeldBlock>& blocks);
  ~ModelShard();

  /// Initial weights; moments and gradients 0.
  void initialize();
  void clear_gradients();
  std::vector<HeldParameter>& parameters(BlockId block);

  /// Through blocks [first, last]. `input` (rows x hidden; with sequence parallelism the member's
  /// own rows) is empty where `first` is the embedding.
  /// `output` is empty after the head, whose losses by sample (sum over tokens, not scaled) come
  /// in `losses`. What the backward pass needs is kept in the result; with full recompute only the
  /// input, with selective all but attention's insides.
  KeptPointer forward(BlockId first, BlockId last, const MicroBatch& batch, const Tensor& input,
                      ir::Recompute recompute, TensorGroup& group, Tensor& output,
                      std::vector<double>& losses);
  /// d_output (empty at the head) to d_input (empty at the embedding); adds to gradients. Losses
  /// were scaled by `scale`. `pass` is the whole pass or one of its halves, of which the first
  /// keeps in `kept` what the second needs (and that takes no d_output and makes no d_input);
  /// gradients get the same bits either way.
  void backward(ir::Pass pass, BlockId first, BlockId last, const MicroBatch& batch,
                const KeptPointer& kept, const Tensor& d_output, double scale, TensorGroup& group,
                Tensor& d_input);

  Backend& backend() { return backend_; }

 private:
  class Impl;
  Backend& backend_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::executor
