/// Ranges of described numbers, far beyond anything real: within them a run that is not refused for
/// its length (experiments/study/limits.h) stays below what the clock counts, 10^9 seconds.
#pragma once
#include "models/base/units.h"

namespace orrery::models {

inline constexpr Seconds kLongestOp{3600};             ///< A latency, a launch, an overhead.
inline constexpr Seconds kLongestPhase{365 * 86400.};  ///< Starting, searching, detecting.
inline constexpr Seconds kLongestPerParameter{1e-3};
inline constexpr double kMostBytesPerParameter = 1024;  ///< Of one kind of model state.
inline constexpr double kMostFactor = 1e6;  ///< On a closed form, or on what hardware does.

}  // namespace orrery::models
