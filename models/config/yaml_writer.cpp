/// to_yaml() and to_flow(): own writer, so that equal trees give equal bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "models/config/value.h"

namespace orrery::config {
namespace {

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Texts that mean the same without quotes in block and flow style.
bool safe_plain(const std::string& text) {
  static constexpr std::string_view kInside = "_./+-% @";
  if (text.empty() || text == "null" || text == "Null" || text == "NULL") return false;
  const bool signed_number = (text[0] == '-' || text[0] == '+' || text[0] == '.') &&
                             text.size() > 1 && std::isdigit(static_cast<unsigned char>(text[1]));
  if (!is_letter_or_digit(text[0]) && text[0] != '/' && text[0] != '_' && !signed_number)
    return false;
  return text.back() != ' ' && std::all_of(text.begin(), text.end(), [](char c) {
           return is_letter_or_digit(c) || kInside.find(c) != std::string_view::npos;
         });
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string scalar_text(const std::string& text, bool quotes) {
  return quotes || !safe_plain(text) ? quoted(text) : text;
}

bool one_line(const Value& value) {
  if (value.is_list())
    return std::all_of(value.items.begin(), value.items.end(),
                       [](const Value& item) { return item.is_scalar() || item.is_null(); });
  return !value.is_map() || value.entries.empty();
}

void write_block(const Value& value, std::size_t indent, bool first_line_open, std::string& out) {
  bool open = first_line_open;
  const auto start_line = [&] {
    if (!open) out.append(indent, ' ');
    open = false;
  };
  const auto write_child = [&](const Value& child, bool same_line) {
    if (one_line(child)) {
      if (!same_line) out += ' ';
      out += to_flow(child);
      out += '\n';
    } else {
      if (!same_line) out += '\n';
      write_block(child, indent + 2, same_line, out);
    }
  };
  for (const Value& item : value.items) {
    start_line();
    out += "- ";
    write_child(item, true);
  }
  for (const Value::Entry& entry : value.entries) {
    start_line();
    out += scalar_text(entry.key, false) + ":";
    write_child(entry.value, false);
  }
}

}  // namespace

std::string to_flow(const Value& value) {
  switch (value.kind) {
    case Value::Kind::null:
      return "null";
    case Value::Kind::scalar:
      return scalar_text(value.text, value.quoted);
    case Value::Kind::list:
    case Value::Kind::map:
      break;
  }
  std::vector<std::string> parts;
  for (const Value& item : value.items) parts.push_back(to_flow(item));
  for (const Value::Entry& entry : value.entries)
    parts.push_back(fmt::format("{}: {}", scalar_text(entry.key, false), to_flow(entry.value)));
  const char* brackets = value.is_list() ? "[]" : "{}";
  return fmt::format("{}{}{}", brackets[0], fmt::join(parts, ", "), brackets[1]);
}

std::string to_yaml(const Value& value) {
  if (one_line(value)) return to_flow(value) + "\n";
  std::string out;
  write_block(value, 0, false, out);
  return out;
}

}  // namespace orrery::config
