/// Building a Program: ops are added in any order of ranks, then sorted by rank and stream.
/// For models/lower and models/reshard.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "models/ir/program.h"
#include "models/lower/lower.h"
#include "models/sharding/resolver.h"

namespace orrery::models {

/// Index into ProgramBuilder::ops until finish() renumbers.
using PendingOp = std::uint32_t;
inline constexpr PendingOp kNoOp = UINT32_MAX;

/// The kind of a collective op that carries out such a step. A send is a broadcast to one: it
/// becomes a collective where both ends belong to one rank.
ir::CollectiveKind collective_kind(StepKind kind);

class ProgramBuilder {
 public:
  /// Ops of one compute or collective stream run in the order in which they are added.
  PendingOp add(const ir::Op& op);
  ir::Op& op(PendingOp id) { return ops_[id]; }
  void depends(PendingOp op, PendingOp before);
  /// The send and the recv become one transfer.
  void match(PendingOp send, PendingOp recv);
  /// `ops` become the members of a new collective.
  void add_collective(std::int32_t shape, const std::vector<PendingOp>& ops);
  /// `ops` run their inner collectives together.
  void add_op_group(const std::vector<PendingOp>& ops);

  /// Tables without duplicates.
  std::int32_t group(std::vector<DeviceId> devices);
  const std::vector<DeviceId>& devices(std::int32_t group) const;
  std::int32_t inner_set(std::vector<ir::InnerCollective> set);
  std::int32_t buffer_set(std::vector<ir::BufferEffect> set);
  std::int32_t region_set(std::vector<ir::Region> set);
  std::int32_t transfer_set(std::vector<ir::Transfer> set);
  std::int32_t collective_shape(ir::CollectiveShape shape);

  ir::Program program;  ///< Header, ranks, segments and resident are filled by the caller.
  /// Sorts the ops, renumbers all references and gives the program away.
  ir::Program finish();

 private:
  ir::Rendezvous rendezvous(const std::vector<PendingOp>& ops);

  std::vector<ir::Op> ops_;
  std::vector<std::pair<PendingOp, PendingOp>> dependencies_;  ///< (op, before).
  std::map<std::vector<DeviceId>, std::int32_t> groups_;
  std::map<std::vector<ir::InnerCollective>, std::int32_t> inner_sets_;
  std::map<std::vector<ir::BufferEffect>, std::int32_t> buffer_sets_;
  std::map<std::vector<ir::Region>, std::int32_t> region_sets_;
  std::map<std::vector<ir::Transfer>, std::int32_t> transfer_sets_;
  std::map<ir::CollectiveShape, std::int32_t> shapes_;
};

}  // namespace orrery::models
