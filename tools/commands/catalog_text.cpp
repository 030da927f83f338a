#include "tools/commands/catalog_text.h"

#include <fmt/format.h>

#include "models/base/text.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

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

}  // namespace

void describe(config::Visitor& v, OptionRecord& record) {
  v.required("name", record.name, "");
  v.required("default", record.default_value, "");
  v.required("doc", record.doc, "");
}

std::vector<OptionRecord> option_records(const std::vector<planners::OptionInfo>& options) {
  std::vector<OptionRecord> records;
  for (const planners::OptionInfo& option : options) {
    records.push_back({option.name, option.default_value, option.doc});
  }
  return records;
}

std::string fact_text(const std::string& key, const std::string& text) {
  return fmt::format("  {:<{}}{}\n", key, kIndent - 2, wrapped(text));
}

std::string options_text(const std::vector<OptionRecord>& options) {
  std::string text;
  if (!options.empty()) text += "  options (-o NAME=VALUE)\n";
  for (const OptionRecord& option : options) {
    text += fmt::format("    {} = {}\n            {}\n", option.name, option.default_value,
                        wrapped(option.doc));
  }
  return text;
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|' || c == '<' || c == '*' || c == '_') out += '\\';
    out += c;
  }
  return out;
}

std::string options_markdown(const std::vector<OptionRecord>& options) {
  std::string text = "| option | default | meaning |\n|---|---|---|\n";
  for (const OptionRecord& option : options) {
    text += fmt::format("| `{}` | `{}` | {} |\n", option.name, option.default_value,
                        escaped(option.doc));
  }
  return text;
}

}  // namespace orrery::tools
