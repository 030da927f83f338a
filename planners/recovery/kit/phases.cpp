#include "planners/recovery/kit/phases.h"

#include <fmt/format.h>

namespace orrery::planners {

void describe_stall(config::Visitor& v, const char* name, Stall& stall) {
  constexpr double kMost = 1e7;
  const Seconds fallback = stall.duration;
  v.optional(name, stall.duration.value, stall.source.c_str());
  if (stall.duration == fallback) return;
  v.between(name, stall.duration.value, 0.0, kMost);
  stall.source = fmt::format("option {}", name);
}

void describe_phases(config::Visitor& v, Phases& phases) {
  describe_stall(v, "detect", phases.detect);
  describe_stall(v, "detect_exception", phases.detect_exception);
  describe_stall(v, "decide", phases.decide);
  describe_stall(v, "reinitialize", phases.reinitialize);
  if (phases.restart) describe_stall(v, "restart", *phases.restart);
}

void add_phase(models::RecoveryDecision& decision, PhaseKind kind, const Stall& stall) {
  const bool planning = kind == PhaseKind::decide && !stall.source.empty();
  if (stall.duration.value <= 0 && !planning) return;
  decision.phases.push_back({kind, to_nanoseconds(stall.duration), stall.source});
}

}  // namespace orrery::planners
