/// The setting `use_all` of planners whose plans may leave devices idle.
#pragma once
#include "models/ir/names.h"

namespace orrery::planners {

/// `automatic`: as few devices stay idle as any plan that is legal and fits allows.
enum class UseAllDevices { automatic, yes, no };

inline ir::EnumNames<UseAllDevices> enum_names(UseAllDevices) {
  return {
      {UseAllDevices::automatic, "auto"}, {UseAllDevices::yes, "yes"}, {UseAllDevices::no, "no"}};
}

}  // namespace orrery::planners
