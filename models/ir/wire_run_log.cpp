#include "models/ir/run_log.pb.h"
#include "models/ir/wire.h"
#include "models/ir/wire_columns.h"
#include "models/ir/wire_frames.h"

namespace orrery::ir {
namespace {

constexpr FileKind kKind = {"run log", kRunLogSchema};

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::SpanRows& m) {
  v.integers(rows, m.mutable_rank(), &Span::rank);
  v.integers(rows, m.mutable_op(), &Span::op);
  v.integers(rows, m.mutable_start(), &Span::start);
  v.integers(rows, m.mutable_end(), &Span::end);
  v.integers(rows, m.mutable_inner(), &Span::inner);
  v.doubles(rows, m.mutable_bytes(), &Span::bytes);
}
int row_count(const wire::SpanRows& m) { return m.rank_size(); }

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::IterationRows& m) {
  v.integers(rows, m.mutable_iteration(), &IterationMark::iteration);
  v.integers(rows, m.mutable_start(), &IterationMark::start);
  v.integers(rows, m.mutable_end(), &IterationMark::end);
}
int row_count(const wire::IterationRows& m) { return m.iteration_size(); }

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::MemoryRows& m) {
  v.integers(rows, m.mutable_rank(), &MemorySample::rank);
  v.integers(rows, m.mutable_at(), &MemorySample::at);
  v.doubles(rows, m.mutable_allocated(), &MemorySample::allocated);
}
int row_count(const wire::MemoryRows& m) { return m.rank_size(); }

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::LinkRows& m) {
  v.strings(rows, m.mutable_link(), &LinkUse::link);
  v.doubles(rows, m.mutable_capacity(), &LinkUse::capacity);
  v.doubles(rows, m.mutable_bytes(), &LinkUse::bytes);
}
int row_count(const wire::LinkRows& m) { return m.link_size(); }

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::EventRows& m) {
  v.integers(rows, m.mutable_at(), &LogEvent::at);
  v.strings(rows, m.mutable_kind(), &LogEvent::kind);
  v.strings(rows, m.mutable_detail(), &LogEvent::detail);
}
int row_count(const wire::EventRows& m) { return m.at_size(); }

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::ClockRows& m) {
  v.integers(rows, m.mutable_rank(), &ClockOffset::rank);
  v.integers(rows, m.mutable_offset(), &ClockOffset::offset);
  v.integers(rows, m.mutable_uncertainty(), &ClockOffset::uncertainty);
}
int row_count(const wire::ClockRows& m) { return m.rank_size(); }

/// Appends the rows of `message` to `rows`. Returns the problem, if any.
template <class Row, class Message>
std::string take(std::vector<Row>& rows, Message* message) {
  const std::size_t before = rows.size();
  rows.resize(before + static_cast<std::size_t>(row_count(*message)));
  ColumnReader reader;
  columns(reader, std::span<Row>(rows).subspan(before), *message);
  return reader.problem();
}

/// Returns the problem, if any.
std::string read_chunk(wire::RunLogChunk& chunk, RunLog& log) {
  switch (chunk.table_case()) {
    case wire::RunLogChunk::kHeader:
      log.schema = chunk.header().schema();
      log.program_hash = chunk.header().program_hash();
      log.source = chunk.header().source();
      log.generation = chunk.header().generation();
      return "";
    case wire::RunLogChunk::kSpans:
      return take(log.spans, chunk.mutable_spans());
    case wire::RunLogChunk::kIterations:
      return take(log.iterations, chunk.mutable_iterations());
    case wire::RunLogChunk::kMemory:
      return take(log.memory, chunk.mutable_memory());
    case wire::RunLogChunk::kLinks:
      return take(log.links, chunk.mutable_links());
    case wire::RunLogChunk::kEvents:
      return take(log.events, chunk.mutable_events());
    case wire::RunLogChunk::kClocks:
      return take(log.clocks, chunk.mutable_clocks());
    case wire::RunLogChunk::TABLE_NOT_SET:
      break;
  }
  return "it holds no table that this version knows";
}

}  // namespace

std::string serialize(const RunLog& log) {
  FrameWriter out(kKind);
  using Chunk = wire::RunLogChunk;
  Chunk first;
  first.mutable_header()->set_schema(log.schema);
  first.mutable_header()->set_program_hash(log.program_hash);
  first.mutable_header()->set_source(log.source);
  first.mutable_header()->set_generation(log.generation);
  out.add(first);
  Chunk chunk;
  const auto put = [&](const auto& rows, auto table) {
    for_each_run(
        rows, [](const auto&) { return std::size_t{1}; },
        [&](auto run) {
          chunk.Clear();
          ColumnWriter writer;
          columns(writer, run, *(chunk.*table)());
          out.add(chunk);
        });
  };
  put(log.spans, &Chunk::mutable_spans);
  put(log.iterations, &Chunk::mutable_iterations);
  put(log.memory, &Chunk::mutable_memory);
  put(log.links, &Chunk::mutable_links);
  put(log.events, &Chunk::mutable_events);
  put(log.clocks, &Chunk::mutable_clocks);
  return out.finish();
}

std::variant<RunLog, std::string> parse_run_log(std::string_view bytes) {
  return parse_chunks<RunLog, wire::RunLogChunk>(bytes, kKind, read_chunk);
}

}  // namespace orrery::ir
