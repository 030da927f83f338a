/// What the lists of planners and of recovery policies have in common: entries with options, as
/// text and as Markdown.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "models/config/visitor.h"
#include "planners/planner.h"

namespace orrery::tools {

struct ListSettings {
  std::string what;
  std::vector<std::string> names;  ///< Of planners, step planners or policies.
  bool markdown = false;
  bool json = false;
};

void describe(config::Visitor& v, ListSettings& settings);

struct OptionRecord {
  std::string name;
  std::string default_value;
  std::string doc;
};
void describe(config::Visitor& v, OptionRecord& record);

std::vector<OptionRecord> option_records(const std::vector<planners::OptionInfo>& options);

/// "  source    ..." with further lines indented; ends in a newline.
std::string fact_text(const std::string& key, const std::string& text);
/// Heading and two lines for each option; "" without options.
std::string options_text(const std::vector<OptionRecord>& options);

/// Of a cell of a Markdown table.
std::string escaped(const std::string& text);
/// Table of the options.
std::string options_markdown(const std::vector<OptionRecord>& options);

}  // namespace orrery::tools
