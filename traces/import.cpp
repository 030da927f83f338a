#include "traces/import.h"

#include <algorithm>

#include "models/base/check.h"

namespace orrery::traces {

extern const TraceFormat kBambooFormat;
extern const TraceFormat kOobleckFormat;
extern const TraceFormat kAwsFormat;
extern const TraceFormat kGcpFormat;
extern const TraceFormat kParcaeFormat;
extern const TraceFormat kSkypilotFormat;

std::vector<std::pair<LeaveOrder, const char*>> enum_names(LeaveOrder) {
  return {{LeaveOrder::last_in_first_out, "last_in_first_out"}, {LeaveOrder::random, "random"}};
}

const std::vector<TraceFormat>& trace_formats() {
  static const std::vector<TraceFormat> kFormats = {kBambooFormat, kOobleckFormat, kParcaeFormat,
                                                    kAwsFormat,    kGcpFormat,     kSkypilotFormat};
  return kFormats;
}

Trace import_trace(const std::string& format, const std::string& path, const ImportOptions& options,
                   config::Diagnostics& diagnostics) {
  const auto& formats = trace_formats();
  const auto at = std::find_if(formats.begin(), formats.end(),
                               [&](const TraceFormat& one) { return one.name == format; });
  ORRERY_CHECK(at != formats.end(), "unknown trace format {}", format);
  return at->read(path, options, diagnostics);
}

}  // namespace orrery::traces
