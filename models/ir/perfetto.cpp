#include "models/ir/perfetto.h"

#include <google/protobuf/io/coded_stream.h>

#include <cmath>
#include <ostream>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/ir/perfetto_trace.pb.h"

namespace orrery::ir {
namespace {

using perfetto::InternedData;
using perfetto::TrackDescriptor;
using perfetto::TrackEvent;

constexpr std::uint32_t kSequence = 1;
constexpr std::uint32_t kStateCleared = 1;
constexpr std::uint32_t kNeedsState = 2;
constexpr std::uint64_t kClusterTrack = 1;

/// Names that are written once and then referred to by number.
class Interned {
 public:
  /// The number of `name`; announces it in `data` the first time.
  template <class Add>
  std::uint64_t number(const std::string& name, Add add) {
    const auto [at, fresh] = numbers_.try_emplace(name, numbers_.size() + 1);
    if (fresh) {
      perfetto::InternedString* entry = add();
      entry->set_iid(at->second);
      entry->set_name(name);
    }
    return at->second;
  }

 private:
  std::unordered_map<std::string, std::uint64_t> numbers_;
};

class PerfettoWriter {
 public:
  PerfettoWriter(const Program& program, const RunLog& log, const TimelineNames& names,
                 std::ostream& out)
      : log_(log), timeline_(program, log, names), ranks_(program.ranks.size()), out_(out) {}

  void run() {
    TrackDescriptor& root = track(kClusterTrack, 0, "cluster");
    root.set_child_ordering(TrackDescriptor::EXPLICIT);
    packet_.set_sequence_flags(kStateCleared);
    write();
    std::int32_t row = 0;
    for (const Timeline::Node& node : timeline_.nodes()) {
      std::uint64_t parent = kClusterTrack;
      if (!node.name.empty()) {
        parent = ++last_track_;
        TrackDescriptor& descriptor = track(parent, kClusterTrack, node.name);
        descriptor.set_child_ordering(TrackDescriptor::EXPLICIT);
        descriptor.set_sibling_order_rank(++row);
        write();
      }
      for (const RankId rank : node.ranks) add_rank(rank, parent, ++row);
    }
    for (const Lane& lane : timeline_.lanes()) add_lane(lane);
    for (const MemorySample& sample : log_.memory) add_sample(sample);
    add_marks();
  }

 private:
  struct RankTracks {
    std::uint64_t device = 0;
    std::uint64_t memory = 0;
    std::int32_t lanes = 0;
  };

  TrackDescriptor& track(std::uint64_t uuid, std::uint64_t parent, const std::string& name) {
    packet_.Clear();
    TrackDescriptor& descriptor = *packet_.mutable_track_descriptor();
    descriptor.set_uuid(uuid);
    if (parent != 0) descriptor.set_parent_uuid(parent);
    descriptor.set_name(name);
    return descriptor;
  }

  TrackEvent& event(TrackEvent::Type type, std::uint64_t on, Instant at) {
    packet_.Clear();
    packet_.set_timestamp(static_cast<std::uint64_t>(at.nanoseconds + timeline_.shift()));
    packet_.set_sequence_flags(kNeedsState);
    TrackEvent& event = *packet_.mutable_track_event();
    event.set_type(type);
    event.set_track_uuid(on);
    return event;
  }

  std::uint64_t name_number(const std::string& name) {
    return names_.number(name, [&] { return packet_.mutable_interned_data()->add_event_names(); });
  }

  void annotate(TrackEvent& event, const char* name, std::uint64_t value) {
    perfetto::DebugAnnotation& annotation = *event.add_debug_annotations();
    annotation.set_name_iid(annotation_number(name));
    annotation.set_uint_value(value);
  }
  std::uint64_t annotation_number(const char* name) {
    return annotations_.number(
        name, [&] { return packet_.mutable_interned_data()->add_debug_annotation_names(); });
  }

  void add_rank(RankId rank, std::uint64_t parent, std::int32_t row) {
    RankTracks& tracks = ranks_[rank];
    tracks.device = ++last_track_;
    TrackDescriptor& device = track(tracks.device, parent, timeline_.rank_name(rank));
    device.set_child_ordering(TrackDescriptor::EXPLICIT);
    device.set_sibling_order_rank(row);
    write();
    tracks.memory = ++last_track_;
    TrackDescriptor& memory = track(tracks.memory, tracks.device, "memory");
    memory.mutable_counter()->set_unit(perfetto::CounterDescriptor::SIZE_BYTES);
    write();
  }

  void add_lane(const Lane& lane) {
    RankTracks& tracks = ranks_[lane.rank];
    const std::uint64_t uuid = ++last_track_;
    track(uuid, tracks.device, Timeline::lane_name(lane)).set_sibling_order_rank(++tracks.lanes);
    write();
    for (const std::uint32_t i : lane.spans) add_span(i, uuid);
  }

  /// Arrows leave where a send begins and arrive where its recv ends: the two run at the same time,
  /// and readers take the earlier of two events for the source.
  void add_span(std::uint32_t i, std::uint64_t on) {
    const Span& span = log_.spans[i];
    const std::uint64_t flow = timeline_.flow(i);
    TrackEvent& begin = event(TrackEvent::SLICE_BEGIN, on, span.start);
    begin.set_name_iid(name_number(timeline_.span_name(span)));
    begin.add_category_iids(categories_.number(timeline_.category(span), [&] {
      return packet_.mutable_interned_data()->add_event_categories();
    }));
    if (flow != 0 && timeline_.is_send(i)) begin.add_flow_ids(flow);
    annotate(begin, "op", static_cast<std::uint64_t>(span.op.value));
    if (span.bytes.value > 0) {
      annotate(begin, "bytes", static_cast<std::uint64_t>(std::llround(span.bytes.value)));
    }
    if (span.inner.count > 0) {
      annotate(begin, "inner_collectives_ns", static_cast<std::uint64_t>(span.inner.count));
    }
    write();
    TrackEvent& end = event(TrackEvent::SLICE_END, on, span.end);
    if (flow != 0 && !timeline_.is_send(i)) end.add_terminating_flow_ids(flow);
    write();
  }

  void add_sample(const MemorySample& sample) {
    event(TrackEvent::COUNTER, ranks_[sample.rank].memory, sample.at)
        .set_counter_value(std::llround(sample.allocated.value));
    write();
  }

  void add_marks() {
    for (const IterationMark& mark : log_.iterations) {
      event(TrackEvent::SLICE_BEGIN, kClusterTrack, mark.start)
          .set_name_iid(name_number("iteration " + std::to_string(mark.iteration)));
      write();
      event(TrackEvent::SLICE_END, kClusterTrack, mark.end);
      write();
    }
    for (const LogEvent& mark : log_.events) {
      TrackEvent& instant = event(TrackEvent::INSTANT, kClusterTrack, mark.at);
      instant.set_name_iid(name_number(mark.kind));
      perfetto::DebugAnnotation& detail = *instant.add_debug_annotations();
      detail.set_name_iid(annotation_number("detail"));
      detail.set_string_value(mark.detail);
      write();
    }
  }

  /// Appends the packet to the file, as an element of Trace::packet.
  void write() {
    packet_.set_trusted_packet_sequence_id(kSequence);
    constexpr std::uint8_t kPacketTag = 1 << 3 | 2;  // Field 1, length-delimited.
    const std::size_t size = packet_.ByteSizeLong();
    std::uint8_t prefix[6] = {kPacketTag};
    const auto* end = google::protobuf::io::CodedOutputStream::WriteVarint32ToArray(
        static_cast<std::uint32_t>(size), &prefix[1]);
    bytes_.assign(reinterpret_cast<const char*>(prefix), end - prefix);
    packet_.AppendToString(&bytes_);
    out_.write(bytes_.data(), static_cast<std::streamsize>(bytes_.size()));
  }

  const RunLog& log_;
  Timeline timeline_;
  IdVector<RankId, RankTracks> ranks_;
  std::ostream& out_;
  perfetto::TracePacket packet_;
  std::string bytes_;
  std::uint64_t last_track_ = kClusterTrack;
  Interned names_;
  Interned categories_;
  Interned annotations_;
};

}  // namespace

void write_perfetto(const Program& program, const RunLog& log, const TimelineNames& names,
                    std::ostream& out) {
  PerfettoWriter(program, log, names, out).run();
}

}  // namespace orrery::ir
