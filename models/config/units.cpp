#include "models/config/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "models/base/check.h"

namespace orrery::config {
namespace {

constexpr std::array kSeconds{Unit{"ns", 1, 1e9},    Unit{"us", 1, 1e6},    Unit{"ms", 1, 1e3},
                              Unit{"s", 1, 1},       Unit{"min", 60, 1},    Unit{"h", 3600, 1},
                              Unit{"day", 86400, 1}, Unit{"days", 86400, 1}};
constexpr std::array kBytes{Unit{"B", 1, 1},        Unit{"KB", 1e3, 1},     Unit{"KiB", 0x1p10, 1},
                            Unit{"MB", 1e6, 1},     Unit{"MiB", 0x1p20, 1}, Unit{"GB", 1e9, 1},
                            Unit{"GiB", 0x1p30, 1}, Unit{"TB", 1e12, 1},    Unit{"TiB", 0x1p40, 1},
                            Unit{"PB", 1e15, 1},    Unit{"PiB", 0x1p50, 1}};
constexpr std::array kBytesPerSecond{
    Unit{"B/s", 1, 1},        Unit{"KB/s", 1e3, 1}, Unit{"KiB/s", 0x1p10, 1}, Unit{"MB/s", 1e6, 1},
    Unit{"MiB/s", 0x1p20, 1}, Unit{"GB/s", 1e9, 1}, Unit{"GiB/s", 0x1p30, 1}, Unit{"TB/s", 1e12, 1},
    Unit{"TiB/s", 0x1p40, 1}, Unit{"bps", 1, 8},    Unit{"Kbps", 1e3, 8},     Unit{"Mbps", 1e6, 8},
    Unit{"Gbps", 1e9, 8},     Unit{"Tbps", 1e12, 8}};
constexpr std::array kFlops{Unit{"FLOP", 1, 1},     Unit{"MFLOP", 1e6, 1},  Unit{"GFLOP", 1e9, 1},
                            Unit{"TFLOP", 1e12, 1}, Unit{"PFLOP", 1e15, 1}, Unit{"EFLOP", 1e18, 1}};
constexpr std::array kFlopsPerSecond{
    Unit{"FLOPS", 1, 1},      Unit{"MFLOPS", 1e6, 1},   Unit{"GFLOPS", 1e9, 1},
    Unit{"TFLOPS", 1e12, 1},  Unit{"PFLOPS", 1e15, 1},  Unit{"EFLOPS", 1e18, 1},
    Unit{"FLOP/s", 1, 1},     Unit{"MFLOP/s", 1e6, 1},  Unit{"GFLOP/s", 1e9, 1},
    Unit{"TFLOP/s", 1e12, 1}, Unit{"PFLOP/s", 1e15, 1}, Unit{"EFLOP/s", 1e18, 1}};
constexpr std::array kDollars{Unit{"USD", 1, 1}, Unit{"$", 1, 1}};
constexpr std::array kDollarsPerSecond{Unit{"USD/h", 1, 3600}, Unit{"USD/s", 1, 1},
                                       Unit{"$/h", 1, 3600}, Unit{"$/s", 1, 1}};
constexpr std::array kJoules{Unit{"J", 1, 1}, Unit{"kJ", 1e3, 1}, Unit{"MJ", 1e6, 1},
                             Unit{"kWh", 3.6e6, 1}};
constexpr std::array kWatts{Unit{"W", 1, 1}, Unit{"kW", 1e3, 1}, Unit{"MW", 1e6, 1}};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

/// Takes a decimal number off the front of `text`; the locale plays no part.
std::errc take_number(std::string_view& text, double& value) {
  std::size_t digit = !text.empty() && (text[0] == '+' || text[0] == '-') ? 1 : 0;
  const std::size_t skip = digit == 1 && text[0] == '+' ? 1 : 0;  // from_chars takes no '+'
  if (digit < text.size() && text[digit] == '.') ++digit;
  if (digit >= text.size() || !is_digit(text[digit])) return std::errc::invalid_argument;
  const auto [end, status] = std::from_chars(text.data() + skip, text.data() + text.size(), value);
  text.remove_prefix(end - text.data());
  return status;
}

std::string quote(std::string_view text) {
  constexpr std::size_t kShown = 60;
  if (text.size() <= kShown) return fmt::format("'{}'", text);
  std::size_t cut = kShown;  // not within a UTF-8 sequence
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;
  return fmt::format("'{}...'", text.substr(0, cut));
}

/// value * over / times, or a neighbor of it, so that reading the number gives `value` again.
std::optional<double> number_in_unit(double value, const Unit& unit) {
  const double guess = value * unit.over / unit.times;
  for (const double x :
       {guess, std::nextafter(guess, 0.0), std::nextafter(guess, HUGE_VAL * guess)})
    if (std::isfinite(x) && x * unit.times / unit.over == value) return x;
  return std::nullopt;
}

}  // namespace

UnitTable unit_table(Seconds) { return kSeconds; }
UnitTable unit_table(Bytes) { return kBytes; }
UnitTable unit_table(BytesPerSecond) { return kBytesPerSecond; }
UnitTable unit_table(Flops) { return kFlops; }
UnitTable unit_table(FlopsPerSecond) { return kFlopsPerSecond; }
UnitTable unit_table(Dollars) { return kDollars; }
UnitTable unit_table(DollarsPerSecond) { return kDollarsPerSecond; }
UnitTable unit_table(Joules) { return kJoules; }
UnitTable unit_table(Watts) { return kWatts; }

std::optional<double> parse_number(std::string_view text, TextError& error) {
  double value = 0;
  std::string_view rest = trim(text);
  const std::errc status = take_number(rest, value);
  if (status == std::errc::result_out_of_range) {
    error = {fmt::format("number {} is out of range", quote(text)), ""};
  } else if (status != std::errc{} || !rest.empty()) {
    error = {fmt::format("expected a number, got {}", quote(text)), ""};
  } else {
    return value;
  }
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t low,
                                          std::int64_t high, TextError& error) {
  std::int64_t value = 0;
  std::string_view rest = trim(text);
  if (rest.size() > 1 && rest.front() == '+' && is_digit(rest[1])) rest.remove_prefix(1);
  const auto [end, status] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  bool whole = status != std::errc::invalid_argument && end == rest.data() + rest.size();
  bool fits = status == std::errc{};
  if (!whole && rest.find_first_of("eE") != std::string_view::npos) {
    double wide = 0;
    std::string_view left = rest;
    const std::errc wide_status = take_number(left, wide);
    whole = left.empty() && wide_status == std::errc{} && wide == std::floor(wide);
    fits = whole && std::abs(wide) <= 0x1p53;  // above that, a double does not name one integer
    if (fits) value = static_cast<std::int64_t>(wide);
  }
  // "128K" tokens are 131,072.
  const char last = rest.empty() ? ' ' : rest.back();
  const int shift = last == 'K' || last == 'k' ? 10 : last == 'M' ? 20 : 0;
  if (!whole && fits && shift > 0 && end == rest.data() + rest.size() - 1) {
    whole = true;
    fits = !__builtin_mul_overflow(value, std::int64_t{1} << shift, &value);
  }
  if (!whole) {
    error = {fmt::format("expected an integer, got {}", quote(text)), ""};
    return std::nullopt;
  }
  if (!fits || value < low || value > high) {
    error = {fmt::format("integer {} is out of range", quote(text)),
             fmt::format("{} to {}", low, high)};
    return std::nullopt;
  }
  return value;
}

std::optional<double> parse_quantity(std::string_view text, UnitTable units, TextError& error) {
  const std::string hint = "units: " + unit_names(units);
  std::string_view rest = trim(text);
  const bool dollar_first = !rest.empty() && rest.front() == '$';
  if (dollar_first) rest = trim(rest.substr(1));
  double number = 0;
  const std::errc status = take_number(rest, number);
  if (status == std::errc::result_out_of_range) {
    error = {fmt::format("number {} is out of range", quote(text)), ""};
    return std::nullopt;
  }
  if (status != std::errc{}) {
    error = {fmt::format("expected a number with a unit, got {}", quote(text)), hint};
    return std::nullopt;
  }
  const std::string name = fmt::format("{}{}", dollar_first ? "$" : "", trim(rest));
  if (name.empty()) {
    error = {fmt::format("missing unit after {}", quote(text)), hint};
    return std::nullopt;
  }
  for (const Unit& unit : units) {
    if (name != unit.name) continue;
    const double value = number * unit.times / unit.over;
    if (std::isfinite(value)) return value;
    error = {fmt::format("number {} is out of range", quote(text)), ""};
    return std::nullopt;
  }
  error = {fmt::format("unknown unit {}", quote(name)), hint};
  return std::nullopt;
}

std::string format_number(double value) {
  ORRERY_CHECK(std::isfinite(value), "{} cannot be written to a file", value);
  std::array<char, 400> buffer;
  const double size = std::abs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e9);
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    fixed ? std::chars_format::fixed : std::chars_format::general);
  return {buffer.data(), result.ptr};
}

std::string format_quantity(double value, UnitTable units) {
  std::string best;
  std::size_t best_cost = 0;
  for (const Unit& unit : units) {
    const std::optional<double> number = number_in_unit(value, unit);
    if (!number) continue;
    const std::string text = format_number(*number);
    const double size = std::abs(*number);
    const std::size_t unreadable = size != 0 && (size < 1 || size >= 1e4) ? 2 : 0;
    const std::size_t cost = text.size() + unreadable;
    if (!best.empty() && cost >= best_cost) continue;
    best = fmt::format("{} {}", text, unit.name);
    best_cost = cost;
  }
  ORRERY_CHECK(!best.empty(), "no base unit for {}", value);
  return best;
}

std::string unit_names(UnitTable units) {
  std::vector<std::string_view> names;
  for (const Unit& unit : units) names.emplace_back(unit.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string quantity_pattern(UnitTable units) {
  constexpr const char* kNumber = "([-+]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][-+]?[0-9]+)?)";
  std::vector<std::string> suffixes, after_dollar;
  for (const Unit& unit : units) {
    const std::string_view name = unit.name;
    const bool dollar = name.front() == '$';
    suffixes.push_back(fmt::format("{}{}", dollar ? "[$]" : "", name.substr(dollar ? 1 : 0)));
    if (dollar) after_dollar.emplace_back(name.substr(1));
  }
  const std::string suffixed = fmt::format("{} *({})", kNumber, fmt::join(suffixes, "|"));
  if (after_dollar.empty()) return fmt::format("^ *{} *$", suffixed);
  return fmt::format("^ *({}|[$] *{} *({})) *$", suffixed, kNumber, fmt::join(after_dollar, "|"));
}

}  // namespace orrery::config
