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
  v.flags(rows, m.mutable_redundant(), &SegmentInfo::redundant);
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

void write_header(const ProgramHeader& header, wire::ProgramHeader& out) {
  const ModelShape& model = header.model;
  wire::ModelShape& shape = *out.mutable_model();
  out.set_schema(header.schema);
  shape.set_name(model.name);
  shape.set_layers(model.layers);
  shape.set_hidden(model.hidden);
  shape.set_heads(model.heads);
  shape.set_kv_heads(model.kv_heads);
  shape.set_head_dim(model.head_dim);
  shape.set_ffn(model.ffn);
  shape.set_vocabulary(model.vocabulary);
  shape.set_positions(model.positions);
  shape.set_normalization(static_cast<std::uint32_t>(model.normalization));
  shape.set_activation(static_cast<std::uint32_t>(model.activation));
  shape.set_causal(model.causal);
  shape.set_biases(model.biases);
  shape.set_tied_embeddings(model.tied_embeddings);
  shape.set_experts(model.experts);
  shape.set_top_k(model.top_k);
  shape.set_capacity_factor(model.capacity_factor);
  shape.set_expert_imbalance(model.expert_imbalance);
  for (const BlockKind block : header.blocks) out.add_blocks(static_cast<std::uint32_t>(block));
  out.set_sequence_length(header.sequence_length);
  out.set_global_batch(header.global_batch);
  out.set_dtype(static_cast<std::uint32_t>(header.dtype));
  out.set_optimizer(static_cast<std::uint32_t>(header.optimizer));
  out.set_seed(header.seed);
  out.set_schedule(static_cast<std::uint32_t>(header.schedule));
  out.set_optimizer_start(static_cast<std::uint32_t>(header.optimizer_start));
  out.set_collapsed(header.collapsed);
  out.set_plan_hash(header.plan_hash);
  out.set_cluster_hash(header.cluster_hash);
  out.set_workload_hash(header.workload_hash);
}

template <class E>
bool read_enum(std::uint32_t number, E& value) {
  value = static_cast<E>(number);
  return number < enum_names(E{}).size();
}

/// False if a value is out of range.
bool read_header(const wire::ProgramHeader& in, ProgramHeader& header) {
  ModelShape& model = header.model;
  const wire::ModelShape& shape = in.model();
  header.schema = in.schema();
  model.name = shape.name();
  model.layers = shape.layers();
  model.hidden = shape.hidden();
  model.heads = shape.heads();
  model.kv_heads = shape.kv_heads();
  model.head_dim = shape.head_dim();
  model.ffn = shape.ffn();
  model.vocabulary = shape.vocabulary();
  model.positions = shape.positions();
  model.causal = shape.causal();
  model.biases = shape.biases();
  model.tied_embeddings = shape.tied_embeddings();
  model.experts = shape.experts();
  model.top_k = shape.top_k();
  model.capacity_factor = shape.capacity_factor();
  model.expert_imbalance = shape.expert_imbalance();
  header.sequence_length = in.sequence_length();
  header.global_batch = in.global_batch();
  header.seed = in.seed();
  header.collapsed = in.collapsed();
  header.plan_hash = in.plan_hash();
  header.cluster_hash = in.cluster_hash();
  header.workload_hash = in.workload_hash();
  header.blocks.resize(static_cast<std::size_t>(in.blocks_size()));
  bool good = read_enum(shape.normalization(), model.normalization) &&
              read_enum(shape.activation(), model.activation) &&
              read_enum(in.dtype(), header.dtype) && read_enum(in.optimizer(), header.optimizer) &&
              read_enum(in.schedule(), header.schedule) &&
              read_enum(in.optimizer_start(), header.optimizer_start);
  for (int i = 0; i < in.blocks_size(); ++i) {
    good = read_enum(in.blocks(i), header.blocks[static_cast<std::size_t>(i)]) && good;
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
  return read_header(chunk.header(), program.header) ? "" : "a header value is out of range";
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
