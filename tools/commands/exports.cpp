#include "tools/commands/exports.h"

#include <fmt/format.h>

#include <sstream>

#include "models/base/check.h"
#include "models/ir/chrome_trace.h"
#include "models/ir/perfetto.h"
#include "models/ir/wire.h"
#include "tools/commands/inputs.h"
#include "tools/commands/output.h"

namespace orrery::tools {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() > end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

bool is_chrome(const std::string& path) { return ends_with(path, ".json"); }

ir::TimelineNames names_of(const models::Cluster& cluster) {
  ir::TimelineNames names;
  names.device = [&cluster](DeviceId id) {
    return fmt::format("GPU {} {}", id.value, cluster.gpu(id).name);
  };
  names.node_of = [&cluster](DeviceId id) { return cluster.device(id).node; };
  names.node = [&cluster](NodeId id) { return cluster.node(id).name; };
  return names;
}

std::string timeline(const std::string& path, const experiments::LoadedRun& run,
                     const experiments::RunOutcome& outcome) {
  const std::string mismatch = ir::find_mismatch(outcome.program, outcome.log);
  ORRERY_CHECK(mismatch.empty(), "log of another program: {}", mismatch);
  const ir::TimelineNames names = names_of(run.cluster);
  std::ostringstream out;
  if (is_chrome(path)) {
    ir::write_chrome(outcome.program, outcome.log, names, out);
  } else {
    ir::write_perfetto(outcome.program, outcome.log, names, out);
  }
  return std::move(out).str();
}

}  // namespace

void check_exports(const Exports& exports, experiments::CostModel cost,
                   config::Diagnostics& diagnostics) {
  if (!exports.timeline.empty() && !is_chrome(exports.timeline) &&
      !ends_with(exports.timeline, ".perfetto-trace")) {
    diagnostics.add(at_flag("--timeline"),
                    fmt::format("the ending of '{}' names no format", exports.timeline),
                    "FILE.perfetto-trace, or FILE.json for Chrome's format");
  }
  if (cost == experiments::CostModel::simulator) return;
  const std::pair<const char*, const std::string&> files[] = {
      {"--timeline", exports.timeline}, {"--log", exports.log}, {"--program", exports.program}};
  for (const auto& [flag, path] : files) {
    if (!path.empty()) {
      diagnostics.add(at_flag(flag), "a closed form runs no program", "use --cost simulator");
    }
  }
}

void write_exports(const Exports& exports, const experiments::LoadedRun& run,
                   const experiments::RunOutcome& outcome) {
  if (!exports.timeline.empty()) {
    write_file(exports.timeline, timeline(exports.timeline, run, outcome));
  }
  if (!exports.log.empty()) write_file(exports.log, ir::serialise(outcome.log));
  if (!exports.program.empty()) write_file(exports.program, ir::serialise(outcome.program));
}

}  // namespace orrery::tools
