#include "models/ir/chrome_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::ir {
namespace {

/// Bytes of the UTF-8 character at the start of `text`; 0 if it is not UTF-8 (RFC 3629).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  const std::size_t length = first < 0x80                     ? 1
                             : first >= 0xc2 && first < 0xe0  ? 2
                             : first >= 0xe0 && first < 0xf0  ? 3
                             : first >= 0xf0 && first <= 0xf4 ? 4
                                                              : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  const bool wrong =
      length > 2 && ((first == 0xe0 && byte(1) < 0xa0) || (first == 0xed && byte(1) > 0x9f) ||
                     (first == 0xf0 && byte(1) < 0x90) || (first == 0xf4 && byte(1) > 0x8f));
  return wrong ? 0 : length;
}

/// A JSON string, quotes included. What is not UTF-8 becomes U+FFFD.
std::string json_string(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out + '"';
}

class ChromeWriter {
 public:
  ChromeWriter(const Program& program, const RunLog& log, const TimelineNames& names,
               std::ostream& out)
      : log_(log), timeline_(program, log, names), threads_(program.ranks.size()), out_(out) {}

  void run() {
    text_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
    add(R"({{"ph":"M","name":"process_name","pid":0,"args":{{"name":"cluster"}}}})");
    int row = 0;
    for (const Timeline::Node& node : timeline_.nodes()) {
      for (const RankId rank : node.ranks) {
        const std::string name = timeline_.rank_name(rank);
        add(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", pid(rank),
            json_string(node.name.empty() ? name : node.name + " / " + name));
        add(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})",
            pid(rank), ++row);
      }
    }
    for (const Lane& lane : timeline_.lanes()) add_lane(lane);
    for (const MemorySample& sample : log_.memory) {
      add(R"({{"ph":"C","name":"memory","pid":{},"ts":{},"args":{{"bytes":{}}}}})",
          pid(sample.rank), time(sample.at), std::llround(sample.allocated.value));
    }
    for (const IterationMark& mark : log_.iterations) {
      add(R"({{"ph":"X","name":"iteration {}","pid":0,"tid":0,"ts":{},"dur":{}}})", mark.iteration,
          time(mark.start), microseconds(mark.end - mark.start));
    }
    for (const LogEvent& event : log_.events) {
      add(R"({{"ph":"i","s":"g","name":{},"pid":0,"tid":0,"ts":{},"args":{{"detail":{}}}}})",
          json_string(event.kind), time(event.at), json_string(event.detail));
    }
    text_ += "\n]}\n";
    flush();
  }

 private:
  static int pid(RankId rank) { return rank.value + 1; }

  /// Exact: whole nanoseconds as microseconds with three decimals.
  static std::string microseconds(Nanoseconds duration) {
    return fmt::format("{}.{:03}", duration.count / 1000, duration.count % 1000);
  }
  std::string time(Instant at) const { return microseconds({at.nanoseconds + timeline_.shift()}); }

  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    text_ += first_ ? "\n" : ",\n";
    first_ = false;
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    constexpr std::size_t kBlock = 1 << 20;
    if (text_.size() > kBlock) flush();
  }
  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

  void add_lane(const Lane& lane) {
    const int tid = threads_[lane.rank]++;
    add(R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":{}}}}})",
        pid(lane.rank), tid, json_string(Timeline::lane_name(lane)));
    for (const std::uint32_t i : lane.spans) {
      const Span& span = log_.spans[i];
      add(R"({{"ph":"X","name":{},"cat":"{}","pid":{},"tid":{},"ts":{},"dur":{},)"
          R"("args":{{"op":{},"bytes":{},"inner_collectives_us":{}}}}})",
          json_string(timeline_.span_name(span)), timeline_.category(span), pid(lane.rank), tid,
          time(span.start), microseconds(span.end - span.start), span.op.value,
          std::llround(span.bytes.value), microseconds(span.inner));
      if (const std::uint64_t flow = timeline_.flow(i))
        add_flow(span, flow, timeline_.is_send(i), tid);
    }
  }

  /// An arrow leaves where the send begins and arrives just before the recv ends, inside its slice.
  void add_flow(const Span& span, std::uint64_t flow, bool send, int tid) {
    const Instant at = send ? span.start : std::max(span.start, span.end + Nanoseconds{-1});
    add(R"({{"ph":"{}","bp":"e","name":"transfer","cat":"transfer","id":{},"pid":{},"tid":{},)"
        R"("ts":{}}})",
        send ? 's' : 'f', flow, pid(span.rank), tid, time(at));
  }

  const RunLog& log_;
  Timeline timeline_;
  IdVector<RankId, int> threads_;  ///< Lanes so far.
  std::ostream& out_;
  std::string text_;
  bool first_ = true;
};

}  // namespace

void write_chrome(const Program& program, const RunLog& log, const TimelineNames& names,
                  std::ostream& out) {
  ChromeWriter(program, log, names, out).run();
}

}  // namespace orrery::ir
