/// What a shared library says to offer planners and recovery policies to Orrery
/// (docs/howto/modules.md). In one of its files, outside of all namespaces:
///
///     ORRERY_MODULE((orrery::planners::Module{{&kMyPlanner}, {&kMyPolicy}}))
///
/// Built with find_package(orrery) and loaded with `orrery --module PATH ...` or $ORRERY_MODULES.
#pragma once
#include "planners/modules/module_stamp.h"
#include "planners/modules/modules.h"

#define ORRERY_MODULE(module)                                              \
  extern "C" {                                                             \
  [[gnu::visibility("default")]] extern const char orrery_module_stamp[];  \
  const char orrery_module_stamp[] = ORRERY_MODULE_STAMP;                  \
  [[gnu::visibility("default")]] orrery::planners::Module orrery_module(); \
  }                                                                        \
  orrery::planners::Module orrery_module() { return module; }              \
  static_assert(true)
