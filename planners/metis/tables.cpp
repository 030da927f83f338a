#include "planners/metis/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>

#include "models/base/ids.h"
#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/cost/pricer.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {
namespace {

int steps_of(int limit) { return std::bit_width(static_cast<unsigned>(std::max(limit, 1))); }

/// GPU types of the devices in their order.
std::vector<int> types_of(const PlannerInput& input) {
  std::vector<int> types;
  for (const DeviceId device : input.devices) {
    const int type = input.cluster.device(device).gpu_type;
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  }
  return types;
}

/// Powers of two that the model and the job allow as tensor-parallel degree.
std::vector<int> degrees(const PlannerInput& input, int limit) {
  std::vector<int> result;
  for (const int degree : tensor_degrees(input.workload, input.job, limit)) {
    if (is_power_of_two(degree)) result.push_back(degree);
  }
  return result;
}

void finish(MetisEntry& entry) {
  const std::size_t layers = entry.layer_ms.size();
  const auto sums = [&](const std::vector<double>& values) {
    std::vector<double> result((layers + 1) * (layers + 1), 0.0);
    for (std::size_t first = 0; first < values.size(); ++first) {
      double sum = 0;
      for (std::size_t last = first; last < values.size(); ++last) {
        sum += values[last];
        result[first * (layers + 1) + last + 1] = sum;
      }
    }
    return result;
  };
  entry.range_ms = sums(entry.layer_ms);
  entry.range_mb = sums(entry.layer_mb);
  entry.total_ms = entry.range_ms[layers];
  entry.known = true;
}

void set_shape(MetisTables& tables, const PlannerInput& input, int max_tensor, int max_samples) {
  tables.layers = input.workload.size();
  tables.types = static_cast<int>(input.cluster.gpu_types.size());
  tables.tensor_steps = steps_of(max_tensor);
  tables.sample_steps = steps_of(max_samples);
  tables.entries.resize(as_size(tables.types * tables.tensor_steps * tables.sample_steps));
}

void set_demand(MetisTables& tables, const PlannerInput& input) {
  const MetisEntry* entry = tables.find(tables.first_type, 1, 1);
  if (entry == nullptr) {
    tables.problem = fmt::format(
        "the profile has no times of {} at tensor-parallel degree 1 and micro-batch size 1",
        input.cluster.gpu_types[tables.first_type].name);
    return;
  }
  for (const double ms : entry->layer_ms) tables.demand.push_back(ms / entry->total_ms);
  for (MetisEntry& each : tables.entries) {
    if (!each.known) continue;
    each.fastest_layer = each.per_share = kNever;
    for (std::size_t layer = 1; layer + 1 < tables.demand.size(); ++layer) {
      each.fastest_layer = std::min(each.fastest_layer, each.layer_ms[layer]);
      each.per_share = std::min(each.per_share, each.layer_ms[layer] / tables.demand[layer]);
    }
  }
}

/// Prices of the blocks with the all-reduces of a tensor-parallel group inside a node.
class PricedTables {
 public:
  PricedTables(const PlannerInput& input, ir::Recompute recompute)
      : input_(input),
        recompute_(recompute),
        pricer_(input.cluster, input.workload, input.job, input.profile) {}

  MetisTables make() {
    MetisTables tables;
    const std::vector<int> types = types_of(input_);
    int largest = 1;
    for (const int type : types) largest = std::max(largest, static_cast<int>(node(type).size()));
    const std::vector<int> allowed = degrees(input_, largest);
    const int samples = static_cast<int>(floor_power_of_two(std::max<std::int64_t>(
        1,
        std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch))));
    set_shape(tables, input_, allowed.empty() ? 1 : allowed.back(), samples);
    tables.allowed_tensor = allowed;
    tables.first_type = types.empty() ? 0 : types.front();
    for (const int type : types) {
      for (const int degree : allowed) {
        if (degree > static_cast<int>(node(type).size())) continue;
        for (const int size : powers_of_two(samples)) {
          tables.slot(type, degree, size) = entry(type, degree, size);
        }
      }
    }
    double elements = 0;
    for (const models::Block& block : input_.workload.blocks) {
      const auto count = static_cast<double>(models::parameters(block));
      tables.parameter_bytes.push_back(count * input_.job.state_bytes.gradient);
      elements += count;
    }
    for (const int type : types) {
      tables.optimizer_ms =
          std::max(tables.optimizer_ms, pricer_.optimizer(type, elements).value * 1e3);
    }
    tables.note =
        "layer times by the cost model of all planners, none measured by Metis's profiler";
    set_demand(tables, input_);
    return tables;
  }

 private:
  /// Devices of the type in the node that has most of them.
  const std::vector<DeviceId>& node(int type) {
    std::vector<DeviceId>& best = nodes_[type];
    if (!best.empty()) return best;
    std::map<NodeId, std::vector<DeviceId>> by_node;
    for (const DeviceId device : input_.devices) {
      const models::Device& place = input_.cluster.device(device);
      if (place.gpu_type == type) by_node[place.node].push_back(device);
    }
    for (const auto& [id, devices] : by_node) {
      if (devices.size() > best.size()) best = devices;
    }
    return best;
  }

  Seconds all_reduce(int type, int degree, Bytes bytes) {
    if (degree == 1) return {};
    std::vector<DeviceId> group = node(type);
    group.resize(degree);
    return models::collective_time(
        ir::CollectiveKind::all_reduce, models::CollectiveAlgorithm::ring, group, bytes,
        [this](DeviceId a, DeviceId b) { return input_.topology.path(a, b); });
  }

  MetisEntry entry(int type, int degree, int samples) {
    MetisEntry entry;
    models::BlockQuery query;
    query.gpu_type = type;
    query.tensor_parallel = degree;
    query.samples = samples;
    query.recompute = recompute_;
    ir::Group group;
    group.tensor_parallel = degree;
    group.samples = samples;
    for (int b = 0; b < input_.workload.size(); ++b) {
      const models::Block& block = input_.workload.block(BlockId{b});
      query.block = BlockId{b};
      query.pass = ir::Pass::forward;
      Seconds time = pricer_.block(query);
      query.pass = ir::Pass::backward;
      time = time + pricer_.block(query);
      const bool again = recompute_ == ir::Recompute::full && models::is_recomputed(block.kind);
      const Bytes bytes = static_cast<double>(samples) * block.output_bytes;
      time = time + block.tensor_collectives * (again ? 3 : 2) * all_reduce(type, degree, bytes);
      entry.layer_ms.push_back(time.value * 1e3);
      ir::Segment segment;
      segment.first_block = segment.last_block = BlockId{b};
      segment.recompute = recompute_;
      const models::SegmentMemory held =
          models::segment_memory(segment, group, 1, input_.workload, input_.job);
      entry.layer_mb.push_back((held.states() + held.activations_per_micro_batch).value /
                               kMetisMegabyte);
    }
    finish(entry);
    return entry;
  }

  const PlannerInput& input_;
  ir::Recompute recompute_;
  models::Pricer pricer_;
  std::map<int, std::vector<DeviceId>> nodes_;
};

/// The profile of a model with as many layers as the workload has blocks; null if there is none.
const ir::ModelLayers* measured(const PlannerInput& input) {
  for (const ir::ModelLayers& model : input.profile.model_layers) {
    if (static_cast<int>(model.parameter_bytes.size()) == input.workload.size()) return &model;
  }
  return nullptr;
}

MetisTables from_profile(const PlannerInput& input, const ir::ModelLayers& model) {
  MetisTables tables;
  tables.imported = true;
  tables.parameter_bytes = model.parameter_bytes;
  // Two steps of the optimizer, as the public code reads the file.
  tables.optimizer_ms = model.optimizer_ms * 2;
  tables.batch_generator_ms = model.batch_generator_ms;
  tables.note = fmt::format("layer times of '{}', measured by Metis's profiler", model.model);
  int tensor = 1, samples = 1;
  for (const ir::LayerProfile& profile : model.profiles) {
    tensor = std::max(tensor, profile.tensor_parallel);
    samples = std::max(samples, profile.micro_batch_size);
  }
  const std::vector<int> allowed = degrees(input, tensor);
  const int most = std::min(samples, input.job.allowed.max_micro_batch_size);
  set_shape(tables, input, allowed.empty() ? 1 : allowed.back(), most);
  tables.allowed_tensor = allowed;
  bool any = false;
  for (const ir::LayerProfile& profile : model.profiles) {
    const auto& types = input.cluster.gpu_types;
    const auto type = std::find_if(types.begin(), types.end(), [&](const models::GpuType& gpu) {
      return gpu.name == profile.gpu;
    });
    const bool usable =
        type != types.end() && is_power_of_two(profile.micro_batch_size) &&
        profile.micro_batch_size <= most &&
        std::find(allowed.begin(), allowed.end(), profile.tensor_parallel) != allowed.end() &&
        static_cast<int>(profile.layer_ms.size()) == tables.layers &&
        static_cast<int>(profile.layer_mb.size()) == tables.layers;
    if (!usable) continue;
    const int index = static_cast<int>(type - types.begin());
    if (!any) tables.first_type = index;
    any = true;
    MetisEntry& entry = tables.slot(index, profile.tensor_parallel, profile.micro_batch_size);
    entry.layer_ms = profile.layer_ms;
    entry.layer_mb = profile.layer_mb;
    finish(entry);
    entry.sync_ms = profile.forward_backward_ms - entry.total_ms;
  }
  set_demand(tables, input);
  for (const int type : types_of(input)) {
    if (!tables.problem.empty() || tables.find(type, 1, 1) != nullptr) continue;
    tables.problem =
        fmt::format("the profile has no times of {} at degree 1 and micro-batch size 1",
                    input.cluster.gpu_types[type].name);
  }
  return tables;
}

}  // namespace

const MetisEntry* MetisTables::find(int type, int tensor, int samples) const {
  if (tensor > max_tensor() || samples > max_samples()) return nullptr;
  const int step =
      (type * tensor_steps + std::countr_zero(static_cast<unsigned>(tensor))) * sample_steps +
      std::countr_zero(static_cast<unsigned>(samples));
  const MetisEntry& entry = entries[step];
  return entry.known ? &entry : nullptr;
}

MetisEntry& MetisTables::slot(int type, int tensor, int samples) {
  const int step =
      (type * tensor_steps + std::countr_zero(static_cast<unsigned>(tensor))) * sample_steps +
      std::countr_zero(static_cast<unsigned>(samples));
  return entries[step];
}

MetisTables make_metis_tables(const PlannerInput& input, ir::Recompute recompute) {
  if (const ir::ModelLayers* model = measured(input)) return from_profile(input, *model);
  MetisTables tables = PricedTables(input, recompute).make();
  for (const ir::ModelLayers& model : input.profile.model_layers) {
    tables.note +=
        fmt::format("; the profile of '{}' is not used: it has {} layers, {} has {}", model.model,
                    model.parameter_bytes.size(), input.workload.name, input.workload.size());
  }
  return tables;
}

std::vector<int> binary_parts(int samples) {
  std::vector<int> parts;
  for (int part = 1 << 30; part > 0; part /= 2) {
    if ((samples & part) != 0) parts.push_back(part);
  }
  return parts;
}

}  // namespace orrery::planners
