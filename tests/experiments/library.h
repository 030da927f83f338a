/// The library of the repository, loaded once.
#pragma once
#include "models/config/diagnostics.h"
#include "models/spec/library.h"

namespace orrery::experiments::support {

inline const models::Library& library() {
  static const models::Library kLoaded = [] {
    config::Diagnostics diagnostics;
    models::Library read = models::load_library(models::default_library_root(), diagnostics);
    diagnostics.raise();
    return read;
  }();
  return kLoaded;
}

}  // namespace orrery::experiments::support
