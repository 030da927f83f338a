/// The communication that turns one flat layout into another: gradient synchronization, activation
/// transfer, ZeRO and re-sharding of lowered programs all end here. [Hetu v2, section 4]
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "models/sharding/layout.h"
#include "models/sharding/resolver.h"

namespace orrery::models {

/// One communication of a group. A step may read what an earlier one of the list delivered. All
/// ranks walk the list in the same order, so they cannot deadlock.
struct GroupStep {
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
  bool operator==(const GroupStep&) const = default;
};

/// No communication of this folder leads from one layout to the other.
struct Unresolvable {
  std::string reason;  ///< Names the slice and the owners.
};

/// Both layouts cut at all their boundaries.
struct FinestSlices {
  std::vector<Slice> bounds;
  std::vector<FinestSlice> slices;  ///< `from` by summand, then in the order of the pieces.
};
FinestSlices finest_slices(const Layout& from, const Layout& to);

/// The steps from one layout to another (resolve_slices(); slices of equal kind, phase and group
/// share a step); empty when each owner already holds what it needs. Unresolvable: an invalid
/// layout, unequal lengths, a destination with summands that do not lie there already, a slice of
/// which no destination holds a summand.
std::variant<std::vector<GroupStep>, Unresolvable> resolve(const Layout& from, const Layout& to,
                                                           const ResolveOptions& options = {});

}  // namespace orrery::models
