/// orrery trace stats: counts, times between failures and availability of a trace.
#include "experiments/study/trace_stats.h"

#include <fmt/format.h>

#include <algorithm>

#include "tools/cli/command.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

constexpr std::size_t kCausesShown = 40;

std::string or_none(double value, int digits) { return value > 0 ? grouped(value, digits) : "-"; }

std::string counts_text(const traces::TraceStatistics& statistics) {
  if (statistics.counts.empty()) return "no events\n";
  Table table;
  table.column("kind").column("cause").number("events");
  for (std::size_t i = 0; i < std::min(kCausesShown, statistics.counts.size()); ++i) {
    const traces::CauseCount& count = statistics.counts[i];
    table.row({count.kind, count.cause, grouped(static_cast<double>(count.events), 0)});
  }
  std::string text = table.text(0, colors());
  if (statistics.counts.size() > kCausesShown) {
    text += fmt::format("and {} (--json shows all)\n",
                        counted(statistics.counts.size() - kCausesShown, "row"));
  }
  return text;
}

std::string availability_text(const traces::TraceStatistics& statistics) {
  std::vector<traces::Availability> rows = statistics.types;
  if (rows.size() > 1) {
    rows.push_back(statistics.all);
    rows.back().gpu_type = "all";
  }
  Table table;
  table.column("GPU type").number("nodes").number("GPUs").number("mean");
  for (const traces::Quantile& q : statistics.all.quantiles) {
    table.number(q.probability == 0   ? "min"
                 : q.probability == 1 ? "max"
                                      : fmt::format("p{:.0f}", 100 * q.probability));
  }
  for (const traces::Availability& row : rows) {
    std::vector<std::string> cells = {
        row.gpu_type.empty() ? "-" : row.gpu_type, grouped(static_cast<double>(row.nodes), 0),
        grouped(static_cast<double>(row.devices), 0), percent(row.mean_devices)};
    for (const traces::Quantile& q : row.quantiles) cells.push_back(percent(q.devices));
    table.row(std::move(cells));
  }
  std::string text = table.text(0, colors());
  Table nodes;
  nodes.column("GPU type").number("departures").number("bursts").number("mean burst");
  nodes.number("largest").number("mean join burst").number("lifetime h").number("away h");
  nodes.number("leaves/node-hour");
  bool any = false;
  for (const traces::Availability& row : rows) {
    any |= row.departures + row.arrivals > 0;
    nodes.row(
        {row.gpu_type.empty() ? "-" : row.gpu_type, grouped(static_cast<double>(row.departures), 0),
         grouped(static_cast<double>(row.bursts), 0), or_none(row.mean_burst, 2),
         or_none(row.max_burst, 0), or_none(row.mean_join_burst, 2), or_none(row.lifetime_hours, 2),
         or_none(row.away_hours, 2), or_none(row.leaves_per_node_hour, 4)});
  }
  if (any) text += "\n" + section("Whole nodes that go and come", nodes.text(0, colors()));
  return text;
}

std::string statistics_text(const traces::TraceStatistics& s) {
  return fmt::format(
      "{}\n{} over {}; {} nodes, {} GPUs\n\n{}\n{}\n{}",
      s.source.empty() ? "no source named" : s.source, counted(s.events, "event"),
      duration(s.horizon_hours * 3600), grouped(static_cast<double>(s.all.nodes), 0),
      grouped(static_cast<double>(s.all.devices), 0), section("Events", counts_text(s)),
      section("Interruptions",
              fmt::format("unexpected: {} ({} of them failures); announced: {}\n"
                          "MTBF: {} h\nMTTF of 1,024 GPUs: {} h\nper 1000 node-days: {}\n",
                          s.unexpected, s.failures, s.announced, or_none(s.mtbf_hours, 2),
                          or_none(s.mttf_1024_gpus_hours, 1), or_none(s.per_1000_node_days, 2))),
      section("Availability (share of GPUs that were there, over time)", availability_text(s)));
}

void print_statistics(const experiments::TraceStatsResult& result,
                      const experiments::TraceStatsSettings&) {
  print(result.curve ? *result.curve : statistics_text(result.statistics));
}

}  // namespace

extern const Command kTraceStats;
const Command kTraceStats = command<experiments::trace_stats, print_statistics>(
    "trace stats", "Counts, times between failures, availability, and its figure",
    "trace stats tests/traces/small.csv");

}  // namespace orrery::tools
