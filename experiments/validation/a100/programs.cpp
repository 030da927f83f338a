#include "experiments/validation/a100/programs.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "models/base/check.h"
#include "models/lower/lower.h"

namespace orrery::experiments {
namespace {

models::Cluster make_cluster(const A100Row& row, int nodes, const A100Parameters& parameters,
                             const models::Library& library) {
  models::Cluster cluster;
  cluster.name = "a100";
  cluster.gpu_types = {library.gpus.at("A100-80GB")};
  for (const auto& [name, share] : {std::pair("nvlink3", A100Parameter::nvlink_share),
                                    std::pair("infiniband-200", A100Parameter::network_share)}) {
    models::LinkClass link = library.links.at(name);
    link.efficiency = parameters[share];
    cluster.links[link.name] = link;
  }
  models::Node node;
  node.gpu_types.assign(kA100GpusPerNode, 0);
  models::LinkDomain domain;
  for (int g = 0; g < kA100GpusPerNode; ++g) domain.members.push_back(g);
  domain.link = "nvlink3";
  node.domains = {domain};
  node.nics.assign(static_cast<std::size_t>(row.nics_per_node), {"infiniband-200", {}});
  for (int n = 0; n < nodes; ++n) {
    node.name = fmt::format("a100-{}", n);
    cluster.nodes.push_back(node);
  }
  seal(cluster);
  return cluster;
}

ir::ModelShape shape_of(const A100Row& row) {
  ir::ModelShape shape;
  shape.name = row.id;
  shape.layers = row.layers;
  shape.hidden = row.hidden;
  shape.heads = shape.kv_heads = row.heads;
  shape.head_dim = row.hidden / row.heads;
  shape.ffn = 4 * row.hidden;
  shape.vocabulary = row.vocabulary;
  shape.positions = static_cast<int>(row.sequence);
  shape.normalization = ir::Normalization::layer_norm;
  shape.activation = ir::Activation::gelu;
  shape.biases = true;
  shape.tied_embeddings = true;
  return shape;
}

models::Job make_job(const A100Row& row, int replicas, ir::ScheduleKind schedule) {
  models::Job job;
  job.global_batch = std::int64_t{replicas} * row.micro_batches() * row.micro_batch;
  job.sequence_length = row.sequence;
  job.dtype = ir::Dtype::fp16;
  job.state_bytes.gradient = row.software.gradient_bytes;
  job.allowed.recompute = {row.recompute};
  job.allowed.sequence_parallel = row.sequence_parallel;
  job.allowed.max_micro_batch_size = row.micro_batch;
  job.allowed.schedules = {schedule};
  return job;
}

ir::Pipeline make_pipeline(const A100Row& row, int replica, int replicas) {
  ir::Pipeline pipeline;
  pipeline.micro_batches = row.micro_batches();
  pipeline.micro_batch_size = row.micro_batch;
  const int chunks = row.virtual_stages;
  const int layers = row.layers / (row.pp * chunks);
  for (int stage = 0; stage < row.pp; ++stage) {
    ir::Group group;
    const int first = (stage * replicas + replica) * row.tp;
    for (int i = 0; i < row.tp; ++i) group.devices.push_back({first + i});
    group.tensor_parallel = row.tp;
    if (row.sequence_parallel) group.sequence = ir::SequenceParallelism::megatron;
    group.samples = row.micro_batch;
    ir::Stage out;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int place = chunk * row.pp + stage;  // along the model
      ir::Segment segment;
      segment.first_block = {place == 0 ? 0 : place * layers + 1};
      segment.last_block = {(place + 1) * layers + (place + 1 == row.pp * chunks ? 1 : 0)};
      segment.virtual_stage = chunk;
      segment.groups = {group};
      segment.recompute = row.recompute;
      out.segments.push_back(std::move(segment));
    }
    pipeline.stages.push_back(std::move(out));
  }
  return pipeline;
}

}  // namespace

int folded_replicas(const A100Row& row) {
  const int per_node = std::max(1, kA100GpusPerNode / row.tp);
  return row.dp % per_node == 0 ? std::min(row.dp, 2 * per_node) : row.dp;
}

A100Case make_case(const A100Row& row, const A100Parameters& parameters, bool folded,
                   const models::Library& library) {
  ORRERY_CHECK(row.layers % (row.pp * row.virtual_stages) == 0, "{}: {} layers over {} stages x {}",
               row.id, row.layers, row.pp, row.virtual_stages);
  A100Case made;
  made.replicas = folded ? folded_replicas(row) : row.dp;
  const int gpus = row.tp * row.pp * made.replicas;
  made.cluster =
      make_cluster(row, (gpus + kA100GpusPerNode - 1) / kA100GpusPerNode, parameters, library);
  made.workload = models::build_workload(shape_of(row), row.sequence, ir::Dtype::fp16);
  made.plan.schedule = row.virtual_stages > 1 ? ir::ScheduleKind::interleaved_one_f_one_b
                                              : ir::ScheduleKind::one_f_one_b;
  made.plan.virtual_stages = row.virtual_stages;
  made.plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  made.plan.communication.gradient_overlap = row.software.overlapped_gradients;
  if (row.software.overlapped_gradients) made.plan.communication.bucket = 25_MiB;
  for (int r = 0; r < made.replicas; ++r) {
    made.plan.pipelines.push_back(make_pipeline(row, r, made.replicas));
  }
  made.job = make_job(row, made.replicas, made.plan.schedule);
  return made;
}

ir::Program make_program(const A100Row& row, const A100Case& made,
                         const models::Topology& topology) {
  ir::Program program = models::lower(made.plan, made.cluster, made.workload, made.job, {});
  if (made.replicas < row.dp) {
    lengthen_rings(program, static_cast<double>(row.dp) / made.replicas);
  }
  thin_transfers(program, made.cluster, topology);
  return program;
}

void thin_transfers(ir::Program& program, const models::Cluster& cluster,
                    const models::Topology& topology) {
  for (std::vector<ir::Transfer>& set : program.transfer_sets) {
    if (set.size() < 2) continue;
    const ir::Transfer first = set.front();
    const auto node = [&](DeviceId device) { return cluster.device(device).node; };
    const bool alike = std::all_of(set.begin(), set.end(), [&](const ir::Transfer& one) {
      return one.bytes == first.bytes && node(one.source) == node(first.source) &&
             node(one.destination) == node(first.destination);
    });
    if (!alike) continue;
    const bool inside = node(first.source) == node(first.destination);
    std::erase_if(set, [&](const ir::Transfer& one) {
      return inside ? one.source != first.source
                    : topology.nic_of(one.source) != topology.nic_of(first.source);
    });
  }
}

void lengthen_rings(ir::Program& program, double factor) {
  for (ir::CollectiveShape& shape : program.collective_shapes) {
    if (shape.purpose != ir::Purpose::data_parallel) continue;
    for (ir::CollectiveShape::Part& part : shape.parts) {
      const auto members = static_cast<double>(program.group(part.group).devices.size());
      if (members < 2) continue;
      const double all = members * factor;
      part.bytes *= (all - 1) / all / ((members - 1) / members);
    }
  }
}

}  // namespace orrery::experiments
