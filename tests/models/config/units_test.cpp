#include "models/config/units.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>
#include <string>
#include <vector>

namespace {

using namespace orrery;
using namespace orrery::config;

template <class Q>
double read(std::string_view text) {
  Q q{};
  TextError error;
  EXPECT_TRUE(from_text(text, q, error)) << text << ": " << error.what;
  return q.value;
}

template <class Q>
std::string why_not(std::string_view text) {
  Q q{};
  TextError error;
  EXPECT_FALSE(from_text(text, q, error)) << text << " was read as " << q.value;
  return error.what + " (" + error.hint + ")";
}

TEST(Units, BytesTellDecimalFromBinary) {
  EXPECT_EQ(read<Bytes>("3 B"), 3);
  EXPECT_EQ(read<Bytes>("1 KB"), 1000);
  EXPECT_EQ(read<Bytes>("1 KiB"), 1024);
  EXPECT_EQ(read<Bytes>("2 MB"), 2e6);
  EXPECT_EQ(read<Bytes>("2MiB"), 2097152);
  EXPECT_EQ(read<Bytes>("80 GB"), 80e9);
  EXPECT_EQ(read<Bytes>("80 GiB"), 85899345920.0);
  EXPECT_EQ(read<Bytes>("1.5 TB"), 1.5e12);
  EXPECT_EQ(read<Bytes>("1 TiB"), 1099511627776.0);
}

TEST(Units, BandwidthTellsBitsFromBytes) {
  EXPECT_EQ(read<BytesPerSecond>("400 Gbps"), 50e9);
  EXPECT_EQ(read<BytesPerSecond>("8 Mbps"), 1e6);
  EXPECT_EQ(read<BytesPerSecond>("1.6 Tbps"), 200e9);
  EXPECT_EQ(read<BytesPerSecond>("400 GB/s"), 400e9);
  EXPECT_EQ(read<BytesPerSecond>("1 MB/s"), 1e6);
  EXPECT_EQ(read<BytesPerSecond>("1 KB/s"), 1e3);
  EXPECT_EQ(read<BytesPerSecond>("3.35 TB/s"), 3.35e12);
  EXPECT_EQ(read<BytesPerSecond>("1 GiB/s"), 1073741824.0);
  EXPECT_EQ(read<BytesPerSecond>("1 MiB/s"), 1048576.0);
  EXPECT_EQ(read<BytesPerSecond>("7 B/s"), 7);
}

TEST(Units, TimesWorkAndMoneyAreCorrectlyRounded) {
  EXPECT_EQ(read<Seconds>("3 ns"), 3e-9);
  EXPECT_EQ(read<Seconds>("3 us"), 3e-6);
  EXPECT_EQ(read<Seconds>("7 ms"), 7e-3);
  EXPECT_EQ(read<Seconds>("1.5 s"), 1.5);
  EXPECT_EQ(read<Seconds>("2 min"), 120);
  EXPECT_EQ(read<Seconds>("2 h"), 7200);
  EXPECT_EQ(read<Seconds>("54 day"), 54 * 86400.0);
  EXPECT_EQ(read<Flops>("1 FLOP"), 1);
  EXPECT_EQ(read<Flops>("1 GFLOP"), 1e9);
  EXPECT_EQ(read<Flops>("1 TFLOP"), 1e12);
  EXPECT_EQ(read<Flops>("1 PFLOP"), 1e15);
  EXPECT_EQ(read<FlopsPerSecond>("5 GFLOPS"), 5e9);
  EXPECT_EQ(read<FlopsPerSecond>("312 TFLOPS"), 312e12);
  EXPECT_EQ(read<FlopsPerSecond>("312 TFLOP/s"), 312e12);
  EXPECT_EQ(read<FlopsPerSecond>("1 PFLOPS"), 1e15);
  EXPECT_EQ(read<Dollars>("12.5 USD"), 12.5);
  EXPECT_EQ(read<Dollars>("12.5 $"), 12.5);
  EXPECT_EQ(read<Dollars>("$12.5"), 12.5);
  EXPECT_EQ(read<DollarsPerSecond>("3.6 USD/h"), 0.001);
  EXPECT_EQ(read<DollarsPerSecond>("$3.6/h"), 0.001);
  EXPECT_EQ(read<DollarsPerSecond>("3.6 $/h"), 0.001);
  EXPECT_EQ(read<Watts>("0.4 kW"), 400);
  EXPECT_EQ(read<Joules>("2 kWh"), 7.2e6);
}

TEST(Units, WrongTextsAreRefusedWithTheListOfUnits) {
  const std::string hint = " (units: ns, us, ms, s, min, h, day, days)";
  EXPECT_EQ(why_not<Seconds>("5"), "missing unit after '5'" + hint);
  EXPECT_EQ(why_not<Seconds>("5 sec"), "unknown unit 'sec'" + hint);
  EXPECT_EQ(why_not<Seconds>("5 S"), "unknown unit 'S'" + hint);
  EXPECT_EQ(why_not<Seconds>("5 s s"), "unknown unit 's s'" + hint);
  EXPECT_EQ(why_not<Seconds>("nan s"), "expected a number with a unit, got 'nan s'" + hint);
  EXPECT_EQ(why_not<Seconds>("-inf s"), "expected a number with a unit, got '-inf s'" + hint);
  EXPECT_EQ(why_not<Seconds>("+-1 s"), "expected a number with a unit, got '+-1 s'" + hint);
  EXPECT_EQ(why_not<Seconds>(""), "expected a number with a unit, got ''" + hint);
  EXPECT_EQ(why_not<Seconds>("s"), "expected a number with a unit, got 's'" + hint);
  EXPECT_EQ(why_not<Seconds>("1_000 s"), "unknown unit '_000 s'" + hint);
  EXPECT_EQ(why_not<Seconds>("$5 s"), "unknown unit '$s'" + hint);
  EXPECT_EQ(why_not<Seconds>("1e999 s"), "number '1e999 s' is out of range ()");
  EXPECT_EQ(why_not<Seconds>("1e308 day"), "number '1e308 day' is out of range ()");
  EXPECT_EQ(why_not<Bytes>("400 Gb").substr(0, 17), "unknown unit 'Gb'");
  EXPECT_EQ(why_not<BytesPerSecond>("400 GB").substr(0, 17), "unknown unit 'GB'");
}

TEST(Units, PrintingChoosesAReadableUnit) {
  EXPECT_EQ(to_text(Bytes{80 * 0x1p30}), "80 GiB");
  EXPECT_EQ(to_text(Bytes{80e9}), "80 GB");
  EXPECT_EQ(to_text(Bytes{0}), "0 B");
  EXPECT_EQ(to_text(Seconds{5e-6}), "5 us");
  EXPECT_EQ(to_text(Seconds{-1.5}), "-1.5 s");
  EXPECT_EQ(to_text(Seconds{0.25}), "250 ms");
  EXPECT_EQ(to_text(Seconds{7200}), "2 h");
  EXPECT_EQ(to_text(BytesPerSecond{50e9}), "50 GB/s");
  EXPECT_EQ(to_text(FlopsPerSecond{312e12}), "312 TFLOPS");
  EXPECT_EQ(to_text(Dollars{12.5}), "12.5 USD");
  EXPECT_EQ(to_text(DollarsPerSecond{2.5 / 3600}), "2.5 USD/h");
  EXPECT_EQ(format_number(100000), "100000");
  EXPECT_EQ(format_number(0.1), "0.1");
}

template <class Q>
void expect_lossless(double value) {
  const std::string text = to_text(Q{value});
  EXPECT_EQ(read<Q>(text), value) << text;
  EXPECT_TRUE(std::regex_match(text, std::regex(quantity_pattern(unit_table(Q{}))))) << text;
}

TEST(Units, PrintingIsLosslessAtEveryMagnitude) {
  std::uint64_t state = 1;
  std::vector<double> values{0,
                             -0.0,
                             1,
                             std::numeric_limits<double>::max(),
                             std::numeric_limits<double>::denorm_min(),
                             std::numeric_limits<double>::min(),
                             1.0 / 3};
  for (int i = 0; i < 500; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const double mantissa = static_cast<double>(state >> 11) * 0x1p-53;
    values.push_back(std::ldexp(mantissa - 0.5, static_cast<int>(state % 2000) - 1000));
    values.push_back(std::ldexp(mantissa, i % 80 - 40));
  }
  for (const double value : values) {
    expect_lossless<Seconds>(value);
    expect_lossless<Bytes>(value);
    expect_lossless<BytesPerSecond>(value);
    expect_lossless<FlopsPerSecond>(value);
    expect_lossless<DollarsPerSecond>(value);
    expect_lossless<Joules>(value);
    TextError error;
    EXPECT_EQ(parse_number(format_number(value), error), value);
  }
}

TEST(Units, EveryUnitOfEveryTableReadsItsOwnScale) {
  const auto check = [](UnitTable table) {
    bool base = false;
    for (const Unit& unit : table) {
      TextError error;
      const auto value = parse_quantity("3 " + std::string(unit.name), table, error);
      ASSERT_TRUE(value) << unit.name;
      EXPECT_EQ(*value, 3 * unit.times / unit.over) << unit.name;
      base = base || unit.times == unit.over;
    }
    EXPECT_TRUE(base) << "without a base unit printing could lose digits";
  };
  check(unit_table(Seconds{}));
  check(unit_table(Bytes{}));
  check(unit_table(BytesPerSecond{}));
  check(unit_table(Flops{}));
  check(unit_table(FlopsPerSecond{}));
  check(unit_table(Dollars{}));
  check(unit_table(DollarsPerSecond{}));
  check(unit_table(Joules{}));
  check(unit_table(Watts{}));
}

TEST(Numbers, IntegersAreExact) {
  TextError error;
  const auto read_int = [&](const char* text) {
    return parse_integer(text, -100, 1LL << 60, error);
  };
  EXPECT_EQ(read_int("42"), 42);
  EXPECT_EQ(read_int("+42"), 42);
  EXPECT_EQ(read_int("-7"), -7);
  EXPECT_EQ(read_int("1e9"), 1000000000);
  EXPECT_EQ(read_int("1.5e3"), 1500);
  for (const char* text : {"1.5", "1.0", "1_000", "0x10", "", "-", "12a", "1e-1", "nan", "++1"}) {
    EXPECT_FALSE(read_int(text)) << text;
    EXPECT_EQ(error.what, "expected an integer, got '" + std::string(text) + "'");
  }
  EXPECT_FALSE(read_int("-101"));
  EXPECT_EQ(error.what, "integer '-101' is out of range");
  EXPECT_EQ(error.hint, "-100 to 1152921504606846976");
  for (const char* text : {"99999999999999999999", "1e18", "1e300"}) {
    EXPECT_FALSE(read_int(text)) << text;
    EXPECT_EQ(error.what, "integer '" + std::string(text) + "' is out of range");
  }
}

TEST(Numbers, DoublesAreFiniteDecimals) {
  TextError error;
  EXPECT_EQ(parse_number("-2.5e-3", error), -2.5e-3);
  EXPECT_EQ(parse_number(".5", error), 0.5);
  for (const char* text : {"nan", "inf", "-inf", ".inf", "1,5", "1.5x", "0x1p3", "1_000", ""}) {
    EXPECT_FALSE(parse_number(text, error)) << text;
    EXPECT_EQ(error.what, "expected a number, got '" + std::string(text) + "'");
  }
}

}  // namespace
