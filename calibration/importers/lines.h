/// Text files word by word, with the position of each word. Private to calibration/importers.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"

namespace orrery::calibration {

struct Word {
  std::string text;
  config::Position at;
};

struct TextLine {
  std::vector<Word> words;  ///< Between blanks and tabs.
  std::string text;
  config::Position at;  ///< Of its first column.
};

/// All lines of a file, without terminal escapes. A file that cannot be read is a problem.
std::vector<TextLine> read_lines(const std::string& path, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
