/// Who has which slice of the model state, who needs which, and who fetches what from where: the
/// "layer bitmap" of AutoHet [Section 5, unverified] with unit ranges instead of whole layers.
/// Every process publishes a StateReport; all compute the same StatePlan from all reports.
///
/// Each needed slice comes from the process's own memory, then from a peer's, then from a local
/// checkpoint (of its own node, then of another), then from the cloud. The newest version of which
/// every needed slice exists somewhere wins (but see plan_state()); without any the state starts
/// from initial values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "executor/launcher/state.h"
#include "models/config/visitor.h"

namespace orrery::executor {

/// Where state is read from: memory, or checkpoints.
enum class StateOrigin : std::uint8_t { memory, local, cloud };
const char* name_of(StateOrigin origin);

struct StateOffer {
  StateOrigin origin = StateOrigin::memory;
  StateVersion version;
  StateSlice slice;
};

/// `whole`: with moments, since this rank updates it; else the weights alone.
struct StateNeed {
  StateSlice slice;
  bool whole = false;
};

/// What one member of a generation needs and offers. Helpers, which have state but no rank, need
/// nothing.
struct StateReport {
  std::string node;
  std::vector<StateNeed> needs;
  std::vector<StateOffer> offers;
};
void describe(config::Visitor& v, StateReport& report);

/// What a worker needs before its first step: all that it holds.
std::vector<StateNeed> needs_of(Worker& worker);

/// Slices of `member` that no other member with a lower number writes (on the same node only, if
/// `per_node`): each slice is checkpointed once.
std::vector<StateSlice> slices_to_save(const std::vector<StateReport>& members, int member,
                                       bool per_node);

/// A slice on its way. From `from` itself if from == to; cloud files are read by `to`.
struct StateMove {
  int from = 0;
  int to = 0;
  StateOrigin origin = StateOrigin::memory;
  StateSlice slice;
  bool whole = false;
  auto operator<=>(const StateMove&) const = default;
};

struct StatePlan {
  /// None: no version is complete, all start from initial values (step 0).
  std::optional<StateVersion> version;
  std::vector<StateMove> moves;  ///< By block; the same on all members.
};

/// Equal reports give equal plans. Among equally near sources the one with the fewest units to
/// send so far is taken, then the lowest member.
///
/// `finished`: the last step that the launcher has all reports of. A complete state after it is
/// preferred to newer ones, which exist when a rank died at the end of a step that others had
/// finished: its losses are computed again then, instead of missing.
StatePlan plan_state(const std::vector<StateReport>& members,
                     std::optional<std::int64_t> finished = std::nullopt);

}  // namespace orrery::executor
