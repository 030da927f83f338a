/// Samples of Google Cloud (uclasystem/bamboo, traces/gcloud): `YYYY-MM-DD, HH:MM:SS, count`,
/// written by several loggers at once, so that lines are not in order. Lines are sorted by time; of
/// several samples of one second the last line counts. A change happens at the first sample that
/// shows it. Time 0 is the first sample.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "models/config/units.h"
#include "traces/import/slots.h"

namespace orrery::traces {
namespace {

/// Years that are read; any two times of theirs are within kLongestTime of each other.
constexpr int kFirstYear = 1970;
constexpr int kLastYear = 2069;

/// Numbers of "2021-12-11" or "11:11:30".
std::optional<std::array<int, 3>> three(const std::string& text, char separator) {
  std::array<int, 3> out{};
  std::size_t begin = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t end = i == 2 ? text.size() : text.find(separator, begin);
    if (end == std::string::npos) return std::nullopt;
    config::TextError error;
    const auto number = config::parse_integer(text.substr(begin, end - begin), 0, 9999, error);
    if (!number) return std::nullopt;
    out[i] = static_cast<int>(*number);
    begin = end + 1;
  }
  return out;
}

/// Seconds since 1970, without time zones.
std::optional<std::int64_t> seconds_of(const std::string& date, const std::string& clock,
                                       bool& bad_date) {
  const auto day = three(date, '-');
  const auto time = three(clock, ':');
  using std::chrono::day, std::chrono::month, std::chrono::year;
  bad_date = true;
  if (!day) return std::nullopt;
  const std::chrono::year_month_day ymd{year{(*day)[0]}, month{static_cast<unsigned>((*day)[1])},
                                        std::chrono::day{static_cast<unsigned>((*day)[2])}};
  if (!ymd.ok() || (*day)[0] < kFirstYear || (*day)[0] > kLastYear) return std::nullopt;
  bad_date = false;
  if (!time || (*time)[0] > 23 || (*time)[1] > 59 || (*time)[2] > 59) return std::nullopt;
  const std::int64_t days = std::chrono::sys_days(ymd).time_since_epoch().count();
  return days * 86'400 + (*time)[0] * 3600 + (*time)[1] * 60 + (*time)[2];
}

struct Sample {
  std::int64_t second = 0;
  int instances = 0;
};

Trace read_gcp(const ImportInput& input) {
  std::vector<Sample> samples;
  for_each_row(
      input, 3, "date, time, count", "the file holds no samples", [&](const ForeignRow& row) {
        bool bad_date = false;
        const auto second = seconds_of(row.cells[0].text, row.cells[1].text, bad_date);
        if (!second) {
          const std::size_t bad = bad_date ? 0 : 1;
          row.add_problem(
              bad,
              fmt::format("'{}' is no {}", row.cells[bad].text, bad_date ? "date" : "time of day"),
              bad_date
                  ? fmt::format("for example 2021-12-11; years {} to {}", kFirstYear, kLastYear)
                  : "for example 11:13:10");
        }
        const auto count = row.integer(2, kMostInstances);
        if (second && count) samples.push_back({*second, static_cast<int>(*count)});
      });
  std::stable_sort(samples.begin(), samples.end(),
                   [](const Sample& a, const Sample& b) { return a.second < b.second; });
  std::vector<Count> counts;
  for (const Sample& sample : samples) {
    counts.push_back({{(sample.second - samples.front().second) * kSecond}, sample.instances});
  }
  const Instant end = counts.empty() ? Instant{} : counts.back().time;
  return from_counts(counts, end, input);
}

}  // namespace

extern const TraceFormat kGcp;
const TraceFormat kGcp = {"gcp", "date, time, count: samples of several loggers, unsorted",
                          read_gcp};

}  // namespace orrery::traces
