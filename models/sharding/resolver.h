/// The one resolver of this folder: who has each finest slice before, who needs it after, and which
/// communication leads from one to the other. resolve() asks it about flat layouts, communicate()
/// about the boxes of annotations; both only cut into finest slices and name what comes out.
/// [Hetu v2, section 4]
#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "models/sharding/batched_send_receive.h"
#include "models/sharding/layout.h"

namespace orrery::models {

enum class StepKind {
  send_receive,    ///< Hetu's SR, and BSR when fused from several slices.
  all_reduce,      ///< AR; SplitAR when its group holds only some slices of the tensor.
  reduce_scatter,  ///< RS and SplitRS. Members may get unequal parts, one may get all (a reduce).
  all_gather,      ///< AG and SplitAG. Members may bring unequal parts.
  broadcast,
};
std::string_view to_string(StepKind kind);

struct Holder {
  int device = 0;
  int summand = kFullValue;  ///< As Piece::partial.
};

/// A slice that no border of either side cuts.
struct FinestSlice {
  double size = 0;           ///< The unit of the send load.
  std::vector<Holder> from;  ///< Holders of one summand follow one another.
  std::vector<int> to;
};

/// What devices do that hold the same summand, or the same part.
enum class Copies {
  /// One of them takes part, one that needs the result where there is a choice, and passes the
  /// result on to the others. A part that several hold is sent and not gathered.
  one_takes_part,
  /// Each takes part in a group of its own: the first of each summand or part, the second of each,
  /// ...; where one has fewer than another, they take part in several groups. [Hetu v2, section
  /// 4.2, is silent on unequal numbers]
  in_own_groups,
};

struct ResolveOptions {
  BatchedOptions sends = {};  ///< Of full values.
  /// false: full values travel by send_receive alone, as when a running job is re-sharded
  /// [Hetu v2, section 6.2]. Partial sums need collectives in any case.
  bool gather_and_broadcast = true;
  Copies copies = Copies::one_takes_part;
};

/// The communication of one finest slice.
struct SliceStep {
  StepKind kind = StepKind::send_receive;
  std::uint32_t slice = 0;  ///< Index into the resolved slices.
  /// Reductions: one holder of each summand, by summand. Gathers: in the order of FinestSlice::to.
  /// Broadcasts and sends: the source first.
  std::vector<int> group;
  int root = -1;  ///< reduce_scatter: who keeps the slice; all_gather: who brings it; else -1.
};

/// Three phases, one after the other: reductions; broadcasts and gathers; sends.
using ResolvedSlices = std::array<std::vector<SliceStep>, 3>;

/// Summands of which no destination holds one, so that a reduction cannot leave the sum where it is
/// needed; with in_own_groups also those of which a group would have to leave it with several
/// members, but not with all.
struct UnreducedSlice {
  std::uint32_t slice = 0;
};

/// - Summands -> full values: one owner of each summand all_reduces when all of them (with
///   one_takes_part: several of them) need the result, and reduce_scatters when one does. With
///   one_takes_part the sum is then broadcast to the other holders of a summand, and sent to
///   destinations that held none.
/// - Full values: slices that the same devices need, with owners among them, are gathered when
///   several of these bring something, and broadcast when one does. All else is batched
///   send-receive.
std::variant<ResolvedSlices, UnreducedSlice> resolve_slices(const std::vector<FinestSlice>& slices,
                                                            const ResolveOptions& options);

}  // namespace orrery::models
