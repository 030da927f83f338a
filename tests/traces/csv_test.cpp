#include "traces/csv.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/traces/support.h"
#include "traces/layout.h"
#include "traces/names.h"

namespace orrery::traces::csv_test {
namespace {

const std::string kHeader =
    "# schema: orrery/trace/1\n# horizon: 10 h\n# nodes: a{0..1} A100-80GB x8\n# nodes: b\n"
    "time,kind,scope,cause,notice,detection,factor,price\n";

/// Problems of a trace with these events; the first one is on line 6.
std::string problems_of(const std::string& events) {
  const File file(kHeader + events);
  config::Diagnostics diagnostics;
  read_trace(file.path(), diagnostics);
  return all(diagnostics);
}

std::string problems_of_file(const std::string& text) {
  const File file(text);
  config::Diagnostics diagnostics;
  read_trace(file.path(), diagnostics);
  return all(diagnostics);
}

TEST(TraceFile, ReadsEveryColumn) {
  config::Diagnostics diagnostics;
  const Trace trace = read_trace("tests/traces/small.csv", diagnostics);
  ASSERT_TRUE(diagnostics.empty()) << all(diagnostics);
  ASSERT_EQ(trace.nodes.size(), 3u);
  EXPECT_EQ(trace.nodes[1], (TraceNode{"a1", "A100-80GB", 8}));
  EXPECT_EQ(trace.nodes[2], (TraceNode{"h0", "H800-80GB", 8}));
  EXPECT_EQ(trace.horizon.count, 36'000'000'000'000);
  ASSERT_EQ(trace.events.size(), 12u);
  EXPECT_EQ(trace.events[0].scope.devices.size(), 16u);
  EXPECT_DOUBLE_EQ(trace.events[0].price->value, 1.2 / 3600);
  EXPECT_EQ(trace.events[1].detection->count, 60'000'000'000);
  EXPECT_EQ(trace.events[1].scope.devices, std::vector<DeviceId>{{3}});
  EXPECT_EQ(trace.events[2].time.nanoseconds, 7'000'500'000'000);
  EXPECT_EQ(trace.events[2].scope.devices, (std::vector<DeviceId>{{16}, {17}, {23}}));
  EXPECT_EQ(trace.events[2].factor, 0.5);
  EXPECT_EQ(trace.events[3].notice.count, 120'000'000'000);
  EXPECT_EQ(trace.events[3].sequence, 11);
  EXPECT_EQ(trace.events[8].scope.kind, ir::EventScope::Kind::job);
  EXPECT_EQ(trace.events[10].scope.link, "a0/nic0/up");
}

TEST(TraceFile, WritingAndReadingGiveTheSameBytes) {
  config::Diagnostics diagnostics;
  const Trace trace = read_trace("tests/traces/small.csv", diagnostics);
  const std::string once = write_trace(trace);
  EXPECT_EQ(write_trace(read_text(once)), once);
  EXPECT_NE(once.find("# nodes: a{0..1} A100-80GB x8\n"), std::string::npos) << once;
  EXPECT_NE(once.find("\n7000.5,slow,devices:h0/0-1+7,slow device,,,0.5\n"), std::string::npos);
}

TEST(TraceFile, ReadsWindowsLineEndsQuotesAndOtherOrdersOfColumns) {
  const Trace trace = read_text(
      "\xEF\xBB\xBF# schema: orrery/trace/1\r\n# nodes: n\r\nkind,time,cause,scope\r\n"
      "fail,1.000000001,\"a, \"\"b\"\"\",node:n\r\n\r\n");
  ASSERT_EQ(trace.events.size(), 1u);
  EXPECT_EQ(trace.events[0].cause, "a, \"b\"");
  EXPECT_EQ(trace.events[0].time.nanoseconds, 1'000'000'001);
  EXPECT_EQ(trace.horizon.count, 1'000'000'001);
}

TEST(TraceFile, ProblemsNameLineColumnAndRemedy) {
  EXPECT_EQ(problems_of("1,fial,node:a0\n"), "6:3: unknown kind 'fial' (did you mean 'fail'?)\n");
  EXPECT_EQ(problems_of("1,fail,node:a7\n"), "6:8: unknown node 'a7' (did you mean 'a0'?)\n");
  EXPECT_EQ(problems_of("1,fail,devices:a0/8\n"), "6:8: no device 8 in node 'a0' (it has 0-7)\n");
  EXPECT_EQ(problems_of("5,fail,job\n4.5,fail,job\n"),
            "7:1: time goes back: 4.5 s after 5 s (sort the lines by time)\n");
  EXPECT_EQ(problems_of("nan,fail,job\n-1,fail,job\n3 GB,fail,job\n"),
            problems_of("nan,fail,job\n") + "7:1: '-1' is negative\n" +
                problems_of("0,fail,job\n0,fail,job\n3 GB,fail,job\n"));
  EXPECT_NE(problems_of("nan,fail,job\n"), "");
  EXPECT_NE(problems_of("0,fail,job\n0,fail,job\n3 GB,fail,job\n").find("8:1: "),
            std::string::npos);
  EXPECT_EQ(problems_of("1,slow,node:a0\n"), "6:3: slow without factor\n");
  EXPECT_EQ(problems_of("1,slow,node:a0,,,,1.5\n"),
            "6:19: factor 1.5 is not in 1e-6 to 1 (0.5: half as fast)\n");
  EXPECT_EQ(problems_of("1,leave,node:a0,,60\n"),
            "6:18: notice of kind leave (leave the cell empty)\n");
  EXPECT_EQ(problems_of("1,leave,job\n"),
            "6:9: leave of the whole job (node:NAME or devices:NAME/0-3)\n");
  EXPECT_EQ(problems_of("11 h,fail,job\n"), "6:1: after the horizon of 36000 s\n");
  EXPECT_NE(problems_of("1,join,node:a0,,,,,2 s\n").find("6:20: "), std::string::npos);
  EXPECT_EQ(problems_of("1,fail,job,a,,,,,,\n"),
            "6:18: 10 cells under 8 columns (a cause with a comma needs quotes)\n");
}

TEST(TraceFile, QuotesEndAndNothingStandsBehindThem) {
  EXPECT_EQ(problems_of("1,fail,job,\"a \"\"b\"\"\"\n"), "");
  EXPECT_EQ(problems_of("1,fail,job,\"a\n"),
            "6:12: a quote that does not end (a quote inside is doubled)\n");
  EXPECT_EQ(problems_of("1,fail,job,\"a\"b\n"),
            "6:15: text behind the closing quote (a quote inside is doubled)\n");
}

TEST(TraceFile, EventsThatContradictPresenceAreProblems) {
  EXPECT_EQ(problems_of("1,leave,node:a0\n2,leave,node:a0\n"),
            "7:1: leave of node 'a0', which is not there (its last change: line 6)\n");
  EXPECT_EQ(problems_of("1,leave,node:a0\n2,fail,devices:a0/3\n"),
            "7:1: fail of device 3 of node 'a0', which is not there (its last change: line 6)\n");
  EXPECT_EQ(problems_of("1,fail,devices:a0/3\n2,join,node:a0\n"),
            "7:1: join of node 'a0', which is there (its last change: line 6)\n");
  EXPECT_EQ(problems_of("1,leave,node:a0\n2,repair,node:a0\n"),
            "7:1: repair of node 'a0', which is not failed (join brings back what left)\n");
  EXPECT_EQ(problems_of("1,join,devices:a0/3\n"),
            "6:1: join of some devices of node 'a0', which is there (a node that is absent at the "
            "start joins as a whole)\n");
  // What left with its node is new when it comes back.
  EXPECT_EQ(problems_of("1,fail,devices:a0/3\n2,leave,node:a0\n3,join,node:a0\n"), "");
}

TEST(TraceFile, NoticeEndsWithALeaveAFailureOrAJoin) {
  EXPECT_EQ(problems_of("1,notice,node:a0,spot,120\n"),
            "6:1: node 'a0' does not leave by 121 s, as this notice says (a join of the same scope "
            "withdraws a notice)\n");
  EXPECT_EQ(problems_of("1,notice,node:a0,spot,120\n122,leave,node:a0\n"),
            problems_of("1,notice,node:a0,spot,120\n"));
  EXPECT_EQ(problems_of("1,notice,node:a0,spot,120\n121,leave,node:a0\n"), "");
  EXPECT_EQ(problems_of("1,notice,node:a0,spot,120\n9,fail,node:a0\n"), "");
  EXPECT_EQ(problems_of("1,notice,node:a0,spot,120\n9,join,node:a0\n"), "");
  EXPECT_EQ(problems_of("35999,notice,node:a0,spot,120\n"), "");
}

TEST(TraceFile, HeaderIsRequiredAndChecked) {
  EXPECT_EQ(problems_of_file(""),
            "1:1: the file is empty (a trace starts with `# schema: orrery/trace/1`)\n");
  EXPECT_EQ(
      problems_of_file("0,add,node1\n"),
      "1:1: no header: the first line must be `# schema: orrery/trace/1` (orrery trace import "
      "reads the formats of others)\n");
  EXPECT_EQ(problems_of_file("# schema: orrery/trace/2\n# nodes: a\ntime,kind\n"),
            "1:11: unknown schema 'orrery/trace/2' (this version reads orrery/trace/1)\n");
  EXPECT_EQ(problems_of_file("# schema: orrery/trace/1\ntime,kind\n"),
            "2:1: no `# nodes:` line (for example # nodes: node{0..15} A100-80GB x8)\n");
  EXPECT_EQ(
      problems_of_file("# schema: orrery/trace/1\n# nodes: a\n# nodes: a{0..1},\ntime,kind\n"),
      "3:10: 'a{0..1},' is no run of node names (for example node{0..15})\n");
  EXPECT_EQ(problems_of_file("# schema: orrery/trace/1\n# nodes: a\ntime,kind,scop\n"),
            "3:11: unknown column 'scop' (did you mean 'scope'?)\n");
  EXPECT_EQ(problems_of_file("# schema: orrery/trace/1\n# nodes: a\n# horizon: 5 GB\ntime,kind\n")
                .substr(0, 6),
            "3:12: ");
  config::Diagnostics diagnostics;
  read_trace("no/such.csv", diagnostics);
  EXPECT_EQ(all(diagnostics), "cannot read: No such file or directory\n");
}

TEST(TraceFile, NamesFiftyProblemsAndCountsTheRest) {
  std::string events;
  for (int i = 0; i < 70; ++i) events += "1,fail,node:x\n";
  const std::string text = problems_of(events);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), kMostTraceProblems + 1);
  EXPECT_TRUE(text.ends_with("and 20 more\n")) << text;
}

TEST(TraceFile, LengthDoesNotMatterForMemory) {
  // 200,000 events; only one is ever kept.
  std::string text = kHeader;
  for (int i = 0; i < 100'000; ++i) {
    text += fmt::format("{}.{:04},fail,devices:a0/1\n{}.{:04}5,repair,devices:a0/1\n", i / 10'000,
                        i % 10'000, i / 10'000, i % 10'000);
  }
  const File file(text);
  config::Diagnostics diagnostics;
  std::int64_t count = 0;
  Instant last;
  scan_trace(
      file.path(), [](const Trace&) {},
      [&](const ir::ClusterEvent& event) {
        EXPECT_LE(last, event.time);
        last = event.time;
        ++count;
      },
      diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  EXPECT_EQ(count, 200'000);
}

TEST(TraceFile, DevicesThatAreNamedTakeNoMoreTimeAndMemoryThanTheLimit) {
  const std::string head =
      "# schema: orrery/trace/1\n# nodes: a{0..16383} x1024\ntime,kind,scope\n";
  // Each line names 16 million devices.
  std::string lines;
  for (int i = 0; i < 100; ++i) lines += fmt::format("{},slow,devices:a{{0..16383}}/0-1023\n", i);
  EXPECT_NE(problems_of_file(head + lines).find("8:8: events name more than 67108864 devices"),
            std::string::npos);
  // A line names them a hundred times.
  std::string line = "1,fail,devices:a{0..16383}/0-1023";
  for (int i = 0; i < 100; ++i) line += ";a{0..16383}/0-1023";
  EXPECT_EQ(problems_of_file(head + line + "\n"),
            "4:8: more devices than there are: some are named twice\n");
}

TEST(TraceFile, OfARunOfNamesTheFirstUnknownOneIsNamed) {
  std::string lines;
  for (int i = 0; i < 1000; ++i) lines += fmt::format("{},fail,devices:a{{0..999999}}/0\n", i);
  EXPECT_TRUE(problems_of(lines).starts_with("6:8: unknown node 'a2'"));
}

TEST(TraceNames, RunsOfNamesAreJoinedAndSplit) {
  const std::vector<std::string> names = {"a0",  "a1",  "a2", "b", "n09",
                                          "n10", "n11", "7",  "8", "a3"};
  std::vector<std::string> texts;
  std::vector<std::string> again;
  for (const NameRun& run : join_names(names)) {
    texts.push_back(run.text);
    config::TextError error;
    const auto split = split_names(run.text, error);
    ASSERT_TRUE(split) << error.what;
    again.insert(again.end(), split->begin(), split->end());
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a{0..2}", "b", "n09", "n{10..11}", "{7..8}", "a3"}));
  EXPECT_EQ(again, names);
}

TEST(TraceNames, NumbersBeyondNineDigitsAreNoRun) {
  for (const char* bad : {"a{2147483647..2147483647}", "a{2147483647..2147483648}",
                          "a{0..2147483647}", "a{1000000000..1000000000}", "a{0..1000000}"}) {
    config::TextError error;
    EXPECT_FALSE(split_names(bad, error)) << bad;
    EXPECT_NE(error.what, "") << bad;
  }
  config::TextError error;
  const auto last = split_names("a{999999999..999999999}", error);
  EXPECT_EQ(last, std::vector<std::string>{"a999999999"}) << error.what;
  EXPECT_EQ(problems_of_file("# schema: orrery/trace/1\n# nodes: a{2147483647..2147483647} x8\n"
                             "time,kind\n"),
            "2:10: 'a{2147483647..2147483647}' is no run of node names (for example "
            "node{0..15})\n");
  EXPECT_EQ(problems_of("1,fail,devices:a{2147483647..2147483647}/0\n").substr(0, 5), "6:8: ");
}

TEST(TraceNames, TimesAreExact) {
  config::TextError error;
  for (const std::int64_t time :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{4'665'600'000'000'001},
        std::int64_t{123'456'789'123'456'789}}) {
    EXPECT_EQ(parse_time(format_time(time), error), time);
  }
  EXPECT_EQ(parse_time("3.5 h", error), 12'600'000'000'000);
  EXPECT_EQ(parse_time("1e3", error), 1'000'000'000'000);
  EXPECT_EQ(parse_time("36525 day", error), kLongestTime);
  for (const char* bad : {"", "inf", "nan", "-0.5", "1 GB", "1h2", ".", "1e99", "36525.1 day"}) {
    EXPECT_FALSE(parse_time(bad, error)) << bad;
  }
}

}  // namespace
}  // namespace orrery::traces::csv_test
