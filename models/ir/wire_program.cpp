#include "models/base/hash.h"
#include "models/ir/program.pb.h"
#include "models/ir/wire.h"
#include "models/ir/wire_columns.h"

namespace orrery::ir {

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::PipelineRows& m) {
  v.integers(rows, m.mutable_first_sample(), &PipelineInfo::first_sample);
  v.integers(rows, m.mutable_micro_batches(), &PipelineInfo::micro_batches);
  v.integers(rows, m.mutable_micro_batch_size(), &PipelineInfo::micro_batch_size);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::RankRows& m) {
  v.integers(rows, m.mutable_device(), &Rank::device);
  v.lists(rows, m.mutable_device_count(), m.devices_size(), &Rank::devices,
          [&](auto devices) { v.integers(devices, m.mutable_devices(), std::identity()); });
  v.integers(rows, m.mutable_pipeline(), &Rank::pipeline);
  v.integers(rows, m.mutable_stage(), &Rank::stage);
  v.integers(rows, m.mutable_group(), &Rank::group);
  v.integers(rows, m.mutable_position(), &Rank::position);
  v.integers(rows, m.mutable_tensor_parallel(), &Rank::tensor_parallel);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::SegmentRows& m) {
  v.integers(rows, m.mutable_pipeline(), &SegmentInfo::pipeline);
  v.integers(rows, m.mutable_stage(), &SegmentInfo::stage);
  v.integers(rows, m.mutable_virtual_stage(), &SegmentInfo::virtual_stage);
  v.integers(rows, m.mutable_group(), &SegmentInfo::group);
  v.integers(rows, m.mutable_first_sample(), &SegmentInfo::first_sample);
  v.integers(rows, m.mutable_samples(), &SegmentInfo::samples);
  v.integers(rows, m.mutable_first_block(), &SegmentInfo::first_block);
  v.integers(rows, m.mutable_last_block(), &SegmentInfo::last_block);
  v.integers(rows, m.mutable_tensor_parallel(), &SegmentInfo::tensor_parallel);
  v.integers(rows, m.mutable_sequence_degree(), &SegmentInfo::sequence_degree);
  v.integers(rows, m.mutable_sequence(), &SegmentInfo::sequence);
  v.integers(rows, m.mutable_expert_parallel(), &SegmentInfo::expert_parallel);
  v.integers(rows, m.mutable_recompute(), &SegmentInfo::recompute);
  v.integers(
      rows, m.mutable_zero_stage(), [](auto& row) -> auto& { return row.zero.stage; });
  v.integers(
      rows, m.mutable_zero_shard_group(), [](auto& row) -> auto& { return row.zero.shard_group; });
  v.sparse(rows, m.mutable_state_weight(), &SegmentInfo::state_weight);
  v.sparse(rows, m.mutable_redundant(), &SegmentInfo::redundant);
  v.sparse(rows, m.mutable_experts(), &SegmentInfo::experts);
  v.sparse(rows, m.mutable_expert_samples(), &SegmentInfo::expert_samples);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::GroupRows& m) {
  v.lists(rows, m.mutable_device_count(), m.devices_size(), &CommunicationGroup::devices,
          [&](auto devices) { v.integers(devices, m.mutable_devices(), std::identity()); });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::RegionRows& m) {
  v.integers(rows, m.mutable_tensor(), &Region::tensor);
  v.integers(rows, m.mutable_first_block(), &Region::first_block);
  v.integers(rows, m.mutable_last_block(), &Region::last_block);
  v.integers(rows, m.mutable_parameter(), &Region::parameter);
  v.integers(rows, m.mutable_begin(), &Region::begin);
  v.integers(rows, m.mutable_end(), &Region::end);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::CollectiveShapeRows& m) {
  using Part = CollectiveShape::Part;
  v.integers(rows, m.mutable_kind(), &CollectiveShape::kind);
  v.integers(rows, m.mutable_purpose(), &CollectiveShape::purpose);
  v.integers(rows, m.mutable_regions(), &CollectiveShape::regions);
  v.lists(
      rows, m.mutable_part_count(), m.part_group_size(), &CollectiveShape::parts, [&](auto parts) {
        v.integers(parts, m.mutable_part_group(), &Part::group);
        v.doubles(parts, m.mutable_part_bytes(), &Part::bytes);
        v.lists(parts, m.mutable_part_member_count(), m.member_region_count_size(),
                &Part::member_regions, [&](auto members) {
                  v.lists(members, m.mutable_member_region_count(),
                          m.member_regions().tensor_size(), std::identity(),
                          [&](auto regions) { columns(v, regions, *m.mutable_member_regions()); });
                });
      });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::CollectiveRows& m) {
  v.integers(rows, m.mutable_shape(), &Collective::shape);
  v.integers(
      rows, m.mutable_first_member(), [](auto& row) -> auto& { return row.members.first_member; });
  v.integers(
      rows, m.mutable_member_count(), [](auto& row) -> auto& { return row.members.member_count; });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::RendezvousRows& m) {
  v.integers(rows, m.mutable_first_member(), &Rendezvous::first_member);
  v.integers(rows, m.mutable_member_count(), &Rendezvous::member_count);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::TransferSetRows& m) {
  v.lists(rows, m.mutable_count(), m.source_size(), std::identity(), [&](auto transfers) {
    v.integers(transfers, m.mutable_source(), &Transfer::source);
    v.integers(transfers, m.mutable_destination(), &Transfer::destination);
    v.doubles(transfers, m.mutable_bytes(), &Transfer::bytes);
  });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::InnerSetRows& m) {
  v.lists(rows, m.mutable_set_count(), m.kind_size(), std::identity(), [&](auto inner) {
    v.integers(inner, m.mutable_kind(), &InnerCollective::kind);
    v.integers(inner, m.mutable_purpose(), &InnerCollective::purpose);
    v.lists(inner, m.mutable_group_count(), m.groups_size(), &InnerCollective::groups,
            [&](auto groups) { v.integers(groups, m.mutable_groups(), std::identity()); });
    v.integers(inner, m.mutable_count(), &InnerCollective::count);
    v.doubles(inner, m.mutable_bytes(), &InnerCollective::bytes);
    v.lists(inner, m.mutable_peer_count(), m.bytes_per_peer().index_size(),
            &InnerCollective::bytes_per_peer,
            [&](auto bytes) { v.doubles(bytes, m.mutable_bytes_per_peer(), std::identity()); });
  });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::BufferSetRows& m) {
  v.lists(rows, m.mutable_count(), m.kind_size(), std::identity(), [&](auto effects) {
    v.integers(effects, m.mutable_kind(), &BufferEffect::kind);
    v.integers(effects, m.mutable_action(), &BufferEffect::action);
    v.integers(effects, m.mutable_per_micro_batch(), &BufferEffect::per_micro_batch);
    v.integers(effects, m.mutable_segment(), &BufferEffect::segment);
    v.doubles(effects, m.mutable_bytes(), &BufferEffect::bytes);
  });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::RegionSetRows& m) {
  v.lists(rows, m.mutable_count(), m.regions().tensor_size(), std::identity(),
          [&](auto regions) { columns(v, regions, *m.mutable_regions()); });
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::OpRows& m) {
  v.integers(rows, m.mutable_kind(), &Op::kind);
  v.integers(rows, m.mutable_stream(), &Op::stream);
  v.integers(rows, m.mutable_location(), &Op::location);
  v.integers(rows, m.mutable_purpose(), &Op::purpose);
  v.integers(rows, m.mutable_rank(), &Op::rank);
  v.integers(rows, m.mutable_micro_batch(), &Op::micro_batch);
  v.integers(rows, m.mutable_segment(), &Op::segment);
  v.integers(rows, m.mutable_samples(), &Op::samples);
  v.integers(rows, m.mutable_inner(), &Op::inner);
  v.integers(rows, m.mutable_buffers(), &Op::buffers);
  v.integers(rows, m.mutable_regions(), &Op::regions);
  v.integers(rows, m.mutable_match(), &Op::match);
  v.integers(rows, m.mutable_transfers(), &Op::transfers);
  v.doubles(rows, m.mutable_bytes(), &Op::bytes);
}

template <class V, class Row>
void columns(V& v, std::span<Row> rows, wire::IdRows& m) {
  v.integers(rows, m.mutable_id(), std::identity());
}

namespace {

constexpr FileKind kProgramFile = {"program", kProgramSchema};

/// Calls visit(field, value in the message, setter of the message) for each field of the header but
/// `blocks`.
template <class Header, class Visit>
void visit_header(Header& header, wire::ProgramHeader& message, Visit visit) {
  auto& model = header.model;
  wire::ModelShape& shape = *message.mutable_model();
#define ORRERY_FIELD(object, fields, name) \
  visit((object).name, (fields).name(), [&](const auto& value) { (fields).set_##name(value); })
  ORRERY_FIELD(header, message, schema);
  ORRERY_FIELD(model, shape, name);
  ORRERY_FIELD(model, shape, layers);
  ORRERY_FIELD(model, shape, hidden);
  ORRERY_FIELD(model, shape, heads);
  ORRERY_FIELD(model, shape, kv_heads);
  ORRERY_FIELD(model, shape, head_dim);
  ORRERY_FIELD(model, shape, ffn);
  ORRERY_FIELD(model, shape, vocabulary);
  ORRERY_FIELD(model, shape, positions);
  ORRERY_FIELD(model, shape, normalization);
  ORRERY_FIELD(model, shape, activation);
  ORRERY_FIELD(model, shape, causal);
  ORRERY_FIELD(model, shape, biases);
  ORRERY_FIELD(model, shape, tied_embeddings);
  ORRERY_FIELD(model, shape, experts);
  ORRERY_FIELD(model, shape, top_k);
  ORRERY_FIELD(model, shape, capacity_factor);
  ORRERY_FIELD(model, shape, expert_imbalance);
  ORRERY_FIELD(model, shape, shared_ffn);
  ORRERY_FIELD(model, shape, dense_layers);
  ORRERY_FIELD(model, shape, moe_interval);
  ORRERY_FIELD(model, shape, dense_ffn);
  ORRERY_FIELD(model, shape, window);
  ORRERY_FIELD(model, shape, global_interval);
  ORRERY_FIELD(model, shape, mtp_layers);
  ORRERY_FIELD(model, shape, kv_rank);
  ORRERY_FIELD(model, shape, query_rank);
  ORRERY_FIELD(model, shape, rotary_dim);
  ORRERY_FIELD(model, shape, value_dim);
  ORRERY_FIELD(header, message, sequence_length);
  ORRERY_FIELD(header, message, global_batch);
  ORRERY_FIELD(header, message, dtype);
  ORRERY_FIELD(header, message, optimizer);
  ORRERY_FIELD(header, message, seed);
  ORRERY_FIELD(header, message, schedule);
  ORRERY_FIELD(header, message, optimizer_start);
  ORRERY_FIELD(header, message, optimizer_offload);
  ORRERY_FIELD(header, message, collapsed);
  ORRERY_FIELD(header, message, plan_hash);
  ORRERY_FIELD(header, message, cluster_hash);
  ORRERY_FIELD(header, message, workload_hash);
#undef ORRERY_FIELD
}

void write_header(const ProgramHeader& header, wire::ProgramHeader& out) {
  visit_header(header, out, [](const auto& field, const auto&, auto set) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(field)>>) {
      set(static_cast<std::uint32_t>(field));
    } else {
      set(field);
    }
  });
  for (const BlockKind block : header.blocks) out.add_blocks(static_cast<std::uint32_t>(block));
}

template <class E>
bool read_enum(std::uint32_t number, E& value) {
  value = static_cast<E>(number);
  return number < enum_names(E{}).size();
}

/// False if a value is out of range.
bool read_header(wire::ProgramHeader& in, ProgramHeader& header) {
  bool good = true;
  visit_header(header, in, [&](auto& field, const auto& value, const auto&) {
    if constexpr (std::is_enum_v<std::remove_cvref_t<decltype(field)>>) {
      good = read_enum(value, field) && good;
    } else {
      field = value;
    }
  });
  for (const std::uint32_t number : in.blocks()) {
    good = read_enum(number, header.blocks.emplace_back()) && good;
  }
  return good;
}

using wire::ProgramChunk;

constexpr auto kProgramTables = std::tuple(
    Table{ProgramChunk::kPipelines, &Program::pipelines, &ProgramChunk::mutable_pipelines},
    Table{ProgramChunk::kRanks, &Program::ranks, &ProgramChunk::mutable_ranks},
    Table{ProgramChunk::kSegments, &Program::segments, &ProgramChunk::mutable_segments},
    Table{ProgramChunk::kGroups, &Program::groups, &ProgramChunk::mutable_groups},
    Table{ProgramChunk::kCollectiveShapes, &Program::collective_shapes,
          &ProgramChunk::mutable_collective_shapes},
    Table{ProgramChunk::kCollectives, &Program::collectives, &ProgramChunk::mutable_collectives},
    Table{ProgramChunk::kOpGroups, &Program::op_groups, &ProgramChunk::mutable_op_groups},
    Table{ProgramChunk::kMembers, &Program::members, &ProgramChunk::mutable_members},
    Table{ProgramChunk::kTransferSets, &Program::transfer_sets,
          &ProgramChunk::mutable_transfer_sets},
    Table{ProgramChunk::kInnerSets, &Program::inner_sets, &ProgramChunk::mutable_inner_sets},
    Table{ProgramChunk::kBufferSets, &Program::buffer_sets, &ProgramChunk::mutable_buffer_sets},
    Table{ProgramChunk::kRegionSets, &Program::region_sets, &ProgramChunk::mutable_region_sets},
    Table{ProgramChunk::kResident, &Program::resident, &ProgramChunk::mutable_resident},
    Table{ProgramChunk::kOps, &Program::ops, &ProgramChunk::mutable_ops},
    Table{ProgramChunk::kStreamBegin, &Program::stream_begin, &ProgramChunk::mutable_stream_begin},
    Table{ProgramChunk::kDependencyBegin, &Program::dependency_begin,
          &ProgramChunk::mutable_dependency_begin},
    Table{ProgramChunk::kDependencies, &Program::dependencies,
          &ProgramChunk::mutable_dependencies});

/// Returns the problem, if any.
std::string read_program_chunk(ProgramChunk& chunk, Program& program) {
  if (!chunk.has_header()) return read_table(chunk, kProgramTables, program);
  return read_header(*chunk.mutable_header(), program.header) ? ""
                                                              : "a header value is out of range";
}

}  // namespace

std::string serialize(const Program& program) {
  FrameWriter out(kProgramFile);
  ProgramChunk first;
  write_header(program.header, *first.mutable_header());
  out.add(first);
  write_tables<ProgramChunk>(program, kProgramTables, out);
  return out.finish();
}

std::variant<Program, std::string> parse_program(std::string_view bytes) {
  return parse_chunks<Program, ProgramChunk>(bytes, kProgramFile, read_program_chunk);
}

std::string program_hash(const Program& program) { return content_hash(serialize(program)); }

}  // namespace orrery::ir
