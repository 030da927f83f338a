/// A file's text, with a problem at the file where it cannot be read. Private to calibration and
/// its importers.
#pragma once
#include <string>

#include "models/base/file.h"
#include "models/config/diagnostics.h"

namespace orrery::calibration {

/// False, with the reason in `diagnostics` ("FILE: cannot read: No such file or directory": the
/// place names the file, the reason does not once more), if the file cannot be read.
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
