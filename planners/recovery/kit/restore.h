/// Where the state that a new plan needs comes from: for every slice of every tensor and every
/// device that needs it, the first source in the policy's order that has it. The bitmap of AutoHet
/// (layer to holders), Hetu's fused batched send-receive and a plain load from a checkpoint are
/// this with different orders. [AutoHet V; Hetu v2 6.2]
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

enum class StateSource : std::uint8_t {
  own_gpu,    ///< There already; nothing moves over links.
  own_host,   ///< Host memory of the device's own node.
  own_nvme,   ///< NVMe of the device's own node.
  peer_gpu,   ///< Another device's memory: NVLink, PCIe or network.
  peer_host,  ///< Host memory of another node, over the network.
  peer_nvme,  ///< NVMe of another node, over the network.
  cloud,
};
inline constexpr std::size_t kStateSources = 7;
std::vector<std::pair<StateSource, const char*>> enum_names(StateSource);
const char* name_of(StateSource source);  ///< In words.
/// Where the source's replicas are.
ir::Location location_of(StateSource source);

struct RestoreOptions {
  std::int64_t iteration = 0;      ///< Only copies of this iteration count.
  std::vector<StateSource> order;  ///< Best first; what is not listed is not used.
  models::ReshardBytes bytes;      ///< Per parameter.
};

struct Restore {
  /// One for each (from, source, destination) that moves anything, in ascending order. What is read
  /// from a node's own storage has the reading device as source, one transfer for each.
  std::vector<models::StateTransfer> transfers;
  std::array<Bytes, kStateSources> from{};  ///< Sum over devices, by source.
  Bytes missing;                            ///< Needed and nowhere.
  std::string witness;                      ///< The first slice that is missing, in words.
  bool complete() const { return missing.value == 0; }
};

/// Among equal sources of peers the batched send-receive heuristics choose: more bandwidth, then
/// least bytes to send so far [Hetu v2 4.3, 6.2]. `to` uses live devices only. Devices
/// whose whole share a source has are not looked at slice by slice, so that 16,384 of them take
/// milliseconds.
Restore plan_restore(const PolicyInput& input, const models::JobState& state, const ir::Plan& to,
                     const RestoreOptions& options);

struct NewestRestore {
  std::int64_t iteration = 0;
  Restore restore;
};
/// The newest iteration whose state `to` can be given completely from `order`; none: not even one.
std::optional<NewestRestore> newest_restore(const PolicyInput& input, const models::JobState& state,
                                            const ir::Plan& to,
                                            const std::vector<StateSource>& order,
                                            const models::ReshardBytes& bytes);

/// Bytes of state that each device of the plan holds, in the order of devices_of(plan).
std::vector<Bytes> state_shares(const PolicyInput& input, const ir::Plan& plan,
                                const models::ReshardBytes& bytes);

}  // namespace orrery::planners
