#include "executor/launcher/armed_faults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace orrery::executor {

ArmedFaults::ArmedFaults(const std::vector<FaultInjection>& faults) {
  for (const FaultInjection& fault : faults) {
    if (fault.hold.count() == 0) armed_.push_back(fault);
  }
}

void ArmedFaults::strike(const std::string& last_word) {
  const auto struck = std::find_if(armed_.begin(), armed_.end(), [&](const FaultInjection& fault) {
    return last_word.starts_with(fmt::format("device {} ", fault.device)) &&
           last_word.ends_with(fmt::format(" of step {}", fault.step));
  });
  if (struck != armed_.end()) armed_.erase(struck);
}

std::string ArmedFaults::left() const {
  std::vector<std::string> names;
  for (const FaultInjection& fault : armed_) {
    names.push_back(fmt::format("device {} in step {}", fault.device, fault.step));
  }
  if (names.empty()) return {};
  return fmt::format("{} asked for did not strike: {} (lost before, or the step did not come)",
                     names.size() == 1 ? "a fault" : "faults", fmt::join(names, ", "));
}

}  // namespace orrery::executor
