/// orrery schema: JSON Schemas for editors, reference pages for people.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "experiments/study/assumptions.h"
#include "experiments/study/jobs.h"
#include "experiments/study/study.h"
#include "models/config/diagnostics.h"
#include "models/config/document.h"
#include "models/spec/schemas.h"
#include "tools/cli/command.h"
#include "tools/commands/tables.h"
#include "traces/generate/settings.h"

namespace orrery::tools {
namespace {

struct SchemaSettings {
  std::string kind;
  bool reference = false;
};

void describe(config::Visitor& v, SchemaSettings& settings) {
  v.required("kind", settings.kind,
             "cluster, model, job, jobs, lengths, plan, step_plan, profile, study, "
             "trace_generator, gpus or "
             "links",
             {.positional = true});
  v.optional("reference", settings.reference, "print the reference page (Markdown) instead");
}

/// A kind of file that models/spec does not know.
struct OwnKind {
  std::string (*schema)();
  std::string (*reference)();
};

template <class T, const char* Title>
OwnKind own() {
  return {[] { return config::json_schema<T>(Title); },
          [] { return config::reference_page<T>(Title); }};
}

constexpr char kAssumptions[] = "Assumptions";
constexpr char kJobs[] = "Jobs";
constexpr char kTraceGenerator[] = "Trace generator";

const std::map<std::string, OwnKind>& own_kinds() {
  static const std::map<std::string, OwnKind> kKinds = {
      {"assumptions", own<experiments::Assumptions, kAssumptions>()},
      {"jobs", own<experiments::Jobs, kJobs>()},
      {"study", {experiments::study_schema, experiments::study_reference}},
      {"trace_generator", own<traces::TraceGenerator, kTraceGenerator>()}};
  return kKinds;
}

experiments::TextResult schema(const SchemaSettings& settings, const experiments::Call&) {
  const auto own = own_kinds().find(settings.kind);
  if (own != own_kinds().end()) {
    return {settings.reference ? own->second.reference() : own->second.schema(), {}};
  }
  std::vector<std::string> kinds = models::schema_kinds();
  if (std::find(kinds.begin(), kinds.end(), settings.kind) == kinds.end()) {
    for (const auto& [name, kind] : own_kinds()) kinds.push_back(name);
    std::sort(kinds.begin(), kinds.end());
    config::Diagnostics diagnostics;
    const bool former = !experiments::former_schema_hint("orrery/" + settings.kind + "/").empty();
    diagnostics.add({"schema", 0, 0}, "unknown kind of file '" + settings.kind + "'",
                    former ? "it is a study now: orrery schema study"
                           : config::suggest(settings.kind, kinds, "kinds"));
    diagnostics.raise();
  }
  return {settings.reference ? models::reference_page_of(settings.kind)
                             : models::json_schema_of(settings.kind),
          {}};
}

}  // namespace

extern const Command kSchema;
const Command kSchema = command<schema, print_text<SchemaSettings>>(
    "schema", "JSON Schema of a kind of file, for editors", "schema cluster");

}  // namespace orrery::tools
