/// Reads whole files. Private to calibration.
#pragma once
#include <string>

#include "models/base/file.h"
#include "models/config/diagnostics.h"

namespace orrery::calibration {

/// Reads a whole file. If that fails: false, and a problem "FILE: cannot read: No such file or
/// directory" (the reason without the path, which the position names).
inline bool read_text(const std::string& path, std::string& text,
                      config::Diagnostics& diagnostics) {
  const auto problem = read_file(path, text);
  if (!problem) return true;
  const std::string named = "cannot read " + path + ": ";
  const bool names_it = problem->starts_with(named);
  diagnostics.add({path, 0, 0},
                  names_it ? "cannot read: " + problem->substr(named.size()) : *problem);
  return false;
}

}  // namespace orrery::calibration
