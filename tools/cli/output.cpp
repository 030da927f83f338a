#include "tools/cli/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace orrery::tools {
namespace {

std::string colored(std::string_view text, const char* code) {
  if (!colors()) return std::string(text);
  return fmt::format("\033[{}m{}\033[0m", code, text);
}

/// A reader that has left, as `| head` does, wants no more: the rest goes nowhere. All else is an
/// error.
void fail_unless_reader_left() {
  const int why = errno;
  if (why == EPIPE && std::freopen("/dev/null", "w", stdout) != nullptr) return;
  throw OutputError(fmt::format("cannot write to standard output: {}", std::strerror(why)));
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) fail_unless_reader_left();
}

void flush() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) fail_unless_reader_left();
}

bool colors() {
  const char* off = std::getenv("NO_COLOR");
  if (off != nullptr && *off != '\0') return false;
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

std::size_t terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

std::string bold(std::string_view text) { return colored(text, "1"); }
std::string good(std::string_view text) { return colored(text, "32"); }
std::string bad(std::string_view text) { return colored(text, "31"); }

std::string section(std::string_view title, std::string_view body) {
  return fmt::format("{}\n{}", bold(title), body);
}

}  // namespace orrery::tools
