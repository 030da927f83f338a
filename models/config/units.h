/// Numbers with units as text: "400 Gbps", "80 GiB", "5 us". Bits and bytes, GB (10^9) and GiB
/// (2^30) are different units. Printing is lossless: the text parses to the same double.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "models/base/units.h"

namespace orrery::config {

/// A unit of one dimension: value in base units = number * times / over. Both are exact doubles,
/// so that "3 us" is the double nearest to 3e-6.
struct Unit {
  const char* name;
  double times;
  double over;
};
using UnitTable = std::span<const Unit>;

/// The units of each dimension that files may use; each table holds its base unit.
UnitTable unit_table(Seconds);           ///< ns us ms s min h day
UnitTable unit_table(Bytes);             ///< B, KB..PB (10^3), KiB..PiB (2^10)
UnitTable unit_table(BytesPerSecond);    ///< bps Kbps..Tbps (bits), B/s KB/s..TB/s, KiB/s..TiB/s
UnitTable unit_table(Flops);             ///< FLOP, MFLOP..EFLOP
UnitTable unit_table(FlopsPerSecond);    ///< FLOPS, MFLOPS..EFLOPS, also written FLOP/s
UnitTable unit_table(Dollars);           ///< USD, $ (also before the number)
UnitTable unit_table(DollarsPerSecond);  ///< USD/h USD/s $/h $/s
UnitTable unit_table(Joules);            ///< J kJ MJ kWh
UnitTable unit_table(Watts);             ///< W kW MW

/// Why a text is not a value, and what would be.
struct TextError {
  std::string what;
  std::string hint;
};

/// Reads a finite decimal number ("8", "-2.5", "1e9"); the whole text must be the number.
std::optional<double> parse_number(std::string_view text, TextError& error);

/// Reads an integer within [low, high]: "1e9", "128K" (131,072), "1M"; not "1.5", "1.0", "1_000".
std::optional<std::int64_t> parse_integer(std::string_view text, std::int64_t low,
                                          std::int64_t high, TextError& error);

/// Reads a number and one of `units`; the result is in base units.
std::optional<double> parse_quantity(std::string_view text, UnitTable units, TextError& error);

/// Shortest text that parse_number() reads as the same double. `value` must be finite.
std::string format_number(double value);

/// Text in a readable unit that parse_quantity() reads as the same double. `value` must be finite.
std::string format_quantity(double value, UnitTable units);

/// The names of `units`, joined with ", ".
std::string unit_names(UnitTable units);

/// A regular expression (ECMA) of the texts that parse_quantity() accepts.
std::string quantity_pattern(UnitTable units);

/// Any quantity with a unit table as text, losslessly: to_text(80_GiB) == "80 GiB".
template <int S, int B, int F, int D, int J>
std::string to_text(Quantity<S, B, F, D, J> quantity) {
  return format_quantity(quantity.value, unit_table(quantity));
}

/// Reads any quantity with a unit table; false and a filled `error` if the text is none.
template <int S, int B, int F, int D, int J>
bool from_text(std::string_view text, Quantity<S, B, F, D, J>& out, TextError& error) {
  const std::optional<double> value = parse_quantity(text, unit_table(out), error);
  if (value) out.value = *value;
  return value.has_value();
}

}  // namespace orrery::config
