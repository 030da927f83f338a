/// orrery schema: JSON Schemas for editors, reference pages for people.
#include <algorithm>
#include <vector>

#include "experiments/runner/manifest.h"
#include "experiments/runner/mixed_length_file.h"
#include "experiments/runner/replay_file.h"
#include "models/config/diagnostics.h"
#include "models/config/document.h"
#include "models/spec/schemas.h"
#include "tools/commands/commands.h"
#include "tools/commands/output.h"
#include "traces/generate_settings.h"

namespace orrery::tools {
namespace {

constexpr const char* kMixedLength = "mixed_length";
constexpr const char* kReplay = "replay";
constexpr const char* kTraceGenerator = "trace_generator";

}  // namespace

int execute(const SchemaArgs& args) {
  std::vector<std::string> kinds = models::schema_kinds();
  kinds.emplace_back("manifest");
  kinds.emplace_back(kMixedLength);
  kinds.emplace_back(kReplay);
  kinds.emplace_back(kTraceGenerator);
  std::sort(kinds.begin(), kinds.end());
  if (std::find(kinds.begin(), kinds.end(), args.kind) == kinds.end()) {
    config::Diagnostics diagnostics;
    diagnostics.add({"schema", 0, 0}, "unknown kind of file '" + args.kind + "'",
                    config::suggest(args.kind, kinds, "kinds"));
    diagnostics.raise();
  }
  if (args.kind == kMixedLength) {
    print(args.reference ? config::reference_page<experiments::MixedLengthFile>("Mixed lengths")
                         : config::json_schema<experiments::MixedLengthFile>("Mixed lengths"));
  } else if (args.kind == kTraceGenerator) {
    print(args.reference ? config::reference_page<traces::TraceGenerator>("Trace generator")
                         : config::json_schema<traces::TraceGenerator>("Trace generator"));
  } else if (args.kind == kReplay) {
    print(args.reference ? config::reference_page<experiments::ReplayStudy>("Replay study")
                         : config::json_schema<experiments::ReplayStudy>("Replay study"));
  } else if (args.kind == "manifest") {
    print(args.reference ? experiments::manifest_reference() : experiments::manifest_schema());
  } else {
    print(args.reference ? models::reference_page_of(args.kind)
                         : models::json_schema_of(args.kind));
  }
  return 0;
}

}  // namespace orrery::tools
