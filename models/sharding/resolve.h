/// The communication that turns one layout into another. This is the only source of communication
/// in Orrery: gradient synchronization, activation transfer, ZeRO and re-sharding all end here.
/// [Hetu v2, section 4]
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

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

/// One communication of a group. A step may read what an earlier one of the list delivered. All
/// ranks walk the list in the same order, so they cannot deadlock.
struct Step {
  StepKind kind = StepKind::send_receive;
  /// All elements that the step concerns: ascending, disjoint, not empty, adjacent ones joined.
  std::vector<Slice> slices;
  /// The participants. Collectives: in the order of the summands (all_reduce, reduce_scatter) or of
  /// the destination's pieces (all_gather); a ring may use it. broadcast: the source first.
  /// send_receive: source, destination.
  std::vector<int> group;
  /// reduce_scatter: what each member keeps; all_gather: what each member brings. One entry per
  /// member, which may be empty; together they tile `slices`. Other kinds: no entries.
  std::vector<std::vector<Slice>> parts;
  int source = -1;       ///< send_receive and broadcast, else -1.
  int destination = -1;  ///< send_receive, else -1.
  bool operator==(const Step&) const = default;
};

struct ResolveOptions {
  /// Class of the link between two owners, lower is faster. Without it all links are equal.
  std::function<int(int source, int destination)> link_rank;
  /// false: full values travel by send_receive alone, as when a running job is re-sharded
  /// [Hetu v2, section 6.2]. Partial sums need collectives in any case.
  bool gather_and_broadcast = true;
};

/// No communication of this folder leads from one layout to the other.
struct Unresolvable {
  std::string reason;  ///< Names the slice and the owners.
};

/// The steps from one layout to another; empty when each owner already holds what it needs.
/// Both layouts are cut at all their boundaries; segments with equal groups share one step.
/// - Summands -> full values: the owners of a segment's summands (one owner per summand, one that
///   needs the result where there is a choice) all_reduce when several of them need the result,
///   and reduce_scatter when one does. Then it is broadcast to the other holders of the same
///   summand, and sent to destinations that held no summand.
/// - Full values: a segment with one owner, itself among several destinations, is gathered or
///   broadcast (send_receive when there is one receiver). All else is Hetu's batched send-receive:
///   own copy first; else the source with the fastest link, then the least elements sent so far,
///   then the lowest id. Sends of one pair are fused. [Hetu v2, section 4.3]
/// Unresolvable: an invalid layout, unequal lengths, a destination with summands that do not lie
/// there already, a segment of which no destination holds a summand.
std::variant<std::vector<Step>, Unresolvable> resolve(const Layout& from, const Layout& to,
                                                      const ResolveOptions& options = {});

}  // namespace orrery::models
