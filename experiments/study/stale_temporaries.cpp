#include "experiments/study/stale_temporaries.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// The process that `text` numbers is gone, or is this one: then it was another one of this number.
bool is_gone(std::string_view text) {
  pid_t pid = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, pid);
  if (parsed.ec != std::errc{} || parsed.ptr != end || pid <= 0) return false;
  return pid == getpid() || (kill(pid, 0) != 0 && errno == ESRCH);
}

}  // namespace

bool is_stale_temporary(const fs::path& path) {
  constexpr std::string_view kMark = ".tmp.";
  const std::string name = path.filename().string();
  const std::size_t mark = name.rfind(kMark);
  if (mark == std::string::npos) return false;
  const std::string_view pid = std::string_view(name).substr(mark + kMark.size());
  if (!is_gone(pid.substr(0, pid.find('.')))) return false;
  std::error_code error;
  const auto written = fs::last_write_time(path, error);
  return !error && fs::file_time_type::clock::now() - written > std::chrono::minutes(1);
}

}  // namespace orrery::experiments
