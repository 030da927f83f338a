/// Progress of a sweep on standard error: one line that is rewritten where there is a terminal,
/// else a plain line now and then, so that logs stay readable.
#pragma once
#include <string>

namespace orrery::tools {

/// What is shown; see experiments::Progress.
struct ProgressView {
  int total = 0;
  int done = 0;
  int present = 0;
  int failed = 0;
  double under_way = 0;  ///< What the running ones have done, in runs.
  double elapsed_seconds = 0;
  double remaining_seconds = -1;  ///< Negative: not known yet.
  std::string message;
  std::string noun = "runs";  ///< What is counted.
};

/// "12/40 runs, 1 failed, 0:21, about 0:48 left".
std::string progress_text(const ProgressView& view);

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

  void show(const ProgressView& view);
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
