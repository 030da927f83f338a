#include "tools/cli/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace orrery::tools {
namespace {

constexpr int kBarWidth = 24;
constexpr int kParts = 100;
constexpr int kStep = 10;  ///< Percent between plain lines.

bool is_terminal() {
  const char* term = std::getenv("TERM");
  return isatty(STDERR_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::size_t terminal_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

/// "0:21", "1:02:03".
std::string clock_text(double seconds) {
  const long whole = std::lround(std::max(seconds, 0.0));
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole % 3600 / 60, whole % 60);
}

}  // namespace

std::string progress_text(const experiments::Progress& view) {
  std::string text =
      fmt::format("{}/{} {}", view.done + view.present + view.failed, view.total, view.noun);
  if (view.present > 0) text += fmt::format(" ({} present)", view.present);
  if (view.failed > 0) text += fmt::format(", {} failed", view.failed);
  text += ", " + clock_text(view.elapsed_seconds);
  if (view.remaining_seconds >= 0) {
    text += fmt::format(", about {} left", clock_text(view.remaining_seconds));
  }
  return text;
}

std::string progress_bar(int done, int total, int width) {
  const int filled =
      total > 0 ? std::clamp(static_cast<int>(std::int64_t{done} * width / total), 0, width)
                : width;
  std::string bar(filled, '=');
  if (filled < width) {
    bar += '>';
    bar.append(width - filled - 1, ' ');
  }
  return "[" + bar + "]";
}

ProgressLine::ProgressLine(bool quiet) : quiet_(quiet), terminal_(is_terminal()) {}

ProgressLine::~ProgressLine() { clear(); }

void ProgressLine::show(const experiments::Progress& view) {
  if (quiet_) return;
  const int finished = view.done + view.present + view.failed;
  if (view.lasting) {
    clear();
    fmt::print(stderr, "{}: {}\n", progress_text(view), view.message);
    return;
  }
  if (terminal_) {
    // In parts of a run: long runs tell how far they are.
    const auto parts = static_cast<int>(kParts * (finished + view.under_way));
    std::string line =
        progress_bar(parts, kParts * view.total, kBarWidth) + " " + progress_text(view);
    if (!view.message.empty()) message_ = view.message;
    const std::string& text = view.state.empty() ? message_ : view.state;
    if (!text.empty()) line += "  " + text;
    const std::size_t columns = terminal_columns();
    if (line.size() >= columns) line.resize(columns - 1);
    fmt::print(stderr, "\r\033[K{}", line);
    std::fflush(stderr);
    shown_ = true;
    return;
  }
  if (view.message.empty()) return;
  const int percent = view.total > 0 ? finished * 100 / view.total / kStep * kStep : 100;
  if (percent == last_percent_ && view.failed == last_failed_) return;
  last_percent_ = percent;
  last_failed_ = view.failed;
  fmt::print(stderr, "{}: {}\n", progress_text(view), view.message);
}

void ProgressLine::clear() {
  if (!shown_) return;
  fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace orrery::tools
