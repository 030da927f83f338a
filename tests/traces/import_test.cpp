#include "traces/import/import.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/traces/support.h"
#include "traces/bind.h"
#include "traces/lines.h"
#include "traces/names.h"
#include "traces/presence.h"
#include "traces/repeat.h"
#include "traces/statistics.h"

namespace orrery::traces::import_test {
namespace {

Trace import_text(const std::string& format, const std::string& text,
                  const ImportOptions& options = {}) {
  const File file(text);
  return import_file(format, file.path(), options);
}
std::string problems_of(const std::string& format, const std::string& text) {
  const File file(text);
  config::Diagnostics diagnostics;
  import_trace(format, file.path(), {}, diagnostics);
  return all(diagnostics);
}
/// "seconds kind node" of each event.
std::string events_of(const Trace& trace) {
  std::string text;
  for (const ir::ClusterEvent& event : trace.events) {
    text += fmt::format("{} {} {}\n", format_time(event.time.nanoseconds),
                        event.kind == ir::EventKind::join ? "join" : "leave",
                        trace.nodes[event.scope.node.index()].name);
  }
  return text;
}

TEST(ImportBamboo, InstancesTakeTheLowestFreeSlot) {
  const Trace trace = import_file("bamboo", "tests/traces/bamboo.csv", {.gpu_type = "V100-16GB"});
  EXPECT_EQ(trace.nodes.size(), 3u);
  EXPECT_EQ(trace.nodes[2], (TraceNode{"node2", "V100-16GB", 1}));
  EXPECT_EQ(events_of(trace),
            "60 join node2\n120 leave node0\n120 leave node1\n180 join node0\n240 leave node2\n");
  EXPECT_EQ(trace.horizon.count, 240'000'000'000);
  EXPECT_EQ(absent_at_start(trace), std::vector<NodeId>{{2}});
}

TEST(ImportBamboo, LinesOutOfOrderAreSorted) {
  EXPECT_EQ(events_of(import_text("oobleck", "2000,remove,a\n0,add,a\n1000,add,b\n")),
            "1 join node1\n2 leave node0\n");
}

TEST(ImportBamboo, WhatComesAndGoesAtOneInstantWasNeverThere) {
  EXPECT_EQ(events_of(import_text("oobleck",
                                  "0,add,a\n5000,add,b\n5000,remove,b\n6000,remove,a\n6000,add,a\n"
                                  "7000,remove,a\n")),
            "6 leave node0\n6 join node0\n7 leave node0\n");
}

TEST(ImportBamboo, WhoComesAfterTheHorizonIsAbsent) {
  const ImportOptions options{.horizon = Nanoseconds{5 * kSecond}};
  const Trace trace = import_text("bamboo", "0,add,a\n9000,add,b\n", options);
  EXPECT_EQ(events_of(trace), "0 leave node1\n");
  EXPECT_DOUBLE_EQ(statistics_of(trace).all.mean_nodes, 0.5);
}

TEST(ImportBamboo, ProblemsHavePlaces) {
  EXPECT_EQ(problems_of("bamboo", "0,add,a\n5,add,a\n6,remove,b\nx,add,c\n7,drop,d\n1,2\n"),
            "4:1: " + problems_of("bamboo", "x,add,c\n").substr(5) +
                "5:3: 'drop' is neither add nor remove\n"
                "6:1: 2 cells instead of 3 (milliseconds,add|remove,name)\n"
                "2:7: 'a' comes but is there\n3:10: 'b' goes but is not there\n");
  EXPECT_EQ(problems_of("bamboo", ""), "1:1: the file holds no events\n");
}

TEST(ImportAws, TwoRowsPerChangeAreOneChange) {
  const std::string text = "0,0\n10,0\n10,3\n20,3\n20,1\n30,1\n30,2\n40,2\n";
  const Trace trace = import_text("aws", text);
  EXPECT_EQ(events_of(trace),
            "10 join node0\n10 join node1\n10 join node2\n20 leave node2\n20 leave node1\n"
            "30 join node1\n");
  EXPECT_EQ(trace.horizon.count, 40'000'000'000);
  EXPECT_EQ(problems_of("aws", "5,1\n4,1\n6,-1\n7,1.5\n").substr(0, 40),
            "2:1: time goes back: 4 s after 5 s\n3:3: ");
}

TEST(ImportAws, RandomOrderIsDrawnFromTheSeed) {
  const std::string text = "0,9\n10,5\n20,9\n30,2\n";
  const auto with = [&](std::uint64_t seed) {
    return events_of(import_text("aws", text, {.order = LeaveOrder::random, .seed = seed}));
  };
  EXPECT_EQ(with(1), with(1));
  EXPECT_NE(with(1), with(2));
}

TEST(ImportGcp, SamplesAreSortedAndTheLastOfASecondHolds) {
  const Trace trace = import_text("gcp",
                                  "2021-12-31, 23:59:50, 2\n2022-01-01, 00:00:10, 3\n"
                                  "2022-01-01, 00:00:00, 2\n2022-01-01, 00:00:10, 1\n");
  EXPECT_EQ(events_of(trace), "20 leave node1\n");
  EXPECT_EQ(problems_of("gcp", "2021-02-30, 00:00:00, 1\n2021-02-03, 24:00:00, 1\nx\n"),
            "1:1: '2021-02-30' is no date (for example 2021-12-11; years 1970 to 2069)\n"
            "2:13: '24:00:00' is no time of day (for example 11:13:10)\n"
            "3:1: 1 cells instead of 3 (date, time, count)\n");
}

TEST(ImportGcp, YearsThatTimesCannotCountAreNoDates) {
  const std::string hint = " is no date (for example 2021-12-11; years 1970 to 2069)\n";
  EXPECT_EQ(problems_of("gcp", "0001-12-31, 23:59:50, 2\n2022-01-01, 00:00:10, 3\n"),
            "1:1: '0001-12-31'" + hint);
  EXPECT_EQ(problems_of("gcp", "00-01-01, 00:00:00, 2\n2070-01-01, 00:00:00, 2\n"),
            "1:1: '00-01-01'" + hint + "2:1: '2070-01-01'" + hint);
  // The longest trace: its horizon can be written and read.
  const Trace trace = import_text("gcp", "1970-01-01, 00:00:00, 2\n2069-12-31, 23:59:59, 2\n");
  EXPECT_EQ(trace.horizon.count / kSecond, 3'155'759'999);
  const File file(write_trace(trace));
  config::Diagnostics diagnostics;
  EXPECT_EQ(read_trace(file.path(), diagnostics).horizon, trace.horizon) << all(diagnostics);
}

TEST(ImportParcae, OnlyComingsAndGoingsAreRead) {
  const std::string text = R"([0, "add", {"nodes": ["n0", "n1"], "duration": 60000}])"
                           "\n"
                           R"([60000, "no-op", {"nodes": [], "duration": 60000}])"
                           "\n"
                           R"([120000, "remove", {"nodes": ["n0"], "duration": 60000}])"
                           "\n";
  const Trace trace = import_text("parcae", text);
  EXPECT_EQ(events_of(trace), "120 leave node0\n");
  EXPECT_EQ(trace.horizon.count, 180'000'000'000);
  EXPECT_EQ(problems_of("parcae", "[0, \"add\"\n"),
            "1:10: no JSON: unexpected end of input; expected ']'\n");
  EXPECT_EQ(
      problems_of("parcae", "[0, \"jump\", {\"nodes\": [], \"duration\": 1}]\n").substr(0, 35),
      "1:1: unknown kind of change 'jump' ");
}

TEST(ImportSkypilot, CountsBecomeNodes) {
  const Trace trace =
      import_text("skypilot", R"({"metadata": {"gap_seconds": 300}, "data": [2, 2, 0, 1]})");
  EXPECT_EQ(events_of(trace), "600 leave node1\n600 leave node0\n900 join node0\n");
  EXPECT_EQ(trace.horizon.count, 1'200'000'000'000);
  EXPECT_EQ(
      problems_of("skypilot", "{\"metadata\": {\"gap_seconds\": 300},\n \"data\": [1, -1, x]}"),
      "2:18: no JSON: invalid literal; last read: '-1, x'\n");
  EXPECT_EQ(problems_of("skypilot", R"({"metadata": {"gap_seconds": 0}, "data": []})"),
            "1:1: no positive `gap_seconds` in `metadata`\n1:1: no list `data` of counts\n");
}

TEST(Import, NumbersBeyondDoubleAreProblemsAtTheirPlace) {
  const std::string parcae = R"([1e999, "add", {"nodes": ["n0"], "duration": 60000}])";
  EXPECT_EQ(problems_of("parcae", parcae), "1:2: number 1e999 is out of range\n");
  EXPECT_EQ(problems_of("skypilot", "{\"metadata\":\n {\"gap_seconds\": 1e999}, \"data\": [2]}"),
            "2:18: number 1e999 is out of range\n");
  // Files that other readers of JSON look at, to see whether they are of their format.
  EXPECT_EQ(problems_of("bamboo", "0,add,a\n1e999,add,b\n").substr(0, 5), "2:1: ");
  EXPECT_EQ(problems_of("bamboo", "1e999,add,a\n").substr(0, 5), "1:1: ");
  EXPECT_EQ(problems_of("aws", "0,0\n1e400,0\n20,1e308\n").substr(0, 5), "2:1: ");
}

TEST(Import, TimesBeyondAHundredYearsAreProblems) {
  EXPECT_EQ(problems_of("aws", "0,0\n3.2e9,1\n"), "2:1: '3.2e9' is more than 100 years\n");
  EXPECT_EQ(problems_of("bamboo", "0,add,a\n9223372036854,add,b\n").substr(0, 5), "2:1: ");
  EXPECT_EQ(
      problems_of("parcae", R"([9223372036854, "add", {"nodes": [], "duration": 1}])").substr(0, 5),
      "1:1: ");
  EXPECT_EQ(
      problems_of("skypilot", R"({"metadata": {"gap_seconds": 1000000000}, "data": [2, 2, 0, 1]})"),
      "1:1: 4 samples every 1000000000 s are more than 100 years\n");
}

TEST(Import, AMissingFileIsOneProblem) {
  for (const TraceFormat& format : trace_formats()) {
    config::Diagnostics diagnostics;
    import_trace(format.name, "tests/traces/none.csv", {}, diagnostics);
    ASSERT_EQ(diagnostics.problems().size(), 1u) << format.name << "\n" << all(diagnostics);
    EXPECT_NE(all(diagnostics).find("No such file"), std::string::npos) << all(diagnostics);
  }
}

TEST(Import, AWrongFormatIsNamedOnce) {
  std::string bamboo;
  for (int i = 0; i < 200; ++i) bamboo += fmt::format("{},add,n{}\n", 1000 * i, i);
  EXPECT_EQ(problems_of("aws", bamboo),
            "1:1: 3 cells instead of 2 (looks like bamboo: milliseconds,add|remove,name: Bamboo, "
            "Parcae's p3trace)\n");
  const std::string aws = "0,1\n10,2\n";
  const std::string gcp = "2021-12-11, 11:11:30, 55\n2021-12-11, 11:11:00, 54\n";
  const std::string parcae = R"([0, "add", {"nodes": ["n"], "duration": 60000}])"
                             "\n";
  const std::string sky = R"({"metadata": {"gap_seconds": 300}, "data": [2, 1]})";
  const auto named = [](const std::string& problems, const std::string& format) {
    return problems.find("looks like " + format + ":") != std::string::npos &&
           std::count(problems.begin(), problems.end(), '\n') == 1;
  };
  EXPECT_PRED2(named, problems_of("gcp", aws), "aws");
  EXPECT_PRED2(named, problems_of("bamboo", gcp), "gcp");
  EXPECT_PRED2(named, problems_of("skypilot", parcae), "parcae");
  EXPECT_PRED2(named, problems_of("parcae", sky), "skypilot");
  const std::string own = "# schema: orrery/trace/1\n# horizon: 100\ntime,kind,scope\n";
  EXPECT_NE(problems_of("bamboo", own).find("needs no import"), std::string::npos);
}

TEST(Import, OfManyProblemsTenAreNamed) {
  std::string text = "0,1\n";
  for (int i = 0; i < 60; ++i) text += "x,1\n";
  const std::string problems = problems_of("aws", text);
  EXPECT_EQ(std::count(problems.begin(), problems.end(), '\n'), kMostImportProblems + 1);
  EXPECT_NE(problems.find("and 50 more"), std::string::npos) << problems;
  EXPECT_EQ(problems.find("looks like"), std::string::npos) << problems;
}

TEST(Import, TheFormatOfAFileIsThatWhichReadsItsFirstLines) {
  EXPECT_STREQ(format_of("tests/traces/bamboo.csv")->name, "bamboo");
  EXPECT_EQ(format_of("tests/traces/small.csv"), nullptr);
  EXPECT_EQ(format_of("tests/traces"), nullptr);
}

TEST(Combine, OneTracePerGpuType) {
  const Trace a = import_text("bamboo", "0,add,x\n5000,remove,x\n9000,add,x\n", {.gpu_type = "A"});
  const Trace b = import_text("bamboo", "0,add,x\n5000,remove,x\n7000,add,y\n", {.gpu_type = "B"});
  const Trace both = combine({a, b});
  EXPECT_EQ(both.nodes, (std::vector<TraceNode>{{"t0-node0", "A", 1}, {"t1-node0", "B", 1}}));
  EXPECT_EQ(events_of(both), "5 leave t0-node0\n5 leave t1-node0\n7 join t1-node0\n");
  EXPECT_TRUE(find_contradictions(both).empty());
}

TEST(Combine, NodesThatComeAfterTheShortestTraceAreAbsent) {
  const Trace a = import_text("bamboo", "0,add,x\n5000,remove,x\n", {.gpu_type = "A"});
  const Trace b = import_text("bamboo", "0,add,x\n7000,add,y\n", {.gpu_type = "B"});
  EXPECT_EQ(events_of(combine({a, b})), "0 leave t1-node1\n5 leave t0-node0\n");
}

TEST(Counts, MoreComingsAndGoingsThanMemoryHoldsAreAProblem) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += fmt::format("{},{}\n", 60 * i, i % 2 == 0 ? 100'000 : 0);
  const File file(text);
  config::Diagnostics diagnostics;
  import_trace("aws", file.path(), {}, diagnostics);
  EXPECT_NE(all(diagnostics).find("instances come or go, at most 5000000"), std::string::npos)
      << all(diagnostics);
}

TEST(Repeat, ItsEventsAreCountedBeforeTheyAreMade) {
  const Trace once = import_file("bamboo", "tests/traces/bamboo.csv");
  for (const double seconds : {100.0, 600.0, 3600.0}) {
    const Nanoseconds horizon = to_nanoseconds({seconds});
    const auto made = static_cast<double>(repeat(once, horizon).events.size());
    EXPECT_LE(made, repeated_events(once, horizon)) << seconds;
  }
  EXPECT_GT(repeated_events(once, to_nanoseconds({3e9})), static_cast<double>(kMostEvents));
}

TEST(Repeat, EveryRepetitionStartsAsTheFirst) {
  const Trace once = import_file("bamboo", "tests/traces/bamboo.csv");
  const Trace many = repeat(once, to_nanoseconds({600}));
  EXPECT_TRUE(find_contradictions(many).empty());
  const Trace whole = repeat(once, once.horizon);
  EXPECT_EQ(events_of(whole), events_of(once));
  const TraceStatistics s = statistics_of(many);
  EXPECT_NEAR(s.horizon_hours, 600.0 / 3600, 1e-12);
  // Two nodes at the start, three for one minute, one, two: mean (2 + 3 + 1 + 2) / 4 of each
  // period.
  EXPECT_NEAR(s.all.mean_nodes * 3, (2 * (2 + 3 + 1 + 2) + 2 + 3) / 10.0, 1e-6);
}

}  // namespace
}  // namespace orrery::traces::import_test
