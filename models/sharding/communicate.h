/// Resolves a pair of annotations of one tensor into communication, by the paper's classification:
/// inside the subgroups where the top tier stays (identity, SR, AR, RS, AG), across the subgroups
/// where the device groups stay and HDim changes (SplitAR, SplitRS, SplitAG over finest slices,
/// after a bottom-tier step where the states change too), and batched send-receive for the rest.
/// What no rule covers, always something with Partial, is refused with the reason.
/// [Hetu v2, section 4]
#pragma once
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/sharding/annotation.h"
#include "models/sharding/batched_send_receive.h"

namespace orrery::models {

enum class CommunicationKind {
  identity,              ///< Each device has what it needs, or a part of what it has.
  send_receive,          ///< SR: shard by shard to the corresponding device.
  all_reduce,            ///< AR
  reduce_scatter,        ///< RS
  all_gather,            ///< AG
  split_all_reduce,      ///< SplitAR: Partial across subgroups -> Duplicate.
  split_reduce_scatter,  ///< SplitRS: Partial across subgroups -> Split.
  split_all_gather,      ///< SplitAG: Split across subgroups -> Duplicate.
  batched_send_receive,  ///< BSR
};
/// "AR", "SplitRS", ...; "identity".
std::string_view to_string(CommunicationKind kind);
/// Whether its devices form groups that act together; else senders and receivers.
bool is_collective(CommunicationKind kind);

enum class Tier { bottom, top };

/// A slice and those who communicate it.
struct SliceMove {
  Box box;
  /// Collectives: one device for each summand or part, in their order. Sends: source, destination.
  std::vector<int> devices;
  /// Reductions that scatter: who keeps the slice; gathers: who brings it; else -1.
  int root = -1;
  bool operator==(const SliceMove&) const = default;
};

/// One operator that replaces (a subgroup's part of) a CommOp.
struct CommunicationStep {
  CommunicationKind kind = CommunicationKind::identity;
  Tier tier = Tier::bottom;
  int subgroup = -1;  ///< Of the source, for steps of the bottom tier; else -1.
  /// Steps of one phase run side by side: each reads what its devices held before the phase.
  int phase = 0;
  std::vector<int> devices;  ///< Ascending: all that take part.
  std::vector<SliceMove> moves;
  bool operator==(const CommunicationStep&) const = default;
};

/// The device lists that occur, each once and in order: slices of one list go in one launch.
std::vector<std::vector<int>> groups(const CommunicationStep& step);

/// Why there is no communication.
struct Refusal {
  enum class Rule {
    invalid,              ///< One of the annotations is; `reason` has what validate() says.
    to_partial,           ///< The destination has summands that the source has not.
    no_collective,        ///< Partial inside a subgroup, and neither AR, RS nor AG leads on.
    changed_groups,       ///< Partial, and the groups change: BSR cannot add. [section 4.3]
    no_split_collective,  ///< Partial across subgroups, and no slice-wise collective leads on.
  };
  Rule rule = Rule::invalid;
  std::string reason;
};

/// Phases ascending. `to` may hold less than `from` on the same devices.
/// Deviation: such local slicing is an identity; by the paper it is a BSR of own copies only.
/// Deviation: the paper is silent on split collectives between subgroups that hold a slice on
/// different numbers of devices (D x 4 against D x 2). Here devices of the smaller one take part in
/// several groups, so that each device of the larger one gets its result from a group of its own.
std::variant<std::vector<CommunicationStep>, Refusal> communicate(
    const Annotation& from, const Annotation& to, const Shape& shape,
    const BatchedOptions& options = {});

}  // namespace orrery::models
