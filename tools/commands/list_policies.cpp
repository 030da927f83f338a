#include "tools/commands/list_policies.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/config/diagnostics.h"
#include "planners/recovery/catalog.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/catalog_text.h"

namespace orrery::tools {
namespace {

struct PolicyRecord {
  std::string name;
  std::string source;
  std::string recovers;
  std::string needs;
  std::string loses;
  std::string deviations;
  std::vector<OptionRecord> options;
};

void describe(config::Visitor& v, PolicyRecord& record) {
  v.required("name", record.name, "");
  v.required("source", record.source, "");
  v.required("recovers", record.recovers, "");
  v.required("needs", record.needs, "");
  v.required("loses", record.loses, "");
  v.required("deviations", record.deviations, "");
  v.required("options", record.options, "");
}

std::vector<PolicyRecord> policies_known(const std::vector<std::string>& names) {
  std::vector<PolicyRecord> records;
  for (const planners::RecoveryEntry* entry : planners::recovery_catalog()) {
    if (!names.empty() && std::find(names.begin(), names.end(), entry->name) == names.end()) {
      continue;
    }
    records.push_back({entry->name, entry->source, entry->recovers, entry->needs, entry->loses,
                       entry->deviations, option_records(entry->options())});
  }
  return records;
}

std::string text_of(const std::vector<PolicyRecord>& records, bool options) {
  std::string text;
  for (const PolicyRecord& record : records) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", bold(record.name));
    text += fact_text("source", record.source);
    text += fact_text("recovers", record.recovers);
    text += fact_text("needs", record.needs);
    text += fact_text("loses", record.loses);
    text += fact_text("deviates", record.deviations);
    if (options) text += options_text(record.options);
  }
  if (!options) text += "\norrery list policies NAME shows the options of a policy.\n";
  return text;
}

/// docs/recovery.md.
std::string markdown(const std::vector<PolicyRecord>& records) {
  std::string text =
      "# Recovery policies\n\n"
      "Made by `orrery list policies --markdown` from the catalog; do not edit. How to replay a "
      "trace with them, how to read what comes out and how to add one: "
      "[howto/recovery-policy.md](howto/recovery-policy.md).\n\n"
      "| policy | source | at a failure | needs | loses |\n|---|---|---|---|---|\n";
  for (const PolicyRecord& record : records) {
    text += fmt::format("| [`{0}`](#{0}) | {1} | {2} | {3} | {4} |\n", record.name,
                        escaped(record.source), escaped(record.recovers), escaped(record.needs),
                        escaped(record.loses));
  }
  for (const PolicyRecord& record : records) {
    text +=
        fmt::format("\n## {}\n\n{}.\n\nDeviations: {}.\n\n{}", record.name, escaped(record.source),
                    escaped(record.deviations), options_markdown(record.options));
  }
  return text;
}

}  // namespace

std::string list_policies(const ListSettings& args) {
  config::Diagnostics diagnostics;
  for (const std::string& name : args.names) {
    if (planners::find_policy(name) != nullptr) continue;
    diagnostics.add({"list policies", 0, 0}, fmt::format("no policy is called '{}'", name),
                    config::suggest(name, planners::policy_names(), "policies"));
  }
  if (args.markdown && args.json) {
    diagnostics.add({"list policies", 0, 0}, "--markdown and --json exclude each other");
  }
  diagnostics.raise();
  const std::vector<PolicyRecord> records = policies_known(args.names);
  if (args.json) return to_json(records);
  return args.markdown ? markdown(records) : text_of(records, !args.names.empty());
}

}  // namespace orrery::tools
