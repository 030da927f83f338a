/// Collectives inside forward and backward ops: their closed form, and the flows that the devices
/// of one op drive. Computed once for each entry of Program::inner_sets. Private to sim/iteration.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/cost/pricer.h"
#include "models/cost/shared_links.h"
#include "models/ir/program.h"
#include "sim/iteration/options.h"

namespace orrery::sim {

/// The mode that `automatic` means.
InnerMode effective_mode(bool collapsed, InnerMode mode);

/// A collective of that shape inside one collapsed rank takes its closed form when inner
/// collectives do: it is one part whose edges are all NVLink, and nobody else uses those links but
/// inner collectives.
bool takes_closed_form(const ir::Program& program, const ir::CollectiveShape& shape,
                       const models::PathFunction& path);

using DeviceSets = std::vector<std::vector<DeviceId>>;

/// The closed form of one repetition: on the slowest of the concurrent groups. Of rings each has
/// its links alone; all-to-alls share them (models/cost/shared_links.h).
Seconds repetition_time(const ir::InnerCollective& inner, const DeviceSets& groups,
                        const models::Network& network);

/// A flow of one repetition. `tail`: its latency in addition to that of its path.
struct InnerFlow {
  DeviceId source;
  DeviceId destination;
  Bytes bytes;
  Seconds latency;  ///< Of its path.
  Seconds tail;
};

/// `count` collectives that follow one another, each with the same flows, which start together:
/// what of them passes do not hide.
struct InnerPhase {
  std::int32_t count = 1;
  double gathers = 0;  ///< Share of its bytes that are sharded parameters (ZeRO-3).
  std::vector<InnerFlow> flows;
};

/// Sums over a set's collectives of count x repetition_time().
struct InnerTimes {
  struct Part {
    Seconds all;
    Seconds gathers;  ///< Of it, collectives that gather sharded parameters.
  };
  Part exposed;  ///< What passes do not hide.
  Part hidden;   ///< What runs beside their kernels.
};

class InnerTable {
 public:
  /// Keeps the references, also the network's.
  InnerTable(const ir::Program& program, const models::ProgramPrices& prices,
             const models::Network& network);

  const InnerTimes& closed_form(std::int32_t set);
  /// Passes hide something of the set's collectives.
  bool hides(std::int32_t set) const;
  /// The set gathers sharded parameters, among others.
  bool gathers(std::int32_t set) const;
  /// Sum of the sizes of the set's tensors, each counted once for every concurrent group that the
  /// rank belongs to.
  Bytes payload(std::int32_t set, RankId rank);
  /// One phase for each collective of the set, only with flows that leave the devices of `ranks`.
  /// `ranks` are those of one op or op group; phases are kept by (set, first rank).
  const std::vector<InnerPhase>& phases(std::int32_t set, std::span<const RankId> ranks);
  /// The same with each phase's repetitions in one, and phases over the same edges in the same
  /// proportions merged: bytes and latencies add up. Every count is 1.
  const std::vector<InnerPhase>& merged(std::int32_t set, std::span<const RankId> ranks);
  /// What passes hide of the set's collectives, all repetitions in one flow of each edge.
  const std::vector<InnerFlow>& hidden(std::int32_t set, std::span<const RankId> ranks);

 private:
  using Key = std::pair<std::int32_t, std::int32_t>;  ///< Set, first rank.
  struct Phases {
    std::vector<InnerPhase> exposed;
    std::vector<InnerFlow> hidden;
  };
  const Phases& phases_of(std::int32_t set, std::span<const RankId> ranks);
  Phases make_phases(std::int32_t set, std::span<const RankId> ranks) const;
  Seconds time_of(const ir::InnerCollective& inner) const;

  const ir::Program& program_;
  const models::ProgramPrices& prices_;
  models::Network network_;
  std::vector<std::optional<InnerTimes>> closed_form_;
  std::map<Key, Phases> phases_;
  std::map<Key, std::vector<InnerPhase>> merged_;
  std::map<Key, Bytes> payloads_;
};

}  // namespace orrery::sim
