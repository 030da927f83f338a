/// The setting `use_all` of planners whose plans may leave devices idle.
#pragma once
#include <functional>

#include "models/ir/names.h"
#include "planners/kit/ranking.h"
#include "planners/planner.h"

namespace orrery::planners {

/// `automatic`: as few devices stay idle as any plan that is legal and fits allows.
enum class UseAllDevices { automatic, yes, no };

inline ir::EnumNames<UseAllDevices> enum_names(UseAllDevices) {
  return {
      {UseAllDevices::automatic, "auto"}, {UseAllDevices::yes, "yes"}, {UseAllDevices::no, "no"}};
}

/// sweep(true) offers plans over all devices, sweep(false) others. `automatic`: others only where
/// no offer came of the first sweep, which `note` then tells.
inline void sweep_devices(UseAllDevices use, const Ranking& ranking, SearchReport& report,
                          const char* note, const std::function<void(bool all)>& sweep) {
  if (use != UseAllDevices::no) sweep(true);
  if (use == UseAllDevices::yes) return;
  if (use == UseAllDevices::automatic) {
    if (!ranking.empty() || !report.complete) return;
    report.notes.emplace_back(note);
  }
  sweep(false);
}

}  // namespace orrery::planners
