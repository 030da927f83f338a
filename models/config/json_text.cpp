#include "models/config/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace orrery::config {
namespace {

using nlohmann::json;

constexpr std::size_t kLongestReason = 200;

/// "unexpected '}'; expected string literal" of the parser's message, which may quote any amount of
/// the text.
std::string reason_of(const std::string& message) {
  const std::size_t at = message.find(" - ");
  std::string reason = at == std::string::npos ? "ill-formed" : message.substr(at + 3);
  if (reason.size() <= kLongestReason) return reason;
  std::size_t cut = kLongestReason;  // not within a UTF-8 sequence
  while (cut > 0 && (static_cast<unsigned char>(reason[cut]) & 0xC0) == 0x80) --cut;
  return reason.substr(0, cut) + "...";
}

/// Ignores what is good.
struct FaultFinder {
  JsonFault fault;

  bool null() { return true; }
  bool boolean(bool) { return true; }
  bool number_integer(json::number_integer_t) { return true; }
  bool number_unsigned(json::number_unsigned_t) { return true; }
  bool number_float(json::number_float_t, const json::string_t&) { return true; }
  bool string(json::string_t&) { return true; }
  bool binary(json::binary_t&) { return true; }
  bool start_object(std::size_t) { return true; }
  bool key(json::string_t&) { return true; }
  bool end_object() { return true; }
  bool start_array(std::size_t) { return true; }
  bool end_array() { return true; }
  bool parse_error(std::size_t read, const std::string& token, const json::exception& error) {
    if (const auto* syntax = dynamic_cast<const json::parse_error*>(&error)) {
      fault = {syntax->byte - std::min<std::size_t>(syntax->byte, 1),
               "no JSON: " + reason_of(error.what())};
    } else {
      // The only other one: a number beyond double, of which all is read.
      fault = {read - std::min(read, token.size()),
               fmt::format("number {} is out of range", token.substr(0, kLongestReason))};
    }
    return false;
  }
};

}  // namespace

std::optional<JsonFault> parse_json(const std::string& text, json& out) {
  try {
    out = json::parse(text);
    return std::nullopt;
  } catch (const json::exception&) {
    out = nullptr;
  }
  FaultFinder finder;
  json::sax_parse(text, &finder);
  return finder.fault;
}

Position position_of_byte(const std::string& file, const std::string& text, std::size_t byte) {
  const auto here = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  const auto line = std::find(std::make_reverse_iterator(here), text.rend(), '\n').base();
  return {file, static_cast<int>(std::count(text.begin(), here, '\n')) + 1,
          static_cast<int>(here - line) + 1};
}

}  // namespace orrery::config
