#include "tools/commands/list_planners.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "models/config/diagnostics.h"
#include "planners/catalog.h"
#include "tools/commands/inputs.h"
#include "tools/commands/json.h"
#include "tools/commands/output.h"
#include "tools/table.h"

namespace orrery::tools {
namespace {

struct OptionRecord {
  std::string name;
  std::string default_value;
  std::string doc;
};

struct PlannerRecord {
  std::string name;
  std::string source;
  std::string searches;
  std::string ignores;
  std::vector<OptionRecord> options;
};

void describe(config::Visitor& v, OptionRecord& record) {
  v.required("name", record.name, "");
  v.required("default", record.default_value, "");
  v.required("doc", record.doc, "");
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
    PlannerRecord record{entry->name, entry->source, entry->searches, entry->ignores, {}};
    for (const planners::OptionInfo& option : entry->options()) {
      record.options.push_back({option.name, option.default_value, option.doc});
    }
    records.push_back(std::move(record));
  }
  return records;
}

/// `text` in lines of at most `width` characters, later ones indented.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t line = 0;
  for (const std::string& word : split(text, ' ')) {
    const std::size_t length = display_width(word);
    if (line > 0 && line + 1 + length > width) {
      out += '\n';
      out.append(indent, ' ');
      line = 0;
    } else if (line > 0) {
      out += ' ';
      ++line;
    }
    out += word;
    line += length;
  }
  return out;
}

std::string text_of(const std::vector<PlannerRecord>& records, bool options) {
  constexpr std::size_t kIndent = 12;
  constexpr std::size_t kWidth = 86;
  std::string text;
  for (const PlannerRecord& record : records) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", bold(record.name));
    text += fmt::format("  source    {}\n", wrapped(record.source, kIndent, kWidth));
    text += fmt::format("  searches  {}\n", wrapped(record.searches, kIndent, kWidth));
    text += fmt::format("  ignores   {}\n", wrapped(record.ignores, kIndent, kWidth));
    if (!options) continue;
    if (!record.options.empty()) text += "  options (-o NAME=VALUE)\n";
    for (const OptionRecord& option : record.options) {
      text += fmt::format("    {} = {}\n            {}\n", option.name, option.default_value,
                          wrapped(option.doc, kIndent, kWidth));
    }
  }
  if (!options) text += "\norrery list planners NAME shows the options of a planner.\n";
  return text;
}

/// Of a cell of a Markdown table.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
    out += c;
  }
  return out;
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
    text += "| option | default | meaning |\n|---|---|---|\n";
    for (const OptionRecord& option : record.options) {
      text += fmt::format("| `{}` | `{}` | {} |\n", option.name, option.default_value,
                          escaped(option.doc));
    }
  }
  return text;
}

}  // namespace

std::string list_planners(const ListArgs& args) {
  config::Diagnostics diagnostics;
  for (const std::string& name : args.names) {
    if (planners::find_planner(name) != nullptr) continue;
    diagnostics.add({"list planners", 0, 0}, fmt::format("no planner is called '{}'", name),
                    config::suggest(name, planners::planner_names(), "planners"));
  }
  if (args.markdown && args.json) {
    diagnostics.add({"list planners", 0, 0}, "--markdown and --json exclude each other");
  }
  diagnostics.raise();
  const std::vector<PlannerRecord> records = planners_known(args.names);
  if (args.json) return to_json(records);
  return args.markdown ? markdown(records) : text_of(records, !args.names.empty());
}

void refuse_planner_flags(const ListArgs& args) {
  config::Diagnostics diagnostics;
  if (args.markdown) {
    diagnostics.add({"list", 0, 0}, "--markdown is for planners only", "orrery list planners");
  }
  if (!args.names.empty()) {
    diagnostics.add({"list", 0, 0}, fmt::format("unexpected argument '{}'", args.names.front()),
                    "names narrow the list of planners only");
  }
  diagnostics.raise();
}

}  // namespace orrery::tools
