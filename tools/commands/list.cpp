/// orrery list: what the library and this build know.
#include "experiments/study/list.h"

#include <fmt/format.h>

#include <utility>

#include "models/base/text.h"
#include "planners/modules/modules.h"
#include "tools/cli/command.h"
#include "tools/cli/described_table.h"
#include "tools/cli/output.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

using experiments::ExperimentRow;
using experiments::GpuRow;
using experiments::KnownPlanner;
using experiments::KnownPolicy;
using experiments::KnownStepPlanner;
using experiments::ListResult;
using experiments::ListSettings;
using experiments::ModelRow;
using Options = std::vector<planners::OptionInfo>;

struct ListView {
  bool markdown = false;
};

void describe(config::Visitor& v, ListView& view) {
  v.optional("markdown", view.markdown, "print as docs/planners.md, docs/recovery.md");
}

// ---- tables ----

std::string text_of(const std::vector<GpuRow>& rows) {
  Table table;
  table.column("GPU").column("vendor").number("GiB").number("GB/s").number("bf16 TFLOPS");
  table.number("fp16 TFLOPS").number("efficiency").number("$/h").number("W");
  for (const GpuRow& row : rows) {
    const auto peak = [&](const char* dtype) {
      const auto at = row.peak.find(dtype);
      return at == row.peak.end() ? "-" : grouped(at->second / 1e12, 1);
    };
    table.row({row.name, row.vendor, grouped(row.memory.value / 0x1p30, 1),
               grouped(row.memory_bandwidth.value / 1e9, 0), peak("bf16"), peak("fp16"),
               fmt::format("{:.2f}", row.efficiency),
               row.dollars_per_hour ? fmt::format("{:.2f}", *row.dollars_per_hour) : "-",
               row.power ? grouped(row.power->value, 0) : "-"});
  }
  return table.text(0, colors());
}

std::string text_of(const std::vector<ModelRow>& rows) {
  Table table;
  table.column("model").number("parameters").number("layers").number("hidden");
  for (const ModelRow& row : rows) {
    const double billions = row.parameters / 1e9;
    table.row({row.name,
               billions >= 1 ? fmt::format("{:.1f} B", billions)
                             : fmt::format("{:.0f} M", 1e3 * billions),
               std::to_string(row.layers), row.hidden > 0 ? std::to_string(row.hidden) : "-"});
  }
  return table.text(0, colors());
}

std::string text_of(const std::vector<ExperimentRow>& rows) {
  Table table;
  table.column("experiment (for orrery run)").number("runs").column("title");
  for (const ExperimentRow& row : rows) {
    table.row({row.path, std::to_string(row.runs), row.title});
  }
  return table.text(0, colors());
}

template <class Row>
std::string text_of(const std::vector<Row>& rows) {
  return described_table(rows).text(0, colors());
}

// ---- catalogs, in detail ----

constexpr std::size_t kIndent = 12;
constexpr std::size_t kWidth = 86;

/// `text` in lines of at most kWidth characters, later ones indented.
std::string wrapped(const std::string& text) {
  std::string out;
  std::size_t line = 0;
  for (const std::string& word : split(text, ' ')) {
    const std::size_t length = display_width(word);
    if (line > 0 && line + 1 + length > kWidth) {
      out += '\n';
      out.append(kIndent, ' ');
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

/// "  source    ..." with further lines indented; ends in a newline.
std::string fact_text(const std::string& key, const std::string& text) {
  return fmt::format("  {:<{}}{}\n", key, kIndent - 2, wrapped(text));
}

/// What is said of an entry, by what.
using Facts = std::vector<std::pair<const char*, const char*>>;
Facts facts(const KnownPlanner& p) {
  return {{"source", p->source}, {"searches", p->searches}, {"ignores", p->ignores}};
}
Facts facts(const KnownStepPlanner& p) {
  return {{"source", p->source},
          {"decides", p->decides},
          {"ignores", p->ignores},
          {"strategy", experiments::kStepStrategies}};
}
Facts facts(const KnownPolicy& p) {
  return {{"source", p->source},
          {"recovers", p->recovers},
          {"needs", p->needs},
          {"loses", p->loses},
          {"deviates", p->deviations}};
}

std::string options_text(const Options& options) {
  std::string text;
  if (!options.empty()) text += "  options (-o NAME=VALUE)\n";
  for (const planners::OptionInfo& option : options) {
    text += fmt::format("    {} = {}\n            {}\n", option.name, option.default_value,
                        wrapped(option.doc));
  }
  return text;
}

template <class Entry>
std::string catalog_text(const std::vector<Entry>& entries) {
  std::string text;
  for (const Entry& entry : entries) {
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n", bold(entry->name));
    for (const auto& [key, fact] : facts(entry)) text += fact_text(key, fact);
    if (const auto* module = planners::module_with(entry->name)) {
      text += fact_text("module", module->path);
    }
  }
  return text;
}
/// With `options`, in place of how to see them.
template <class Entry>
std::string catalog_text(const std::vector<Entry>& entries, bool options, const char* hint) {
  if (!options) return catalog_text(entries) + hint;
  std::string text;
  for (const Entry& entry : entries) {
    text += (text.empty() ? "" : "\n") + catalog_text(std::vector<Entry>{entry});
    text += options_text(entry->options());
  }
  return text;
}

// ---- catalogs as Markdown ----

/// The text as a cell of a table.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
    out += c;
  }
  return out;
}

std::string options_markdown(const Options& options) {
  std::string text = "| option | default | meaning |\n|---|---|---|\n";
  for (const planners::OptionInfo& option : options) {
    text += fmt::format("| `{}` | `{}` | {} |\n", option.name, option.default_value,
                        escaped(option.doc));
  }
  return text;
}

/// A row of an entry with its first `count` facts.
template <class Entry>
std::string markdown_row(const std::string& name, const Entry& entry, std::size_t count) {
  std::string text = "| " + name + " |";
  for (const auto& [key, fact] : facts(entry)) {
    if (count-- == 0) break;
    text += fmt::format(" {} |", escaped(fact));
  }
  return text + "\n";
}

/// The last part of docs/planners.md.
std::string markdown(const std::vector<KnownStepPlanner>& entries) {
  std::string text =
      "## Steps of sequences of mixed lengths\n\n"
      "These decide for each step which strategies run one after another and which sequence goes "
      "to which pipeline (`orrery mixed-length FILE`, `orrery list step-planners`); `orrery plan` "
      "does not know them. Strategies are given in the file or searched, where the last column "
      "says so.\n\n"
      "| step planner | source | decides | ignores | strategies |\n|---|---|---|---|---|\n";
  for (const KnownStepPlanner& entry : entries) {
    text += markdown_row(fmt::format("`{}`", entry->name), entry, 4);
  }
  return text;
}

/// docs/planners.md; all of it where all planners are listed.
std::string markdown(const std::vector<KnownPlanner>& entries, bool all) {
  std::string text =
      "# Planners\n\n"
      "Made by `orrery list planners --markdown` from the catalog; do not edit. How they compare "
      "with the plans that the papers quote: [agreement.md](agreement.md). How to add one: "
      "[howto/add-a-planner.md](howto/add-a-planner.md).\n\n"
      "| planner | source | searches | ignores |\n|---|---|---|---|\n";
  for (const KnownPlanner& entry : entries) {
    text += markdown_row(fmt::format("[`{0}`](#{0})", entry->name), entry, 3);
  }
  for (const KnownPlanner& entry : entries) {
    text += fmt::format("\n## {}\n\n{}.\n\n{}", entry->name, escaped(entry->source),
                        options_markdown(entry->options()));
  }
  if (!all) return text;
  text +=
      "\n## Compared\n\n"
      "From [experiments/planners](../experiments/planners/README.md), by "
      "`tools/scripts/results.py`.\n\n<!-- results -->\n<!-- results -->\n";
  const ListResult steps = experiments::list({"step-planners", {}}, {});
  return text + "\n" + markdown(std::get<std::vector<KnownStepPlanner>>(steps.rows));
}

/// docs/recovery.md.
std::string markdown(const std::vector<KnownPolicy>& entries) {
  std::string text =
      "# Recovery policies\n\n"
      "Made by `orrery list policies --markdown` from the catalog; do not edit. How to replay a "
      "trace with them, how to read what comes out and how to add one: "
      "[howto/recovery-policy.md](howto/recovery-policy.md).\n\n"
      "| policy | source | at a failure | needs | loses |\n|---|---|---|---|---|\n";
  for (const KnownPolicy& entry : entries) {
    text += markdown_row(fmt::format("[`{0}`](#{0})", entry->name), entry, 4);
  }
  for (const KnownPolicy& entry : entries) {
    text +=
        fmt::format("\n## {}\n\n{}.\n\nDeviations: {}.\n\n{}", entry->name, escaped(entry->source),
                    escaped(entry->deviations), options_markdown(entry->options()));
  }
  return text;
}

/// The lists as text, by the type of their rows.
struct Shown {
  bool markdown_asked;
  bool names;

  std::string operator()(const std::vector<KnownPlanner>& entries) const {
    if (markdown_asked) return markdown(entries, !names);
    return catalog_text(entries, names,
                        "\norrery list planners NAME shows the options of a planner.\n");
  }
  std::string operator()(const std::vector<KnownStepPlanner>& entries) const {
    if (markdown_asked) return markdown(entries);
    return catalog_text(entries) +
           "\norrery mixed-length FILE runs them; the file says which and with what.\n";
  }
  std::string operator()(const std::vector<KnownPolicy>& entries) const {
    if (markdown_asked) return markdown(entries);
    return catalog_text(entries, names,
                        "\norrery list policies NAME shows the options of a policy.\n");
  }
  template <class Row>
  std::string operator()(const std::vector<Row>& rows) const {
    if (!markdown_asked) return text_of(rows);
    config::Diagnostics diagnostics;
    diagnostics.add({"list", 0, 0}, "--markdown is for planners, step planners and policies only",
                    "orrery list planners");
    diagnostics.raise();
    return "";
  }
};

void print_list(const ListResult& result, const ListSettings& settings, const ListView& view) {
  print(std::visit(Shown{view.markdown, !settings.names.empty()}, result.rows));
}

}  // namespace

extern const Command kList;
const Command kList = command<experiments::list, print_list, ListView>(
    "list", "Show what the library and this build know", "list planners hexiscale");

}  // namespace orrery::tools
