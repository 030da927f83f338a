#include "planners/recovery/kit/phases.h"

#include <fmt/format.h>

#include <algorithm>

namespace orrery::planners {

std::vector<OptionInfo> phase_options(const PhaseDefaults& defaults) {
  std::vector<OptionInfo> infos;
  const auto add = [&](const char* name, const PhaseDefault& value) {
    infos.push_back({name, value.seconds, value.doc});
  };
  add("detect", defaults.detect);
  add("detect_exception", defaults.detect_exception);
  add("decide", defaults.decide);
  add("reinitialize", defaults.reinitialize);
  if (defaults.restart) add("restart", *defaults.restart);
  return infos;
}

Stall stall_option(OptionReader& reader, const std::vector<OptionInfo>& infos, const char* name) {
  constexpr double kMost = 1e7;
  const auto info = std::find_if(infos.begin(), infos.end(),
                                 [&](const OptionInfo& i) { return std::string(name) == i.name; });
  const std::string text = reader.text(name);
  Stall stall;
  const bool formula = info != infos.end() && std::string(info->default_value) == "-1";
  stall.duration = {formula && text == "-1" ? -1.0 : reader.number(name, 0, kMost)};
  if (info == infos.end()) return stall;
  stall.source = text == info->default_value ? info->doc : fmt::format("option {}", name);
  return stall;
}

Phases read_phases(OptionReader& reader, const std::vector<OptionInfo>& infos) {
  Phases phases;
  phases.detect = stall_option(reader, infos, "detect");
  phases.detect_exception = stall_option(reader, infos, "detect_exception");
  phases.decide = stall_option(reader, infos, "decide");
  phases.reinitialize = stall_option(reader, infos, "reinitialize");
  const bool restarts = std::any_of(infos.begin(), infos.end(), [](const OptionInfo& info) {
    return std::string("restart") == info.name;
  });
  phases.restart = restarts ? stall_option(reader, infos, "restart") : phases.reinitialize;
  return phases;
}

void add_phase(models::RecoveryDecision& decision, models::RecoveryPhase::Kind kind,
               const Stall& stall) {
  const bool planning = kind == models::RecoveryPhase::Kind::decide && !stall.source.empty();
  if (stall.duration.value <= 0 && !planning) return;
  decision.phases.push_back({kind, to_nanoseconds(stall.duration), stall.source});
}

}  // namespace orrery::planners
