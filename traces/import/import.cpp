#include "traces/import/import.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "models/base/check.h"

namespace orrery::traces {

extern const TraceFormat kAws, kBamboo, kGcp, kInfiniteHbd, kOobleck, kParcae, kSkypilot, kCsvLog,
    kSlurmEvents, kXidLog;

const std::vector<TraceFormat>& trace_formats() {
  static const std::vector<TraceFormat> kFormats = {kBamboo, kOobleck,  kParcae,      kAws,
                                                    kGcp,    kSkypilot, kInfiniteHbd, kSlurmEvents,
                                                    kXidLog, kCsvLog};
  return kFormats;
}

namespace {

constexpr std::int64_t kFirstLines = 20;

bool reads_first_lines(const TraceFormat& format, const std::string& path) {
  config::Diagnostics diagnostics;
  ImportOptions options;
  options.most_lines = kFirstLines;
  format.read({path, options, diagnostics});
  return diagnostics.empty();
}

bool is_own(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  return std::getline(file, line) && line.rfind("# schema: orrery/trace", 0) == 0;
}

/// What the file is instead of `wanted`, as advice; "": nothing that we know, or it is `wanted`.
std::string other_format(const TraceFormat& wanted, const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || reads_first_lines(wanted, path)) return "";
  if (is_own(path)) return "the file is a trace of ours and needs no import";
  const TraceFormat* other = format_of(path);
  return other == nullptr ? "" : fmt::format("looks like {}: {}", other->name, other->what);
}

}  // namespace

std::vector<std::pair<LeaveOrder, const char*>> enum_names(LeaveOrder) {
  return {{LeaveOrder::last_in_first_out, "last_in_first_out"}, {LeaveOrder::random, "random"}};
}

const TraceFormat* format_of(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return nullptr;
  const auto& formats = trace_formats();
  const auto at = std::find_if(formats.begin(), formats.end(), [&](const TraceFormat& format) {
    return reads_first_lines(format, path);
  });
  return at == formats.end() ? nullptr : &*at;
}

Trace import_trace(const std::string& format, const std::string& path, const ImportOptions& options,
                   config::Diagnostics& diagnostics) {
  const auto& formats = trace_formats();
  const auto at = std::find_if(formats.begin(), formats.end(),
                               [&](const TraceFormat& one) { return one.name == format; });
  ORRERY_CHECK(at != formats.end(), "unknown trace format {}", format);
  config::Diagnostics found;
  Trace trace = at->read({path, options, found});
  trace.source = fmt::format("{} ({})", std::filesystem::path(path).filename().string(), at->name);
  if (found.empty()) return trace;
  if (std::string hint = other_format(*at, path); !hint.empty()) {
    const config::Problem& first = found.problems().front();
    diagnostics.add(first.at, first.what, std::move(hint));
    return trace;
  }
  for (const config::Problem& one : found.problems()) diagnostics.add(one.at, one.what, one.hint);
  return trace;
}

}  // namespace orrery::traces
