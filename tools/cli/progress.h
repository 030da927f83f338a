/// Progress of a sweep on standard error: one line that is rewritten where there is a terminal,
/// else a plain line now and then, so that logs stay readable.
#pragma once
#include <string>

#include "experiments/study/call.h"

namespace orrery::tools {

/// "12/40 runs, 1 failed, 0:21, about 0:48 left".
std::string progress_text(const experiments::Progress& view);

/// "[=====>      ]", `width` characters between the brackets.
std::string progress_bar(int done, int total, int width);

class ProgressLine {
 public:
  /// `quiet`: shows nothing.
  explicit ProgressLine(bool quiet);
  /// Ends the line if one was begun.
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(const experiments::Progress& view);
  /// Clears the rewritten line, so that other text can follow.
  void clear();

 private:
  bool quiet_;
  bool terminal_;
  bool shown_ = false;
  int last_percent_ = -1;
  int last_failed_ = 0;
  std::string message_;  ///< The last one that said something.
};

}  // namespace orrery::tools
