/// Does the Perfetto export say what the public schema's readers expect? Decoded here by field
/// numbers alone, without any .proto file.
#include "models/ir/perfetto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "models/base/ids.h"
#include "tests/models/ir/programs.h"

namespace orrery::ir::perfetto_test {
namespace {

/// The fields of one message: varints and fixed64 as numbers, the rest as bytes.
struct Message {
  std::multimap<int, std::uint64_t> numbers;
  std::multimap<int, std::string_view> texts;

  bool has(int field) const { return numbers.count(field) + texts.count(field) > 0; }
  std::uint64_t number(int field) const {
    const auto at = numbers.find(field);
    return at == numbers.end() ? 0 : at->second;
  }
  std::string text(int field) const {
    const auto at = texts.find(field);
    return at == texts.end() ? "" : std::string(at->second);
  }
};

std::uint64_t varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0; !bytes.empty(); shift += 7) {
    const auto byte = static_cast<std::uint8_t>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "a varint without an end";
  return value;
}

Message decode(std::string_view bytes) {
  Message out;
  while (!bytes.empty()) {
    const std::uint64_t key = varint(bytes);
    const int field = static_cast<int>(key >> 3);
    if ((key & 7) == 0) {
      out.numbers.emplace(field, varint(bytes));
      continue;
    }
    const std::size_t size = (key & 7) == 1 ? 8 : varint(bytes);
    if (((key & 7) != 1 && (key & 7) != 2) || size > bytes.size()) {
      ADD_FAILURE() << "field " << field << " of wire type " << (key & 7);
      return out;
    }
    if ((key & 7) == 1) {
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data(), 8);
      out.numbers.emplace(field, value);
    } else {
      out.texts.emplace(field, bytes.substr(0, size));
    }
    bytes.remove_prefix(size);
  }
  return out;
}

struct Track {
  std::string name;
  std::uint64_t parent = 0;
  bool counter = false;
  std::uint64_t unit = 0;
};

struct Event {
  std::uint64_t type = 0;  ///< 1 begin, 2 end, 3 instant, 4 counter.
  std::uint64_t time = 0;
  std::uint64_t track = 0;
  std::string name;
  std::string category;
  std::map<std::string, std::uint64_t> annotations;
  std::set<std::uint64_t> flows;
  std::set<std::uint64_t> ending_flows;
  std::int64_t value = 0;
};

/// A trace as a reader of the public schema sees it.
struct Trace {
  std::map<std::uint64_t, Track> tracks;
  std::vector<Event> events;

  std::string path(std::uint64_t track) const {
    const Track& t = tracks.at(track);
    return t.parent == 0 ? t.name : path(t.parent) + " > " + t.name;
  }
};

class Reader {
 public:
  explicit Reader(const std::string& file) : bytes_(file) {
    const Message trace = decode(bytes_);
    EXPECT_EQ(trace.numbers.size(), 0U);
    EXPECT_EQ(trace.texts.count(1), trace.texts.size()) << "Trace has packets (1) alone";
    for (const auto& [field, packet] : trace.texts) read(decode(packet));
  }
  const Trace& trace() const { return trace_; }

 private:
  void read(const Message& packet) {
    EXPECT_EQ(packet.number(10), 1U) << "trusted_packet_sequence_id";
    const std::uint64_t flags = packet.number(13);
    if (flags & 1) cleared_ = true;
    if (packet.has(12)) learn(decode(packet.text(12)));
    if (packet.has(60)) {
      const std::string bytes = packet.text(60);
      const Message track = decode(bytes);
      const std::string counter = track.text(8);
      EXPECT_TRUE(track.number(5) == 0 || trace_.tracks.count(track.number(5)) == 1)
          << "a track before its parent";
      const bool fresh =
          trace_.tracks
              .emplace(track.number(1), Track{track.text(2), track.number(5), track.has(8),
                                              decode(counter).number(3)})
              .second;
      EXPECT_TRUE(fresh) << "two tracks have uuid " << track.number(1);
    }
    if (!packet.has(11)) return;
    EXPECT_TRUE(packet.has(8)) << "an event without a timestamp";
    EXPECT_TRUE(cleared_ && (flags & 2)) << "a packet that readers skip";
    const std::string bytes = packet.text(11);
    const Message event = decode(bytes);
    Event out;
    out.type = event.number(9);
    out.time = packet.number(8);
    out.track = event.number(11);
    EXPECT_EQ(trace_.tracks.count(out.track), 1U) << "an event on no track";
    if (event.has(10)) out.name = names_[2].at(event.number(10));
    if (event.has(3)) out.category = names_[1].at(event.number(3));
    for (const auto& [field, text] : event.texts) {
      if (field != 4) continue;
      const Message annotation = decode(text);
      out.annotations[names_[3].at(annotation.number(1))] = annotation.number(3);
    }
    out.flows = all(event, 47);
    out.ending_flows = all(event, 48);
    out.value = static_cast<std::int64_t>(event.number(30));
    trace_.events.push_back(out);
  }

  static std::set<std::uint64_t> all(const Message& event, int field) {
    std::set<std::uint64_t> out;
    const auto [begin, end] = event.numbers.equal_range(field);
    for (auto at = begin; at != end; ++at) out.insert(at->second);
    return out;
  }

  /// InternedData: categories 1, event names 2, annotation names 3; each has iid 1, name 2.
  void learn(const Message& data) {
    for (const auto& [field, text] : data.texts) {
      const Message entry = decode(text);
      const bool fresh = names_[field].emplace(entry.number(1), entry.text(2)).second;
      EXPECT_TRUE(fresh) << "name " << entry.number(1) << " given twice";
    }
  }

  std::string bytes_;
  bool cleared_ = false;
  std::map<int, std::map<std::uint64_t, std::string>> names_;
  Trace trace_;
};

TimelineNames two_nodes() {
  return {[](DeviceId device) { return "gpu " + std::to_string(device.value); },
          [](DeviceId device) { return NodeId{device.value / 2}; },
          [](NodeId node) { return "node " + std::to_string(node.value); }};
}

Trace export_of(const Program& program, const RunLog& log, const TimelineNames& names) {
  std::ostringstream out;
  write_perfetto(program, log, names, out);
  return Reader(out.str()).trace();
}

std::vector<Event> on(const Trace& trace, const std::string& path) {
  std::vector<Event> out;
  for (const Event& event : trace.events) {
    if (trace.path(event.track) == path) out.push_back(event);
  }
  return out;
}

TEST(Perfetto, TracksNestFromClusterToStream) {
  const Program program = pipelined_program(2, 2, 2);
  const Trace trace = export_of(program, plain_log(program), two_nodes());
  std::set<std::string> paths;
  for (const auto& [uuid, track] : trace.tracks) paths.insert(trace.path(uuid));
  for (const char* path : {"cluster", "cluster > node 0", "cluster > node 1",
                           "cluster > node 0 > gpu 0 (pipeline 0, stage 0) > compute",
                           "cluster > node 0 > gpu 0 (pipeline 0, stage 0) > p2p",
                           "cluster > node 0 > gpu 0 (pipeline 0, stage 0) > collective",
                           "cluster > node 0 > gpu 0 (pipeline 0, stage 0) > memory",
                           "cluster > node 1 > gpu 3 (pipeline 1, stage 1) > compute"}) {
    EXPECT_EQ(paths.count(path), 1U) << path;
  }
}

TEST(Perfetto, WithoutNodesDevicesStandUnderTheCluster) {
  const Program program = pipelined_program(1, 1, 1);
  const TimelineNames names = {two_nodes().device, nullptr, nullptr};
  const Trace trace = export_of(program, plain_log(program), names);
  EXPECT_FALSE(on(trace, "cluster > gpu 0 (pipeline 0, stage 0) > compute").empty());
}

TEST(Perfetto, SpansSayWhatRuns) {
  const Program program = pipelined_program(2, 2, 2);
  const Trace trace = export_of(program, plain_log(program), two_nodes());
  const auto events = on(trace, "cluster > node 0 > gpu 1 (pipeline 0, stage 1) > compute");
  ASSERT_EQ(events.size(), 10U);
  const char* expected[] = {"F mb0 blocks 2-3", "F mb1 blocks 2-3", "B mb1 blocks 2-3",
                            "B mb0 blocks 2-3", "optimizer step"};
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(events[2 * i].type, 1U);
    EXPECT_EQ(events[2 * i].name, expected[i]);
    EXPECT_EQ(events[2 * i].annotations.at("op"), 10 + i);
    EXPECT_EQ(events[2 * i + 1].type, 2U);
    EXPECT_EQ(events[2 * i + 1].time - events[2 * i].time, 1000U);
  }
  EXPECT_EQ(events[0].category, "forward");
  const auto sync = on(trace, "cluster > node 0 > gpu 1 (pipeline 0, stage 1) > collective");
  ASSERT_EQ(sync.size(), 2U);
  EXPECT_EQ(sync[0].name, "all-reduce gradients");
  EXPECT_EQ(sync[0].category, "data_parallel");
  EXPECT_EQ(sync[0].annotations.at("bytes"), 256U);
  const auto iterations = on(trace, "cluster");
  ASSERT_EQ(iterations.size(), 3U);
  EXPECT_EQ(iterations[0].name, "iteration 0");
  EXPECT_EQ(iterations[2].type, 3U);
  EXPECT_EQ(iterations[2].name, "checkpoint");
}

/// On each track every slice ends before its parent does: begin and end pair up like brackets.
TEST(Perfetto, SlicesNestOnEveryTrack) {
  const Program program = pipelined_program(1, 3, 5);
  const RunLog log = plain_log(program);
  const Trace trace = export_of(program, log, two_nodes());
  std::map<std::uint64_t, std::pair<int, std::uint64_t>> open;  // Track: depth, last time.
  std::size_t slices = 0;
  bool lanes = false;
  for (const Event& event : trace.events) {
    if (event.type != 1 && event.type != 2) continue;
    auto& [depth, last] = open[event.track];
    EXPECT_GE(event.time, last) << trace.path(event.track);
    last = event.time;
    depth += event.type == 1 ? 1 : -1;
    slices += event.type == 1;
    ASSERT_TRUE(depth == 0 || depth == 1) << trace.path(event.track);
    lanes = lanes || trace.tracks.at(event.track).name == "p2p 2";
  }
  for (const auto& [track, state] : open) EXPECT_EQ(state.first, 0) << trace.path(track);
  EXPECT_EQ(slices, log.spans.size() + log.iterations.size());
  EXPECT_TRUE(lanes) << "transfers that overlap must lie on different tracks";
}

TEST(Perfetto, ArrowsRunFromSendToRecv) {
  const Program program = pipelined_program(2, 2, 2);
  const Trace trace = export_of(program, plain_log(program), two_nodes());
  std::map<std::uint64_t, const Event*> from;
  std::map<std::uint64_t, const Event*> to;
  for (const Event& event : trace.events) {
    for (const std::uint64_t flow : event.flows) EXPECT_TRUE(from.emplace(flow, &event).second);
    for (const std::uint64_t flow : event.ending_flows) {
      EXPECT_TRUE(to.emplace(flow, &event).second);
    }
  }
  const auto sends = std::count_if(program.ops.begin(), program.ops.end(),
                                   [](const Op& op) { return op.kind == OpKind::send; });
  ASSERT_EQ(from.size(), as_size(sends));
  ASSERT_EQ(to.size(), from.size());
  int from_first_to_second = 0;
  for (const auto& [flow, event] : from) {
    ASSERT_EQ(to.count(flow), 1U);
    EXPECT_LT(event->time, to[flow]->time) << "readers take the earlier event for the source";
    if (event->name == "send activations mb0 to gpu 1") {
      EXPECT_EQ(trace.path(to[flow]->track),
                "cluster > node 0 > gpu 1 (pipeline 0, stage 1) > p2p");
      ++from_first_to_second;
    }
  }
  EXPECT_EQ(from_first_to_second, 1);
}

/// An op that ran in two iterations has two arrows, and they do not share an end.
TEST(Perfetto, ArrowsOfTwoIterationsAreDifferent) {
  const Program program = pipelined_program(1, 2, 1);
  RunLog log = plain_log(program);
  const std::size_t once = log.spans.size();
  for (std::size_t i = 0; i < once; ++i) {
    Span again = log.spans[i];
    again.start = again.start + Nanoseconds{1000000};
    again.end = again.end + Nanoseconds{1000000};
    log.spans.push_back(again);
  }
  std::set<std::uint64_t> flows;
  for (const Event& event : export_of(program, log, two_nodes()).events) {
    flows.insert(event.flows.begin(), event.flows.end());
  }
  EXPECT_EQ(flows.size(), 4U);
}

TEST(Perfetto, CountersCarryBytes) {
  const Program program = pipelined_program(1, 2, 1);
  const Trace trace = export_of(program, plain_log(program), two_nodes());
  const auto samples = on(trace, "cluster > node 0 > gpu 1 (pipeline 0, stage 1) > memory");
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].type, 4U);
  EXPECT_EQ(samples[0].value, 1000);
  EXPECT_EQ(samples[1].value, 1100);
  EXPECT_EQ(samples[1].time, 500U);
  EXPECT_TRUE(trace.tracks.at(samples[0].track).counter);
  EXPECT_EQ(trace.tracks.at(samples[0].track).unit, 3U) << "UNIT_SIZE_BYTES";
}

/// Clock offsets can put the first span before zero; timestamps are unsigned.
TEST(Perfetto, NegativeTimesAreShifted) {
  const Program program = pipelined_program(1, 1, 1);
  RunLog log = plain_log(program);
  log.spans[0].start = {-2500};
  const auto events = on(export_of(program, log, two_nodes()),
                         "cluster > node 0 > gpu 0 (pipeline 0, stage 0) > compute");
  ASSERT_GE(events.size(), 2U);
  EXPECT_EQ(events[0].time, 0U);
  EXPECT_EQ(events[1].time, 3500U);
}

TEST(Timeline, ALogOfAnotherProgramIsNoticed) {
  const Program program = pipelined_program(1, 2, 1);
  const RunLog log = plain_log(program);
  EXPECT_EQ(find_mismatch(program, log), "");
  RunLog wrong = log;
  wrong.spans[3].op = {500};
  EXPECT_EQ(find_mismatch(program, wrong), "span 3 is of op 500, the program has 12");
  wrong = log;
  wrong.spans[3].rank = {1};
  EXPECT_EQ(find_mismatch(program, wrong), "span 3 says that rank 1 ran op 3 of rank 0");
  wrong = log;
  wrong.spans[2].end = {-1};
  EXPECT_EQ(find_mismatch(program, wrong), "span 2 ends before it starts");
  wrong = log;
  wrong.memory[0].rank = {2};
  EXPECT_EQ(find_mismatch(program, wrong), "memory of rank 2");
}

}  // namespace
}  // namespace orrery::ir::perfetto_test
