#include "models/ir/run_log.pb.h"
#include "models/ir/wire.h"
#include "models/ir/wire_columns.h"

namespace orrery::ir {

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::SpanRows& m) {
  v.integers(rows, m.mutable_rank(), &Span::rank);
  v.integers(rows, m.mutable_op(), &Span::op);
  v.integers(rows, m.mutable_start(), &Span::start);
  v.integers(rows, m.mutable_end(), &Span::end);
  v.integers(rows, m.mutable_inner(), &Span::inner);
  v.doubles(rows, m.mutable_bytes(), &Span::bytes);
  v.sparse(rows, m.mutable_gathers(), &Span::gathers);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::IterationRows& m) {
  v.integers(rows, m.mutable_iteration(), &IterationMark::iteration);
  v.integers(rows, m.mutable_start(), &IterationMark::start);
  v.integers(rows, m.mutable_end(), &IterationMark::end);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::MemoryRows& m) {
  v.integers(rows, m.mutable_rank(), &MemorySample::rank);
  v.integers(rows, m.mutable_at(), &MemorySample::at);
  v.doubles(rows, m.mutable_allocated(), &MemorySample::allocated);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::LinkRows& m) {
  v.strings(rows, m.mutable_link(), &LinkUse::link);
  v.doubles(rows, m.mutable_capacity(), &LinkUse::capacity);
  v.doubles(rows, m.mutable_bytes(), &LinkUse::bytes);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::EventRows& m) {
  v.integers(rows, m.mutable_at(), &LogEvent::at);
  v.strings(rows, m.mutable_kind(), &LogEvent::kind);
  v.strings(rows, m.mutable_detail(), &LogEvent::detail);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::ClockRows& m) {
  v.integers(rows, m.mutable_rank(), &ClockOffset::rank);
  v.integers(rows, m.mutable_offset(), &ClockOffset::offset);
  v.integers(rows, m.mutable_uncertainty(), &ClockOffset::uncertainty);
}

namespace {

constexpr FileKind kRunLogFile = {"run log", kRunLogSchema};

using LogChunk = wire::RunLogChunk;

constexpr auto kLogTables =
    std::tuple(Table{LogChunk::kSpans, &RunLog::spans, &LogChunk::mutable_spans},
               Table{LogChunk::kIterations, &RunLog::iterations, &LogChunk::mutable_iterations},
               Table{LogChunk::kMemory, &RunLog::memory, &LogChunk::mutable_memory},
               Table{LogChunk::kLinks, &RunLog::links, &LogChunk::mutable_links},
               Table{LogChunk::kEvents, &RunLog::events, &LogChunk::mutable_events},
               Table{LogChunk::kClocks, &RunLog::clocks, &LogChunk::mutable_clocks});

/// Returns the problem, if any.
std::string read_log_chunk(LogChunk& chunk, RunLog& log) {
  if (!chunk.has_header()) return read_table(chunk, kLogTables, log);
  log.schema = chunk.header().schema();
  log.program_hash = chunk.header().program_hash();
  log.source = chunk.header().source();
  log.generation = chunk.header().generation();
  return "";
}

}  // namespace

std::string serialize(const RunLog& log) {
  FrameWriter out(kRunLogFile);
  LogChunk first;
  first.mutable_header()->set_schema(log.schema);
  first.mutable_header()->set_program_hash(log.program_hash);
  first.mutable_header()->set_source(log.source);
  first.mutable_header()->set_generation(log.generation);
  out.add(first);
  write_tables<LogChunk>(log, kLogTables, out);
  return out.finish();
}

std::variant<RunLog, std::string> parse_run_log(std::string_view bytes) {
  return parse_chunks<RunLog, LogChunk>(bytes, kRunLogFile, read_log_chunk);
}

}  // namespace orrery::ir
