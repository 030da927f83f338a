// Do logs of clusters become traces that say what happened to which node, and when?
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "tests/traces/support.h"
#include "traces/import/import.h"
#include "traces/names.h"

namespace orrery::traces::logs_test {
namespace {

std::string kind_of(const ir::ClusterEvent& event) {
  switch (event.kind) {
    case ir::EventKind::fail:
      return "fail";
    case ir::EventKind::repair:
      return "repair";
    case ir::EventKind::leave:
      return "leave";
    case ir::EventKind::join:
      return "join";
    default:
      return "?";
  }
}

/// "seconds kind node (cause)" of each event, or the problems.
std::string read(const std::string& format, const std::string& text,
                 const ImportOptions& options = {}) {
  const File file(text);
  config::Diagnostics diagnostics;
  const Trace trace = import_trace(format, file.path(), options, diagnostics);
  if (!diagnostics.empty()) return all(diagnostics);
  std::string out;
  for (const ir::ClusterEvent& event : trace.events) {
    const bool job = event.scope.kind == ir::EventScope::Kind::job;
    out += fmt::format("{} {} {} ({})\n", format_time(event.time.nanoseconds), kind_of(event),
                       job ? "job" : trace.nodes[event.scope.node.index()].name, event.cause);
  }
  return out +
         fmt::format("{} nodes, {} s\n", trace.nodes.size(), format_time(trace.horizon.count));
}

ImportOptions columns() {
  ImportOptions options;
  options.time_column = "when";
  options.node_column = "host";
  options.event_column = "what";
  options.event_kinds = {{"NODE_DOWN", "fail"}, {"NODE_UP", "repair"}, {"PING", "ignore"}};
  return options;
}

TEST(ImportCsv, WordsOfTheLogBecomeEvents) {
  const std::string log =
      "what,host,when\n"
      "NODE_UP,b,2024-03-01T00:30:00Z\n"  // Lines come in any order; b was never down.
      "NODE_DOWN,a,2024-03-01T01:00:00+01:00\n"
      "NODE_DOWN,a,2024-03-01 00:10:00\n"
      "PING,a,2024-03-01T00:11:00Z\n"
      "NODE_UP,a,2024-03-01T00:20:00.5Z\n";
  EXPECT_EQ(read("csv", log, columns()),
            "0 fail a (NODE_DOWN)\n1200.5 repair a (NODE_UP)\n2 nodes, 1800 s\n");
  ImportOptions later = columns();
  later.nodes = 4;
  later.start = parse_clock("2024-03-01T00:05:00Z");
  EXPECT_EQ(read("csv", log, later),
            "300 fail a (NODE_DOWN)\n900.5 repair a (NODE_UP)\n4 nodes, 1500 s\n");
}

TEST(ImportCsv, NodesComeBackWhereNothingSaysWhen) {
  ImportOptions options = columns();
  options.repair_after = Nanoseconds{60 * kSecond};
  EXPECT_EQ(read("csv",
                 "when,host,what\n0,a,NODE_DOWN\n30,a,NODE_DOWN\n40,b,NODE_DOWN\n200,b,NODE_DOWN\n",
                 options),
            "0 fail a (NODE_DOWN)\n40 fail b (NODE_DOWN)\n90 repair a (NODE_DOWN)\n"
            "100 repair b (NODE_DOWN)\n200 fail b (NODE_DOWN)\n260 repair b (NODE_DOWN)\n"
            "2 nodes, 260 s\n");
}

TEST(ImportCsv, ManyNodesThatAreDownCostLittle) {
  // 60,000 nodes fail one after the other, each comes back after the last one has failed.
  constexpr int kNodes = 60'000;
  std::string log = "when,host,what\n";
  for (int i = 0; i < kNodes; ++i) log += fmt::format("{},n{},NODE_DOWN\n", i, i);
  ImportOptions options = columns();
  options.repair_after = Nanoseconds{kNodes * kSecond};
  const File file(log);
  config::Diagnostics diagnostics;
  const auto begin = std::clock();
  const Trace trace = import_trace("csv", file.path(), options, diagnostics);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 5);
  ASSERT_EQ(all(diagnostics), "");
  ASSERT_EQ(trace.events.size(), 2u * kNodes);
  for (int i = 0; i < kNodes; ++i) {
    const ir::ClusterEvent& back = trace.events[as_size(kNodes + i)];
    ASSERT_EQ(back.kind, ir::EventKind::repair);
    ASSERT_EQ(back.time.nanoseconds, (kNodes + i) * kSecond);
  }
}

TEST(ImportCsv, ProblemsHavePlacesAndHints) {
  EXPECT_EQ(read("csv", "when,host,what\nyesterday,a,NODE_DOWN\n0,a,NODE_DWON\n1,,NODE_DOWN\n1,a\n",
                 columns()),
            "2:1: 'yesterday' is no time (as in 2024-05-01T12:34:56Z, or seconds)\n"
            "3:5: what does 'NODE_DWON' mean? (--map NODE_DWON=fail (or repair, leave, join, "
            "fail_job, ignore))\n"
            "4:3: no node is named\n5:1: 2 cells under 3 columns\n");
  EXPECT_EQ(read("csv", "time,host,what\n0,a,b\n", columns()).substr(0, 34),
            "1:1: there is no column 'when' (di");
}

TEST(ImportCsv, NoMoreNodesThanThereAre) {
  const std::string log = "when,host,what\n0,a,NODE_DOWN\n1,b,NODE_DOWN\n";
  ImportOptions options = columns();
  options.nodes = 2;
  EXPECT_EQ(read("csv", log, options),
            "0 fail a (NODE_DOWN)\n1 fail b (NODE_DOWN)\n2 nodes, 1 s\n");
  options.nodes = 1;
  EXPECT_EQ(read("csv", log, options), "it names 2 nodes, more than the 1 that there are\n");
}

TEST(ImportSlurm, StretchesOfDownNodesAreFailuresAndRepairs) {
  EXPECT_EQ(read("slurm",
                 "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\n"
                 "c||2024-01-01T00:00:00|Unknown|||\n"
                 "c|n1|2024-01-01T00:00:00|2024-01-01T02:00:00|DOWN*|Not responding|root\n"
                 "c|n2|2024-01-01T01:00:00|Unknown|DRAINED|bad NIC|root\n"
                 "c|n3|2024-01-01T01:00:00|2024-01-01T01:30:00|MAINT|planned|root\n"),
            "0 fail n1 (Not responding)\n3600 fail n2 (bad NIC)\n7200 repair n1 (Not responding)\n"
            "2 nodes, 7200 s\n");
}

TEST(ImportXid, HardwareFailsNodesAndProgramsDoNot) {
  ImportOptions options;
  options.repair_after = Nanoseconds{3600 * kSecond};
  EXPECT_EQ(
      read("xid",
           "2024-01-01T00:00:00+0000 g1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has "
           "fallen off the bus.\n"
           "2024-01-01T00:00:01+0000 g1 kernel: usb 1-1: new device\n"
           "2024-01-01T00:10:00+0000 g2 kernel: NVRM: Xid (PCI:0000:1a:00): 31, pid=2, MMU fault\n"
           "2024-01-01T00:20:00+0000 g2 kernel: NVRM: Xid (PCI:0000:1a:00): 94, contained\n",
           options),
      "0 fail g1 (xid_79)\n1200 fail job (xid_94)\n3600 repair g1 (xid_79)\n1 nodes, 4800 s\n");
}

TEST(ImportLogs, ClocksAreReadAsTheyAreWritten) {
  const std::int64_t noon = 1'714'564'800LL * kSecond;
  EXPECT_EQ(parse_clock("2024-05-01T12:00:00Z"), noon);
  EXPECT_EQ(parse_clock("2024-05-01 14:00:00+02:00"), noon);
  EXPECT_EQ(parse_clock("2024-05-01T12:00:00.25"), noon + kSecond / 4);
  EXPECT_EQ(parse_clock("1714564800"), noon);
  for (const char* bad : {"", "2024-13-01", "2024-02-30T00:00:00Z", "12:00", "2024-05-01T25:00:00",
                          "2024-05-01T12:00:00 CET", "-5", "nan", "1e30"}) {
    EXPECT_FALSE(parse_clock(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace orrery::traces::logs_test
