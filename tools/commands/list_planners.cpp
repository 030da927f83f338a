#include "tools/commands/list_planners.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/config/diagnostics.h"
#include "planners/catalog.h"
#include "planners/mixed_length/step_planner.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/commands/catalog_text.h"

namespace orrery::tools {
namespace {

struct PlannerRecord {
  std::string name;
  std::string source;
  std::string searches;
  std::string ignores;
  std::vector<OptionRecord> options;
};

struct StepPlannerRecord {
  std::string name;
  std::string source;
  std::string decides;
  std::string ignores;
  std::string strategies;
};

void describe(config::Visitor& v, StepPlannerRecord& record) {
  v.required("name", record.name, "");
  v.required("source", record.source, "");
  v.required("decides", record.decides, "");
  v.required("ignores", record.ignores, "");
  v.required("strategies", record.strategies, "");
}
void describe(config::Visitor& v, PlannerRecord& record) {
  v.required("name", record.name, "");
  v.required("source", record.source, "");
  v.required("searches", record.searches, "");
  v.required("ignores", record.ignores, "");
  v.required("options", record.options, "");
}
std::vector<PlannerRecord> planners_known(const std::vector<std::string>& names) {
  std::vector<PlannerRecord> records;
  for (const planners::PlannerEntry* entry : planners::catalog()) {
    if (!names.empty() && std::find(names.begin(), names.end(), entry->name) == names.end()) {
      continue;
    }
    records.push_back({entry->name, entry->source, entry->searches, entry->ignores,
                       option_records(entry->options())});
  }
  return records;
}

std::string text_of(const std::vector<PlannerRecord>& records, bool options) {
  std::string text;
  for (const PlannerRecord& record : records) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", bold(record.name));
    text += fact_text("source", record.source);
    text += fact_text("searches", record.searches);
    text += fact_text("ignores", record.ignores);
    if (options) text += options_text(record.options);
  }
  if (!options) text += "\norrery list planners NAME shows the options of a planner.\n";
  return text;
}

/// docs/planners.md.
std::string markdown(const std::vector<PlannerRecord>& records) {
  std::string text =
      "# Planners\n\n"
      "Made by `orrery list planners --markdown` from the catalog; do not edit. How they compare "
      "with the plans that the papers quote: [agreement.md](agreement.md). How to add one: "
      "[howto/add-a-planner.md](howto/add-a-planner.md).\n\n"
      "| planner | source | searches | ignores |\n|---|---|---|---|\n";
  for (const PlannerRecord& record : records) {
    text += fmt::format("| [`{0}`](#{0}) | {1} | {2} | {3} |\n", record.name,
                        escaped(record.source), escaped(record.searches), escaped(record.ignores));
  }
  for (const PlannerRecord& record : records) {
    text += fmt::format("\n## {}\n\n{}.\n\n", record.name, escaped(record.source));
    text += options_markdown(record.options);
  }
  return text;
}

std::vector<StepPlannerRecord> step_planners_known(const std::vector<std::string>& names) {
  std::vector<StepPlannerRecord> records;
  for (const planners::StepPlannerEntry* entry : planners::step_planners()) {
    if (!names.empty() && std::find(names.begin(), names.end(), entry->name) == names.end()) {
      continue;
    }
    records.push_back(
        {entry->name, entry->source, entry->decides, entry->ignores, "given, or searched"});
  }
  return records;
}

std::string text_of(const std::vector<StepPlannerRecord>& records) {
  std::string text;
  for (const StepPlannerRecord& record : records) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", bold(record.name));
    text += fact_text("source", record.source);
    text += fact_text("decides", record.decides);
    text += fact_text("ignores", record.ignores);
    text += fact_text("strategy", record.strategies);
  }
  return text + "\norrery mixed-length FILE runs them; the file says which and with what.\n";
}

/// The last part of docs/planners.md.
std::string markdown(const std::vector<StepPlannerRecord>& records) {
  std::string text =
      "## Steps of sequences of mixed lengths\n\n"
      "These decide for each step which strategies run one after another and which sequence goes "
      "to which pipeline (`orrery mixed-length FILE`, `orrery list step-planners`); `orrery plan` "
      "does not know them. Strategies stand in the file or are searched, where the last column "
      "says so.\n\n"
      "| step planner | source | decides | ignores | strategies |\n|---|---|---|---|---|\n";
  for (const StepPlannerRecord& record : records) {
    text += fmt::format("| `{}` | {} | {} | {} | {} |\n", record.name, escaped(record.source),
                        escaped(record.decides), escaped(record.ignores), record.strategies);
  }
  return text;
}

}  // namespace

std::string list_planners(const ListSettings& args) {
  config::Diagnostics diagnostics;
  for (const std::string& name : args.names) {
    if (planners::find_planner(name) != nullptr) continue;
    diagnostics.add({"list planners", 0, 0}, fmt::format("no planner is called '{}'", name),
                    planners::unknown_planner_hint(name));
  }
  if (args.markdown && args.json) {
    diagnostics.add({"list planners", 0, 0}, "--markdown and --json exclude each other");
  }
  diagnostics.raise();
  const std::vector<PlannerRecord> records = planners_known(args.names);
  if (args.json) return to_json(records);
  if (!args.markdown) return text_of(records, !args.names.empty());
  return args.names.empty() ? markdown(records) + "\n" + markdown(step_planners_known({}))
                            : markdown(records);
}

std::string list_step_planners(const ListSettings& args) {
  config::Diagnostics diagnostics;
  for (const std::string& name : args.names) {
    if (planners::find_step_planner(name) != nullptr) continue;
    diagnostics.add({"list step-planners", 0, 0},
                    fmt::format("no step planner is called '{}'", name),
                    config::suggest(name, planners::step_planner_names(), "step planners"));
  }
  if (args.markdown && args.json) {
    diagnostics.add({"list step-planners", 0, 0}, "--markdown and --json exclude each other");
  }
  diagnostics.raise();
  const std::vector<StepPlannerRecord> records = step_planners_known(args.names);
  if (args.json) return to_json(records);
  return args.markdown ? markdown(records) : text_of(records);
}

void refuse_planner_flags(const ListSettings& args) {
  config::Diagnostics diagnostics;
  if (args.markdown) {
    diagnostics.add({"list", 0, 0}, "--markdown is for planners, step planners and policies only",
                    "orrery list planners");
  }
  if (!args.names.empty()) {
    diagnostics.add({"list", 0, 0}, fmt::format("unexpected argument '{}'", args.names.front()),
                    "names narrow the lists of planners, step planners and policies only");
  }
  diagnostics.raise();
}

}  // namespace orrery::tools
