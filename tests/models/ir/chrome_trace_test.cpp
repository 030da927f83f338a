/// Is the Chrome export good JSON, and does it say the same as the log?
#include "models/ir/chrome_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/models/ir/programs.h"

namespace orrery::ir::chrome_trace_test {
namespace {

using nlohmann::json;

json export_of(const Program& program, const RunLog& log, const TimelineNames& names) {
  std::ostringstream out;
  write_chrome(program, log, names, out);
  return json::parse(out.str());
}

TimelineNames plain_names() {
  return {[](DeviceId device) { return "gpu " + std::to_string(device.value); }, nullptr, nullptr};
}

TEST(ChromeTrace, HasASliceForEverySpan) {
  const Program program = pipelined_program(2, 2, 3);
  const RunLog log = plain_log(program);
  std::map<int, json> slices;
  const json trace = export_of(program, log, plain_names());
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X" && event["pid"] != 0) slices[event["args"]["op"].get<int>()] = event;
  }
  ASSERT_EQ(slices.size(), log.spans.size());
  for (const Span& span : log.spans) {
    const json& slice = slices[span.op.value];
    EXPECT_EQ(slice["pid"], span.rank.value + 1);
    EXPECT_NEAR(slice["ts"].get<double>(), static_cast<double>(span.start.nanoseconds) / 1e3, 1e-6);
    EXPECT_NEAR(slice["dur"].get<double>(),
                static_cast<double>((span.end - span.start).count) / 1e3, 1e-6);
  }
  EXPECT_EQ(slices[0]["name"], "F mb0 blocks 0-1");
  EXPECT_EQ(slices[0]["cat"], "forward");
}

TEST(ChromeTrace, FlowsHaveBothEndsInsideTheirSlices) {
  const Program program = pipelined_program(1, 2, 2);
  const json trace = export_of(program, plain_log(program), plain_names());
  std::map<int, double> from;
  std::map<int, double> to;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "s" && event["ph"] != "f") continue;
    const double ts = event["ts"];
    (event["ph"] == "s" ? from : to)[event["id"].get<int>()] = ts;
    bool inside = false;
    for (const json& slice : trace["traceEvents"]) {
      inside = inside || (slice["ph"] == "X" && slice["pid"] == event["pid"] &&
                          slice["tid"] == event["tid"] && slice["ts"].get<double>() <= ts &&
                          ts < slice["ts"].get<double>() + slice["dur"].get<double>());
    }
    EXPECT_TRUE(inside) << event;
  }
  EXPECT_EQ(from.size(), 4U);
  ASSERT_EQ(to.size(), from.size());
  for (const auto& [id, ts] : from) EXPECT_LT(ts, to.at(id));
}

TEST(ChromeTrace, TracksAreNamed) {
  const Program program = pipelined_program(1, 2, 1);
  std::set<std::string> names;
  const TimelineNames nodes = {plain_names().device, [](DeviceId) { return NodeId{0}; },
                               [](NodeId) { return std::string("host"); }};
  std::int64_t peak = 0;
  const json trace = export_of(program, plain_log(program), nodes);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "M" && event["args"].contains("name")) names.insert(event["args"]["name"]);
    if (event["ph"] == "C") peak = std::max(peak, event["args"]["bytes"].get<std::int64_t>());
  }
  EXPECT_EQ(names.count("host / gpu 1 (pipeline 0, stage 1)"), 1U);
  EXPECT_EQ(names.count("collective"), 1U);
  EXPECT_EQ(peak, 1100);
}

TEST(ChromeTrace, NamesWithAnyBytesGiveGoodJson) {
  const Program program = pipelined_program(1, 1, 1);
  RunLog log = plain_log(program);
  log.events = {{{0}, "a \"quoted\" \\ name\n\t\x01", "caf\xc3\xa9 \xf0\x9f\x99\x82"},
                {{0}, "broken \xff \xc3", "\xed\xa0\x80 \xc0\xaf"}};
  const TimelineNames names = {[](DeviceId) { return std::string("tab\there \x80"); }, nullptr,
                               nullptr};
  std::vector<json> events;
  const json trace = export_of(program, log, names);
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "i") events.push_back(event);
  }
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["name"], log.events[0].kind);
  EXPECT_EQ(events[0]["args"]["detail"], log.events[0].detail);
  EXPECT_EQ(events[1]["name"], "broken \xef\xbf\xbd \xef\xbf\xbd");
}

TEST(ChromeTrace, AnEmptyLogGivesGoodJson) {
  EXPECT_EQ(export_of(Program{}, RunLog{}, plain_names())["traceEvents"].size(), 1U);
}

}  // namespace
}  // namespace orrery::ir::chrome_trace_test
