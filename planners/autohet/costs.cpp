#include "planners/autohet/costs.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "models/base/ids.h"
#include "models/cost/collective.h"
#include "models/cost/device_share.h"
#include "models/cost/memory.h"
#include "models/schedule/closed_form.h"
#include "planners/kit/integers.h"
#include "planners/kit/partition_dp.h"

namespace orrery::planners {
namespace {

/// Devices of each node, equal GPU types and members of a link domain next to each other.
std::map<NodeId, std::vector<DeviceId>> devices_by_node(const PlannerInput& input) {
  std::map<NodeId, std::vector<DeviceId>> nodes;
  for (const DeviceId device : input.devices) {
    nodes[input.cluster.device(device).node].push_back(device);
  }
  for (auto& [node, devices] : nodes) {
    const auto rank = [&](DeviceId id) {
      const models::Device& device = input.cluster.device(id);
      const auto& domains = input.cluster.node(device.node).domains;
      const auto domain = std::find_if(domains.begin(), domains.end(), [&](const auto& d) {
        return std::find(d.members.begin(), d.members.end(), device.position) != d.members.end();
      });
      return std::tuple(device.gpu_type, domain - domains.begin(), id);
    };
    std::sort(devices.begin(), devices.end(),
              [&](DeviceId a, DeviceId b) { return rank(a) < rank(b); });
  }
  return nodes;
}

}  // namespace

std::optional<std::vector<AutohetUnit>> autohet_units(const PlannerInput& input, int tensor,
                                                      AutohetSettings::TensorLinks links) {
  std::vector<AutohetUnit> units;
  for (const auto& [node, devices] : devices_by_node(input)) {
    if (devices.size() % as_size(tensor) != 0) return std::nullopt;
    for (auto at = devices.begin(); at != devices.end(); at += tensor) {
      AutohetUnit unit{{at, at + tensor}, node, 0};
      for (const DeviceId a : unit.devices) {
        if (input.cluster.gpu(a).vendor != input.cluster.gpu(unit.devices.front()).vendor) {
          return std::nullopt;
        }
        for (const DeviceId b : unit.devices) {
          if (a != b && links == AutohetSettings::TensorLinks::nvlink &&
              input.topology.path(a, b).kind != models::PathClass::nvlink) {
            return std::nullopt;
          }
        }
      }
      units.push_back(std::move(unit));
    }
  }
  std::sort(units.begin(), units.end(), [](const AutohetUnit& a, const AutohetUnit& b) {
    return a.devices.front() < b.devices.front();
  });
  return units;
}

AutohetCosts::AutohetCosts(const PlannerInput& input, const AutohetSettings& settings,
                           const AutohetRound& round, const StageCosts& costs,
                           std::vector<AutohetUnit> units)
    : input_(input),
      settings_(settings),
      round_(round),
      costs_(costs),
      units_(std::move(units)),
      layers_(costs.layers()) {
  struct Found {
    double power;
    std::vector<int> types;
    Times times;
    auto operator<=>(const Found&) const = default;
  };
  std::map<Found, std::vector<int>> found;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    std::vector<int> types;
    for (const DeviceId device : units_[u].devices) {
      types.push_back(input.cluster.device(device).gpu_type);
    }
    std::sort(types.begin(), types.end());
    const Times unit_times = times(units_[u].devices);
    found[{power(units_[u].devices, unit_times), types, unit_times}].push_back(static_cast<int>(u));
  }
  for (const auto& [key, members] : found) {
    Kind kind{static_cast<int>(members.size()), key.power, Bytes{kNever}, members.front()};
    for (const int type : key.types) kind.capacity = std::min(kind.capacity, costs.capacity(type));
    for (const int u : members) {
      units_[u].kind = static_cast<int>(kinds_.size());
    }
    kinds_.push_back(kind);
    times_.push_back(key.times);
  }
  device_order_.resize(kinds_.size());
  std::iota(device_order_.begin(), device_order_.end(), 0);
  std::sort(device_order_.begin(), device_order_.end(),
            [&](int a, int b) { return kinds_[a].first_unit < kinds_[b].first_unit; });
  std::set<Bytes> cuts;
  for (int layer = 1; layer < layers_; ++layer) cuts.insert(costs.activation(layer));
  cuts_.assign(cuts.begin(), cuts.end());
}

/// A range of no layers at either end is the embedding, or the head, alone.
AutohetCosts::Times AutohetCosts::times(const std::vector<DeviceId>& devices) const {
  const auto range = [&](int first, int layers) {
    return costs_.passes(devices, shape(first, layers, 1, 1)).both();
  };
  Times result;
  result.embedding = range(0, 0);
  result.head = range(layers_, 0);
  for (int n = 0; n < layers_; ++n) result.first.push_back(range(0, n) - result.embedding);
  result.first.push_back(range(0, layers_) - result.embedding - result.head);
  return result;
}

double AutohetCosts::power(const std::vector<DeviceId>& devices, const Times& unit_times) const {
  if (settings_.power == AutohetSettings::Power::layer_time) {
    return layers_ / unit_times.first.back().value;
  }
  double least = kNever;
  for (const DeviceId device : devices) {
    least = std::min(least, models::peak_flops(input_.cluster.gpu(device), input_.job.dtype).value);
  }
  return least * static_cast<double>(devices.size());
}

StageShape AutohetCosts::shape(int first, int layers, int in_flight, int replicas) const {
  StageShape result;
  result.first = first;
  result.layers = layers;
  result.tensor_parallel = round_.tensor;
  result.sequence = round_.sequence;
  result.samples = round_.micro_batch_size;
  result.recompute = round_.recompute;
  result.zero_stage = round_.zero;
  result.replicas = replicas;
  result.in_flight = in_flight;
  return result;
}

Seconds AutohetCosts::stage_time(int kind, int first, int layers) const {
  const Times& of = times_[kind];
  Seconds result;
  if (settings_.layer_time == AutohetSettings::LayerTime::sum) {
    result = of.first[first + layers] - of.first[first];
  } else {
    for (int block = 1; block <= layers; block *= 2) {
      if ((layers & block) != 0) result = result + of.first[block];
    }
  }
  if (first == 0) result = result + of.embedding;
  if (first + layers == layers_) result = result + of.head;
  return result;
}

Seconds AutohetCosts::hop(int from_unit, int to_unit, int layer) const {
  const auto [place, added] =
      hops_.try_emplace({from_unit, to_unit, costs_.activation(layer).value});
  if (added) {
    const auto& from = units_[from_unit].devices;
    const auto& to = units_[to_unit].devices;
    place->second = costs_.hop(from, to, layer, round_.micro_batch_size, settings_.transfer) +
                    costs_.hop(to, from, layer, round_.micro_batch_size, settings_.transfer);
  }
  return place->second;
}

Bytes AutohetCosts::unit_memory(int kind) const {
  return static_cast<double>(round_.tensor) * kinds_[kind].capacity;
}

Bytes AutohetCosts::least_group_memory(int replicas) const {
  return static_cast<double>(round_.tensor) * costs_.memory(shape(0, layers_, 1, replicas));
}

int AutohetCosts::unit_layers(int kind, int replicas) const {
  int most = 0;
  for (int first = 0; first < layers_; ++first) {
    most = std::max(most, most_layers(kind, first, 1, replicas));
  }
  return most;
}

std::vector<int> AutohetCosts::stage_kinds(const UnitCounts& group) const {
  std::vector<int> result;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const int kind =
        settings_.mapping == AutohetSettings::Mapping::on ? static_cast<int>(i) : device_order_[i];
    result.insert(result.end(), group[kind], kind);
  }
  return result;
}

int AutohetCosts::most_micro_batches(int replicas) const {
  const std::int64_t total = input_.job.global_batch / round_.micro_batch_size;
  const std::int64_t most = (total + replicas - 1) / replicas;
  return static_cast<int>(std::min<std::int64_t>(most, std::numeric_limits<int>::max()));
}

int AutohetCosts::in_flight(int stages, int stage, int micro_batches) const {
  return models::micro_batches_in_flight(round_.schedule, stages, stage, micro_batches, 1);
}

/// Most layers from `first` that a unit holds, by bisection: memory grows with the range.
int AutohetCosts::most_layers(int kind, int first, int in_flight, int replicas) const {
  const int shards = round_.zero > 0 ? replicas : 1;
  const auto [place, added] = most_layers_.try_emplace({kind, first, in_flight, shards}, 0);
  if (!added) return place->second;
  const Bytes have = kinds_[kind].capacity;
  int fit = 0;
  int too_many = layers_ - first + 1;
  while (fit + 1 < too_many) {
    const int middle = (fit + too_many) / 2;
    const bool ok = costs_.memory(shape(first, middle, in_flight, shards)) <= have;
    (ok ? fit : too_many) = middle;
  }
  return place->second = fit;
}

/// Each stage takes as many layers as it holds and leaves one for each stage after it. What fits in
/// a range fits in its parts, so that this finds a division if there is one.
bool AutohetCosts::fits(const UnitCounts& group, int replicas) const {
  const std::vector<int> kinds = stage_kinds(group);
  const int stages = static_cast<int>(kinds.size());
  if (stages > layers_) return false;
  const int micro_batches = most_micro_batches(replicas);
  if (settings_.load_balance == AutohetSettings::LoadBalance::off) {
    return even_split(kinds, micro_batches, replicas).has_value();
  }
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    const int most = most_layers(kinds[s], first, in_flight(stages, s, micro_batches), replicas);
    const int take = std::min(most, layers_ - first - (stages - 1 - s));
    if (take < 1) return false;
    first += take;
  }
  return first == layers_;
}

/// Within one of each other, the remainder on the last stages.
std::optional<std::vector<int>> AutohetCosts::even_split(const std::vector<int>& kinds,
                                                         int micro_batches, int replicas) const {
  const int stages = static_cast<int>(kinds.size());
  if (stages > layers_) return std::nullopt;
  std::vector<int> result;
  int first = 0;
  for (int s = 0; s < stages; ++s) {
    const int layers = layers_ / stages + (stages - s <= layers_ % stages ? 1 : 0);
    if (most_layers(kinds[s], first, in_flight(stages, s, micro_batches), replicas) < layers) {
      return std::nullopt;
    }
    result.push_back(layers);
    first += layers;
  }
  return result;
}

std::optional<std::vector<int>> AutohetCosts::partition(const std::vector<int>& units,
                                                        int micro_batches, int replicas) const {
  std::vector<int> kinds;
  for (const int unit : units) kinds.push_back(units_[unit].kind);
  if (static_cast<int>(units.size()) > layers_) return std::nullopt;
  if (settings_.load_balance == AutohetSettings::LoadBalance::off) {
    return even_split(kinds, micro_batches, replicas);
  }
  std::vector<Seconds> hops;
  for (std::size_t s = 0; s + 1 < units.size(); ++s) {
    for (const Bytes cut : cuts_) {
      int layer = 1;
      while (costs_.activation(layer) != cut) ++layer;
      hops.push_back(hop(units[s], units[s + 1], layer));
    }
  }
  const auto [place, added] =
      partitions_.try_emplace({kinds, hops, micro_batches, round_.zero > 0 ? replicas : 1});
  if (added) place->second = best_split(units, micro_batches, replicas);
  return place->second;
}

/// bottleneck: least longest stage, then least sum; pipeline: least time of Eq. 1.
std::optional<std::vector<int>> AutohetCosts::best_split(const std::vector<int>& units,
                                                         int micro_batches, int replicas) const {
  const int stages = static_cast<int>(units.size());
  // By stage: what it can hold from each layer on, and the transfer after each layer.
  struct Stage {
    int kind = 0;
    std::vector<int> most;
    std::vector<Seconds> hops;
  };
  std::vector<Stage> tables(units.size());
  for (int s = 0; s < stages; ++s) {
    Stage& table = tables[s];
    const int unit = units[s];
    table.kind = units_[unit].kind;
    table.most.resize(layers_);
    const int live = in_flight(stages, s, micro_batches);
    for (int first = s; first <= (s == 0 ? 0 : layers_ - (stages - s)); ++first) {
      table.most[first] = most_layers(table.kind, first, live, replicas);
    }
    if (s + 1 == stages) continue;
    table.hops.resize(layers_);
    for (int layer = s + 1; layer <= layers_ - (stages - 1 - s); ++layer) {
      table.hops[layer] = hop(unit, units[s + 1], layer);
    }
  }
  const auto cost = [&](int s, int first, int last) {
    const Stage& table = tables[s];
    const int layers = last - first + 1;
    if (table.most[first] < layers) return kNever;
    Seconds time = stage_time(table.kind, first, layers);
    if (s + 1 < stages) time = time + table.hops[last + 1];
    return time.value;
  };
  std::optional<ChainSplit> split;
  if (settings_.load_balance == AutohetSettings::LoadBalance::pipeline) {
    split = split_pipeline_time(layers_, stages, micro_batches, cost);
  } else {
    split = split_min_max(layers_, stages, cost);
    if (split) {
      const double most = split->cost;
      split = split_pipeline_time(layers_, stages, 1, [&](int s, int first, int last) {
        const double time = cost(s, first, last);
        return time <= most ? time : kNever;
      });
    }
  }
  if (!split) return std::nullopt;
  std::vector<int> result;
  for (std::size_t s = 0; s + 1 < split->boundaries.size(); ++s) {
    result.push_back(split->boundaries[s + 1] - split->boundaries[s]);
  }
  return result;
}

Seconds AutohetCosts::pipeline(const AutohetPipeline& pipeline) const {
  std::vector<Seconds> stages;
  int first = 0;
  for (std::size_t s = 0; s < pipeline.units.size(); ++s) {
    const int kind = units_[pipeline.units[s]].kind;
    Seconds time = stage_time(kind, first, pipeline.layers[s]);
    first += pipeline.layers[s];
    if (s + 1 < pipeline.units.size()) {
      time = time + hop(pipeline.units[s], pipeline.units[s + 1], first);
    }
    stages.push_back(time);
  }
  return models::pipeline_time(stages, pipeline.micro_batches);
}

/// Over the edges of one ring for each rank of the tensor-parallel groups.
BytesPerSecond AutohetCosts::lowest_bandwidth(
    const std::vector<const AutohetUnit*>& holders) const {
  BytesPerSecond lowest{kNever};
  for (std::size_t rank = 0; rank < as_size(round_.tensor); ++rank) {
    std::vector<DeviceId> members;
    for (const AutohetUnit* unit : holders) members.push_back(unit->devices[rank]);
    const std::vector<DeviceId> ring = models::ring_order(
        members, [&](DeviceId device) { return input_.cluster.device(device).node; });
    for (std::size_t i = 0; i < ring.size(); ++i) {
      lowest = std::min(lowest, costs_.path(ring[i], ring[(i + 1) % ring.size()]).bandwidth);
    }
  }
  return lowest;
}

Seconds AutohetCosts::synchronization(const std::vector<AutohetPipeline>& pipelines) const {
  if (pipelines.size() < 2) return {};
  Bytes most;
  std::set<int> starts;
  for (const AutohetPipeline& pipeline : pipelines) {
    int first = 0;
    for (const int layers : pipeline.layers) {
      most = std::max(most, costs_.gradients(first, layers));
      starts.insert(first);
      first += layers;
    }
  }
  BytesPerSecond lowest{kNever};
  for (const int layer : starts) {
    std::vector<const AutohetUnit*> holders;
    for (const AutohetPipeline& pipeline : pipelines) {
      std::size_t stage = 0;
      for (int end = pipeline.layers[0]; end <= layer; end += pipeline.layers[stage]) ++stage;
      holders.push_back(&units_[pipeline.units[stage]]);
    }
    lowest = std::min(lowest, lowest_bandwidth(holders));
  }
  const auto replicas = static_cast<double>(pipelines.size());
  return 2 * (replicas - 1) / replicas / round_.tensor * most / lowest;
}

}  // namespace orrery::planners
