/// What moves between ranks, as host bytes: regions of activations, gradients and parameters packed
/// one after the other, and the collectives over them. Private to executor/engine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/engine/activations.h"
#include "executor/engine/rank_view.h"
#include "executor/model/shard.h"
#include "executor/net/ring.h"

namespace orrery::executor {

/// Elements of tensors of this precision, wide or not, on the wire.
ElementType element_of(const Backend& backend, bool wide);

class Mover {
 public:
  Mover(const RankView& view, ModelShard& shard, ActivationStore& activations);

  /// The tensors that the regions name, in their order.
  std::vector<Tensor> tensors(const ir::Op& op, const std::vector<ir::Region>& regions);
  std::size_t bytes(const std::vector<Tensor>& tensors) const;
  /// Host copies, one tensor after the other.
  std::vector<std::byte> pack(const std::vector<Tensor>& tensors);
  void unpack(std::span<const std::byte> bytes, const std::vector<Tensor>& tensors);

  /// A collective op between ranks, with all that it moves. Returns the bytes that this rank sent.
  std::int64_t run_collective(const ir::Op& op, Transport& transport, const RingTag& tag);

 private:
  std::size_t width(const Tensor& tensor) const;
  Tensor part_of(const ir::Region& region, BlockId block);

  const RankView& view_;
  ModelShard& shard_;
  Backend& backend_;
  ActivationStore& activations_;
};

/// What one compute op exchanges with the ranks of its groups.
class OpGroupRing final : public TensorGroup {
 public:
  OpGroupRing(Backend& backend, Transport& transport, PassGroups groups, const RingTag& tag);
  int degree() const override { return group_.size(); }
  int position() const override { return group_.position; }
  void all_reduce(const Tensor& tensor) override;
  void all_reduce_maximum(const Tensor& tensor) override;
  void reduce_scatter(const Tensor& whole, const TokenRows& rows, const Tensor& own) override;
  void all_gather(const Tensor& own, const TokenRows& rows, const Tensor& whole) override;
  void broadcast(const Tensor& tensor) override;
  int expert_degree() const override { return experts_.size(); }
  int expert_position() const override { return experts_.position; }
  void exchange(const Tensor& from, const std::vector<std::size_t>& sent, const Tensor& to,
                const std::vector<std::size_t>& received) override;
  std::int64_t nanoseconds() const { return nanoseconds_; }
  /// Processor time of the calling thread in them: packing, sums.
  std::int64_t cpu_nanoseconds() const { return cpu_nanoseconds_; }
  std::int64_t bytes() const { return bytes_; }  ///< Sent by this rank.

 private:
  /// Runs `ring` on host bytes of the tensor.
  template <class Ring>
  void on_host(const Tensor& tensor, Ring ring);
  /// Runs of elements that are together both in all rows and in them member by member.
  using Run = std::function<void(const Extent& in_rows, const Extent& by_member)>;
  void for_each_run(const TokenRows& rows, const Run& run) const;
  /// Of the second order, by member.
  std::vector<Extent> members(const TokenRows& rows) const;

  Backend& backend_;
  Transport& transport_;
  RingGroup group_;
  RingGroup experts_;
  RingTag tag_;
  std::int64_t nanoseconds_ = 0;
  std::int64_t cpu_nanoseconds_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace orrery::executor
