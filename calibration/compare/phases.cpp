#include "calibration/compare/phases.h"

#include <algorithm>
#include <optional>

#include "models/base/check.h"
#include "models/base/median.h"
#include "models/base/time.h"

namespace orrery::calibration {
namespace {

struct PhaseEvents {
  const char* phase;
  const char* from;
  const char* to;
};

constexpr PhaseEvents kPhases[] = {
    {"detect", "t_fail", "t_detect"},         {"decide", "t_detect", "t_plan"},
    {"reinitialize", "t_plan", "t_comm"},     {"move_state", "t_comm", "t_load"},
    {"first_step", "t_load", "t_first_step"},
};

std::optional<Instant> time_of(const ir::RunLog& log, const std::string& kind) {
  std::optional<Instant> at;
  for (const ir::LogEvent& event : log.events) {
    if (event.kind == kind) at = event.at;
  }
  return at;
}

}  // namespace

std::vector<MeasuredPhase> recovery_phases(const ir::RunLog& log) {
  std::vector<MeasuredPhase> out;
  for (const PhaseEvents& phase : kPhases) {
    const auto from = time_of(log, phase.from);
    const auto to = time_of(log, phase.to);
    if (from && to) out.push_back({phase.phase, to_seconds(*to - *from)});
  }
  return out;
}

std::vector<ir::PhaseTime> fit_phases(const std::vector<std::vector<MeasuredPhase>>& runs,
                                      const std::vector<Seconds>& moves,
                                      const ir::Provenance& provenance) {
  ORRERY_CHECK(runs.size() == moves.size(), "{} runs, {} moves", runs.size(), moves.size());
  std::vector<ir::PhaseTime> out;
  for (const PhaseEvents& phase : kPhases) {
    const std::string name = phase.phase;
    if (name == "first_step") continue;
    std::vector<double> times;
    for (std::size_t r = 0; r < runs.size(); ++r) {
      for (const MeasuredPhase& one : runs[r]) {
        if (one.phase != name) continue;
        const Seconds fixed = name == "move_state" ? one.time - moves[r] : one.time;
        times.push_back(std::max(fixed.value, 0.0));
      }
    }
    if (times.empty()) continue;
    ir::PhaseTime entry{name, Seconds{median(times)}, provenance};
    entry.provenance.samples = static_cast<std::int64_t>(times.size());
    out.push_back(entry);
  }
  return out;
}

}  // namespace orrery::calibration
