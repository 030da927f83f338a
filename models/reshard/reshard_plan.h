/// Switching from one plan to another while training: which device sends which model state to
/// which, so that every device ends up with what the new plan needs. Both layouts are cut into the
/// finest slices, and batched send-receive (models/sharding) chooses the senders; states that lie
/// on lost devices only are named. [Hetu v2, section 6.2]
///
/// Rows are in scan order, on which ties between equal senders depend: blocks in model order,
/// parameters of a block in the workload's order, weights before optimizer states where the two lie
/// apart, slices upwards; what goes as a whole, where its first row stands. Owners and receivers of
/// a row are scanned by ascending device id. Embedding and head matrix, if tied, are one tensor,
/// scanned with the embedding.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "models/reshard/link_ranks.h"
#include "models/sharding/batched_send_receive.h"
#include "models/sharding/layout.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// Bytes per parameter of the states that move. A state of 0 bytes does not.
struct ReshardBytes {
  double weight = 2;
  double master = 4;
  double moments = 0;
  double optimizer() const { return master + moments; }
};

/// Weights and their master copy: 6 bytes for bf16 with an fp32 copy, which the volumes of Hetu v2
/// suggest. The moments start from zero.
ReshardBytes weight_bytes(const Job& job);
/// Weights, master copy and moments.
ReshardBytes all_state_bytes(const Job& job);

enum class ReshardVariant {
  /// One scan for all tensors, one message for each pair of devices. What a layer has in slices
  /// with the same owners and receivers goes as a whole from one sender.
  fused,
  fused_by_tensor,  ///< The same, with a sender for each tensor's slice: loads differ less.
  unfused,          ///< A scan and messages of its own for each tensor.
  no_heuristics,    ///< Unfused, and always from the owner with the lowest id.
};
std::vector<std::pair<ReshardVariant, const char*>> enum_names(ReshardVariant);

struct ReshardOptions {
  ReshardBytes bytes;
  ReshardVariant variant = ReshardVariant::fused;
  std::vector<DeviceId> lost;  ///< They own nothing any more.
};

/// States of a parameter that lie alike and move together.
enum class StatePart : std::uint8_t {
  all,
  weights,    ///< Where ZeRO divides the optimizer states only, before or after.
  optimizer,  ///< Master copy and moments.
};
const char* name_of(StatePart part);

/// A finest slice of a parameter, with some device that needs it after the switch.
struct StateRow {
  BlockId block;
  std::int32_t parameter = 0;  ///< In the workload's block.
  StatePart part = StatePart::all;
  /// Units of Parameter::split_length, expert by expert; 0 to 1 of what is not split.
  Slice slice;
  Bytes bytes;
};

/// What one device sends to another in one call. Without fusing a pair has one for each tensor.
struct ReshardMessage {
  std::int32_t call = 0;  ///< Calls follow one another; number of the tensor unless fused.
  DeviceId source;
  DeviceId destination;
  PathClass path = PathClass::network;
  Bytes bytes;
  /// ReshardPlan::by_message[first_send .. first_send + sends).
  std::uint32_t first_send = 0;
  std::uint32_t sends = 0;
};

/// Bytes by PathClass.
struct ClassVolumes {
  std::array<Bytes, kPathClasses> bytes{};
  Bytes& operator[](PathClass path) { return bytes[index_of(path)]; }
  const Bytes& operator[](PathClass path) const { return bytes[index_of(path)]; }
};
/// Those that go somewhere else: no same_device.
void describe(config::Visitor& v, ClassVolumes& volumes);
Bytes sum(const ClassVolumes& volumes);

struct DeviceTraffic {
  DeviceId device;
  ClassVolumes sent;
  ClassVolumes received;
  std::int64_t messages_sent = 0;
  std::int64_t messages_received = 0;
  Bytes kept;  ///< Needed and there already: copied inside the device, or left where it is.
  Bytes lost;  ///< Needed and nowhere.
};

/// A row that no live device has.
struct LostState {
  std::uint32_t row = 0;
  std::vector<DeviceId> held_by;    ///< Before; all of them are lost.
  std::vector<DeviceId> needed_by;  ///< Ascending.
};

struct ReshardPlan {
  std::vector<StateRow> rows;    ///< In scan order; only those that some device needs.
  std::vector<SliceSend> sends;  ///< In scan order.
  std::vector<SliceCopy> copies;
  std::vector<LostState> lost;            ///< By row.
  std::vector<ReshardMessage> messages;   ///< By call, source, destination.
  std::vector<std::uint32_t> by_message;  ///< Indices into `sends`, message by message.
  std::vector<DeviceTraffic> devices;     ///< All that need or send anything, by id.
  ClassVolumes moved;                     ///< Sum of what is sent.
  ReshardBytes bytes;
};

/// What makes a switch meaningless, and whose fault it is.
struct ReshardProblem {
  enum class Where { from, to, lost };
  Where where = Where::from;
  std::string what;
};

/// Lost devices that do not exist or that `to` uses; plans whose redundancy has no place
/// (find_redundancy_defects). Empty: the switch can be planned.
std::vector<ReshardProblem> find_problems(const ir::Plan& from, const ir::Plan& to,
                                          const Cluster& cluster, const ReshardOptions& options);

/// Both plans are valid for the workload on the cluster (check/validate.h; batches do not matter)
/// and find_problems() has nothing to say. `topology` is the cluster's. Paths rank by their
/// bandwidth (models/reshard/link_ranks.h); where they are equal, the owner that has sent fewest
/// bytes over paths of the same kind is chosen: the paper says load, not time.
///
/// A device holds what lowering gives it: its slice of split parameters, the whole of others, of
/// what ZeRO divides its shard; with Redundancy::next_stage also its slice of the next stage, which
/// survives the loss of that stage under `from` and has to be filled under `to`. Gradients do not
/// move: a switch happens between optimizer steps.
ReshardPlan plan_reshard(const ir::Plan& from, const ir::Plan& to, const Cluster& cluster,
                         const Topology& topology, const Workload& workload,
                         const ReshardOptions& options = {});

}  // namespace orrery::models
