// Iterations beside the copies of checkpoints. A copy takes whole iterations, as many as its time
// makes up at their usual speed, at most all until the next checkpoint; its bytes are spread evenly
// over them.
#include <algorithm>
#include <utility>

#include "sim/replay/engine.h"

namespace orrery::sim {

/// Takes what moves in the background out of the levels. `time`: of an iteration beside nothing.
CopyLoad ReplayEngine::take_load(const models::PlanPointer& plan,
                                 const std::vector<DeviceId>& devices, Seconds time,
                                 std::vector<models::CheckpointLevel>& levels) const {
  CopyLoad load;
  std::vector<std::vector<models::StateTransfer>> per_second;
  for (models::CheckpointLevel& level : levels) {
    auto transfers = std::exchange(level.background, {});
    const std::int64_t beside = (level.persist - level.stall).count;
    if (!options_.background_transfers || beside <= 0) transfers.clear();
    const std::int64_t whole = to_nanoseconds(time).count;
    const std::int64_t count =
        transfers.empty() ? 0 : std::min(level.every, (beside + whole - 1) / whole);
    for (models::StateTransfer& transfer : transfers) {
      transfer.bytes = transfer.bytes / (static_cast<double>(count) * time.value);
    }
    load.iterations.push_back(count);
    per_second.push_back(std::move(transfers));
  }
  if (std::all_of(per_second.begin(), per_second.end(), [](const auto& t) { return t.empty(); })) {
    return {};
  }
  const models::DegradedLinks links{devices_.links().begin(), devices_.links().end()};
  load.time = [this, plan, links, slow = devices_.slow(devices),
               per_second = std::move(per_second)](std::uint32_t active) {
    std::vector<models::StateTransfer> together;
    for (std::size_t i = 0; i < per_second.size(); ++i) {
      if ((active >> i & 1) == 0) continue;
      together.insert(together.end(), per_second[i].begin(), per_second[i].end());
    }
    return to_nanoseconds(input_.iterations.time_beside(*plan, slow, links, together));
  };
  return load;
}

}  // namespace orrery::sim
