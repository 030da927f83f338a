/// Counted work of a simulation: equal on every machine, unlike time.
#pragma once
#include <cstdint>

namespace orrery::sim {

/// Activities of the flow engine.
struct SimulatedWork {
  std::int64_t timers = 0;  ///< Delays: compute and closed forms.
  std::int64_t flows = 0;
  std::int64_t barriers = 0;
};

}  // namespace orrery::sim
