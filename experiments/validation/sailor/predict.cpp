#include "experiments/validation/sailor/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "calibration/importers/sailor.h"
#include "experiments/validation/sailor/deepspeed.h"
#include "models/check/validate.h"
#include "models/cost/pricer.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "sim/flow/fork.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {
namespace {

using calibration::SailorBandwidth;
using calibration::SailorLayerMemory;

/// Types of models/library that fill in bandwidth and peak. The data's RTX-2080 has 11 GiB, which
/// is the Ti.
constexpr std::pair<const char*, const char*> kBaseTypes[] = {{"GH-96", "GH200-96GB"},
                                                              {"RTX-3090", "RTX3090-24GB"},
                                                              {"RTX-2080", "RTX2080Ti-11GB"},
                                                              {"Titan-RTX", "TitanRTX-24GB"}};

models::GpuType gpu_type(const std::string& name, const SailorData& data,
                         const models::Library& library) {
  for (const auto& [own, base] : kBaseTypes) {
    if (name != own) continue;
    const auto found = library.gpus.find(base);
    if (found == library.gpus.end()) break;
    models::GpuType type = found->second;
    type.name = name;
    type.memory = data.nodes.at(name).memory;
    return type;
  }
  throw std::runtime_error(fmt::format("no GPU type of the library stands for '{}'", name));
}

/// The measurement between equal GPU types with this number of pairs.
const SailorBandwidth& bandwidth_row(const SailorData& data, bool inter_node,
                                     const std::string& gpu, int pairs) {
  for (const SailorBandwidth& row : data.tables.bandwidths) {
    if (row.inter_node == inter_node && row.sender_gpu == gpu && row.receiver_gpu == gpu &&
        row.sender_pairs == pairs && row.receiver_pairs == pairs) {
      return row;
    }
  }
  throw std::runtime_error(fmt::format("network_bandwidth.csv has no {} row of {} with {} pairs",
                                       inter_node ? "inter_node" : "intra_node", gpu, pairs));
}

/// Names the narrowest link; its times come from the profile.
std::string add_link(models::Cluster& cluster, std::string name, BytesPerSecond bandwidth) {
  models::LinkClass link;
  link.name = name;
  link.bandwidth = bandwidth;
  link.source = "network_bandwidth.csv";
  cluster.links.emplace(name, std::move(link));
  return name;
}

models::Node make_node(models::Cluster& cluster, const SailorReplica& replica, bool nic_for_each,
                       const SailorData& data, int type) {
  const int pairs = std::max(1, replica.tensor_parallel / 2);
  const BytesPerSecond inside = bandwidth_row(data, false, replica.gpu, pairs).most_measured;
  const BytesPerSecond between = bandwidth_row(data, true, replica.gpu, 1).most_measured;
  models::Node node;
  node.name = fmt::format("{}-{}", replica.gpu, cluster.nodes.size());
  const int gpus = data.nodes.at(replica.gpu).gpus;
  node.gpu_types.assign(static_cast<std::size_t>(gpus), type);
  models::LinkDomain domain;
  for (int i = 0; i < gpus; ++i) domain.members.push_back(i);
  domain.link = add_link(cluster, calibration::sailor_gpu_link(replica.gpu, pairs), inside / pairs);
  node.domains.push_back(std::move(domain));
  const std::string nic = add_link(cluster, calibration::sailor_node_link(replica.gpu), between);
  for (int i = 0; i < (nic_for_each ? gpus : 1); ++i) {
    node.nics.push_back({nic, nic_for_each ? std::vector<int>{i} : std::vector<int>{}});
  }
  return node;
}

ir::ModelShape model_shape(const std::string& name, const SailorModel& model, int tensor_parallel,
                           bool tied) {
  ir::ModelShape shape;
  shape.name = name;
  shape.layers = model.layers;
  shape.hidden = model.hidden;
  shape.heads = shape.kv_heads = model.heads;
  shape.head_dim = model.head_dim;
  shape.ffn = model.ffn;
  shape.vocabulary = padded_vocabulary(model, tensor_parallel);
  shape.positions = model.positions;
  shape.normalization = ir::Normalization::layer_norm;
  shape.activation = ir::Activation::gelu;
  shape.biases = true;
  shape.tied_embeddings = tied;
  return shape;
}

/// fp32 logits of one sequence.
Bytes logits_of(const models::Workload& workload) {
  return Bytes{static_cast<double>(workload.sequence_length) * workload.shape.vocabulary *
               ir::size_of(workload.dtype).value};
}

/// The head's product with the vocabulary at the rate at which the same profile runs a transformer
/// layer; absent where it has no layer.
std::optional<Seconds> head_product(const SailorData& data, const ir::Profile& profile,
                                    const ir::BlockTime& head) {
  const ir::ModelShape shape =
      model_shape(head.model, data.models.at(head.model), head.tensor_parallel, false);
  const models::Workload workload =
      models::build_workload(shape, head.sequence_length, ir::Dtype::fp32);
  const double ratio = workload.blocks.back().forward_flops / workload.blocks[1].forward_flops;
  for (const ir::BlockTime& layer : profile.block_times) {
    if (layer.block == ir::BlockKind::transformer && layer.model == head.model &&
        layer.gpu == head.gpu && layer.pass == head.pass &&
        layer.tensor_parallel == head.tensor_parallel &&
        layer.micro_batch_size == head.micro_batch_size) {
      return ratio * layer.time;
    }
  }
  return std::nullopt;
}

/// The numbers of a prediction, in a fixed order, for the pipe to the parent.
std::vector<double*> numbers_of(SailorPrediction& prediction) {
  models::Breakdown& parts = prediction.breakdown;
  return {&prediction.iteration.value, &prediction.iteration_overlapped.value,
          &prediction.held.value,      &prediction.slowest_compute.value,
          &parts.compute.value,        &parts.tensor_parallel.value,
          &parts.pipeline.value,       &parts.data_parallel.value,
          &parts.optimizer.value,      &parts.bubble.value};
}

/// Both programs have the same ops and thus the same prices.
std::string simulate(const ir::Program& program, const ir::Program& overlapped,
                     const models::Cluster& cluster, const models::ProgramPrices& prices,
                     const ir::Profile& profile) {
  const models::Topology topology(cluster, profile);
  sim::IterationSimulator simulator(cluster, topology, false);
  sim::IterationOptions options;
  options.record_spans = options.record_memory = options.record_links = false;
  const sim::IterationResult result = simulator.run(program, prices, options);
  SailorPrediction prediction;
  prediction.iteration = result.iteration_time;
  prediction.iteration_overlapped = simulator.run(overlapped, prices, options).iteration_time;
  prediction.breakdown = result.breakdown;
  for (const Bytes peak : result.peak_memory) prediction.held = std::max(prediction.held, peak);
  for (const auto& rank : result.ranks) {
    prediction.slowest_compute = std::max(prediction.slowest_compute, to_seconds(rank.compute));
  }
  std::string bytes;
  for (const double* number : numbers_of(prediction)) {
    bytes.append(reinterpret_cast<const char*>(number), sizeof *number);
  }
  return bytes;
}

}  // namespace

bool head_is_profiled(const SailorData& data, const std::string& model, int tensor_parallel) {
  const SailorModel& shape = data.models.at(model);
  const double matrix = static_cast<double>(padded_vocabulary(shape, tensor_parallel)) *
                        shape.hidden / tensor_parallel;
  return layer_memory(data, model, tensor_parallel, shape.layers + 1).parameters >= matrix;
}

ir::Profile sailor_profile(const SailorData& data, const std::string& folder, bool add_heads) {
  config::Diagnostics diagnostics;
  ir::Profile profile = calibration::import_sailor_profile(folder, {}, diagnostics);
  diagnostics.raise();
  if (!add_heads) return profile;
  for (ir::BlockTime& head : profile.block_times) {
    if (head.block != ir::BlockKind::head ||
        head_is_profiled(data, head.model, head.tensor_parallel)) {
      continue;
    }
    const auto product = head_product(data, profile, head);
    if (!product) continue;
    head.time += *product;
    head.provenance.source += "; product with the vocabulary at the rate of a layer";
  }
  return profile;
}

std::vector<HeadCheck> check_heads(const SailorData& data, const std::string& folder) {
  const ir::Profile profile = sailor_profile(data, folder, false);
  std::vector<HeadCheck> checks;
  for (const ir::BlockTime& head : profile.block_times) {
    if (head.block != ir::BlockKind::head ||
        !head_is_profiled(data, head.model, head.tensor_parallel)) {
      continue;
    }
    const auto product = head_product(data, profile, head);
    if (!product) continue;
    checks.push_back({head.gpu, head.model, head.pass, head.tensor_parallel, head.micro_batch_size,
                      *product / head.time});
  }
  return checks;
}

models::Cluster sailor_cluster(const SailorPlan& plan, const SailorData& data,
                               const models::Library& library) {
  models::Cluster cluster;
  cluster.name = plan.cluster;
  std::map<std::string, int> types;
  for (const SailorStage& stage : plan.stages) {
    for (const SailorReplica& replica : stage.replicas) {
      const auto [type, is_new] =
          types.try_emplace(replica.gpu, static_cast<int>(cluster.gpu_types.size()));
      if (is_new) cluster.gpu_types.push_back(gpu_type(replica.gpu, data, library));
      cluster.nodes.push_back(
          make_node(cluster, replica, plan.cluster == "gh200", data, type->second));
    }
  }
  models::seal(cluster);
  return cluster;
}

models::Workload sailor_workload(const SailorPlan& plan, const SailorData& data) {
  const SailorModel& model = data.models.at(plan.model);
  const int degree = plan.tensor_parallel();
  const bool profiled = head_is_profiled(data, plan.model, degree);
  models::Workload workload = models::build_workload(
      model_shape(plan.model, model, degree, !profiled), model.sequence, ir::Dtype::fp32);
  for (int layer = 0; layer < workload.size(); ++layer) {
    models::Block& block = workload.blocks[static_cast<std::size_t>(layer)];
    const SailorLayerMemory& memory = layer_memory(data, plan.model, degree, layer);
    block.kept_split = block.attention_kept = {};
    block.kept_replicated = memory.saved_activations;
  }
  models::Block& head = workload.blocks.back();
  head.logits = logits_of(workload);
  if (!profiled) head.kept_split = 2 * logits_of(workload);
  return workload;
}

models::Job sailor_job(const SailorPlan& plan, const SailorData& data) {
  models::Job job;
  job.global_batch = plan.global_batch;
  job.sequence_length = data.models.at(plan.model).sequence;
  job.dtype = ir::Dtype::fp32;
  job.state_bytes = {.weight = 4, .gradient = 4, .master = 0, .moments = 8};
  job.optimizer = ir::Optimizer::adam;
  job.allowed.recompute = {ir::Recompute::none};
  job.allowed.max_micro_batch_size = plan.micro_batch;
  return job;
}

ir::Plan sailor_plan(const SailorPlan& plan, const models::Cluster& cluster,
                     const models::Workload& workload) {
  ir::Plan out;
  out.planner = "published";
  out.schedule = ir::ScheduleKind::one_f_one_b;
  out.communication.activation_transfer = ir::ActivationTransfer::sliced;
  out.cluster_hash = cluster.hash;
  out.workload_hash = workload.hash;
  for (int replica = 0; replica < plan.data_parallel; ++replica) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = plan.micro_batches;
    pipeline.micro_batch_size = plan.micro_batch;
    for (std::size_t s = 0; s < plan.stages.size(); ++s) {
      const NodeId node{static_cast<int>(s) * plan.data_parallel + replica};
      ir::Group group;
      group.tensor_parallel = plan.tensor_parallel();
      group.devices = cluster.devices_of(node);
      group.devices.resize(static_cast<std::size_t>(group.tensor_parallel));
      group.samples = plan.micro_batch;
      ir::Segment segment;
      segment.first_block = {plan.stages[s].first_layer};
      segment.last_block = {plan.stages[s].last_layer};
      segment.groups.push_back(std::move(group));
      pipeline.stages.push_back({{std::move(segment)}});
    }
    out.pipelines.push_back(std::move(pipeline));
  }
  return out;
}

SailorPrediction predict_sailor(const SailorPlan& plan, const SailorData& data,
                                const ir::Profile& profile, const models::Library& library) {
  const models::Cluster cluster = sailor_cluster(plan, data, library);
  const models::Workload workload = sailor_workload(plan, data);
  const models::Job job = sailor_job(plan, data);
  const ir::Plan own = sailor_plan(plan, cluster, workload);
  const auto defects = models::validate(own, cluster, workload, job);
  if (!defects.empty()) {
    throw std::runtime_error(
        fmt::format("{}: {}: {}", plan.id, defects.front().path, defects.front().what));
  }
  const ir::Program lowered = models::lower(own, cluster, workload, job, {});
  const ir::Program program = as_deepspeed(lowered);
  const ir::Program overlapped = as_deepspeed(lowered, false);
  const models::Pricer pricer(cluster, workload, job, profile);
  const models::ProgramPrices prices(program, pricer);
  const sim::ForkResult delivered =
      sim::run_forked([&] { return simulate(program, overlapped, cluster, prices, profile); });
  if (const auto* failure = std::get_if<sim::ChildFailure>(&delivered)) {
    throw std::runtime_error(fmt::format("{}: {}", plan.id, failure->message));
  }
  const std::string& bytes = std::get<std::string>(delivered);
  SailorPrediction prediction;
  const std::vector<double*> numbers = numbers_of(prediction);
  if (bytes.size() != numbers.size() * sizeof(double)) {
    throw std::runtime_error(
        fmt::format("{}: {} bytes from the simulation", plan.id, bytes.size()));
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::memcpy(numbers[i], bytes.data() + i * sizeof(double), sizeof(double));
  }
  prediction.used = pricer.used_entries();
  return prediction;
}

}  // namespace orrery::experiments
