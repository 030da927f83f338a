#include "sim/replay/replay.h"

#include "sim/replay/engine.h"

namespace orrery::sim {

const char* name_of(Bucket bucket) {
  switch (bucket) {
    case Bucket::productive:
      return "productive";
    case Bucket::degraded:
      return "degraded";
    case Bucket::rolled_back:
      return "rolled_back";
    case Bucket::checkpoint:
      return "checkpoint";
    case Bucket::detect:
      return "detect";
    case Bucket::decide:
      return "decide";
    case Bucket::move_state:
      return "move_state";
    case Bucket::reinitialize:
      return "reinitialize";
    case Bucket::idle:
      break;
  }
  return "idle";
}

ReplayResult replay(const ReplayInput& input, const ReplayOptions& options,
                    const std::function<void(Instant)>& on_progress) {
  return ReplayEngine(input, options).run(on_progress);
}

}  // namespace orrery::sim
