#include "planners/recovery/torchft/replicas.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "planners/recovery/kit/replan.h"
#include "planners/recovery/kit/stage_cut.h"

namespace orrery::planners {
namespace {

/// What decides how fast a pipeline is, in so far as devices of one type are equal.
using PipelineKind = std::vector<std::array<int, 5>>;

PipelineKind kind_of(const ir::Pipeline& pipeline, const models::Cluster& cluster) {
  PipelineKind kind;
  int number = 0;
  for (const ir::Stage& stage : pipeline.stages) {
    for (const ir::Segment& segment : stage.segments) {
      for (const ir::Group& group : segment.groups) {
        kind.push_back({number, segment.first_block.value, segment.last_block.value,
                        static_cast<int>(group.devices.size()),
                        cluster.device(group.devices.front()).gpu_type});
      }
    }
    ++number;
  }
  return kind;
}

/// Passes of a micro-batch through a stage, one after the other, until a pipeline of the kind has
/// ended.
using KindSlots = std::map<PipelineKind, double>;

/// Means, as pipelines of one kind are equal, whichever of them has one micro-batch more.
KindSlots slots_of(const std::vector<ir::Pipeline>& pipelines, const models::Cluster& cluster) {
  struct Sum {
    double slots = 0;
    int count = 0;
  };
  std::map<PipelineKind, Sum> kinds;
  for (const ir::Pipeline& pipeline : pipelines) {
    Sum& sum = kinds[kind_of(pipeline, cluster)];
    sum.slots += pipeline.micro_batches + static_cast<double>(pipeline.stages.size()) - 1;
    ++sum.count;
  }
  KindSlots slots;
  for (const auto& [kind, sum] : kinds) slots[kind] = sum.slots / sum.count;
  return slots;
}

/// Adds the kinds that only `other` has, at the ratio of the kinds that both have. False: none are
/// shared.
bool add_slots(KindSlots& slots, const KindSlots& other) {
  double ratio = 0;
  int shared = 0;
  for (const auto& [kind, value] : other) {
    const auto own = slots.find(kind);
    if (own == slots.end()) continue;
    ratio += own->second / value;
    ++shared;
  }
  if (shared == 0) return false;
  for (const auto& [kind, value] : other) slots.try_emplace(kind, value * ratio / shared);
  return true;
}

/// Micro-batches for the whole batch, as though all pipelines ended together after these slots.
void share_out(std::vector<ir::Pipeline>& pipelines, const KindSlots& slots,
               const models::Cluster& cluster, int batch) {
  std::vector<PipelineRate> rates;
  for (const ir::Pipeline& pipeline : pipelines) {
    const double count = slots.at(kind_of(pipeline, cluster));
    rates.push_back({static_cast<double>(pipeline.stages.size()) / count, 1 / count});
  }
  const std::vector<int> shares = split_batch(rates, batch);
  for (std::size_t p = 0; p < shares.size(); ++p) pipelines[p].micro_batches = shares[p];
}

std::vector<DeviceId> devices_of_pipeline(const ir::Pipeline& pipeline) {
  std::vector<DeviceId> devices;
  for (const ir::Stage& stage : pipeline.stages) {
    const std::vector<DeviceId> of = ir::devices_of(stage);
    devices.insert(devices.end(), of.begin(), of.end());
  }
  return devices;
}

/// The pipelines that `home` has too come first, in its order; with its micro-batches if these are
/// all that either has. Returns whether they are.
bool order_as(std::vector<ir::Pipeline>& pipelines, const std::vector<ir::Pipeline>& home) {
  std::size_t placed = 0;
  for (const ir::Pipeline& own : home) {
    const auto at =
        std::find_if(pipelines.begin() + static_cast<std::ptrdiff_t>(placed), pipelines.end(),
                     [&](const ir::Pipeline& p) { return p.stages == own.stages; });
    if (at == pipelines.end()) continue;
    std::rotate(pipelines.begin() + static_cast<std::ptrdiff_t>(placed), at, at + 1);
    ++placed;
  }
  if (placed != pipelines.size() || placed != home.size()) return false;
  pipelines = home;
  return true;
}

/// Devices for a group like `like`; empty: no node has enough of the type.
std::vector<DeviceId> devices_like(const ir::Group& like, const models::Cluster& cluster,
                                   const std::set<DeviceId>& unused) {
  const int type = cluster.device(like.devices.front()).gpu_type;
  std::vector<DeviceId> found;
  for (const DeviceId device : unused) {
    if (cluster.device(device).gpu_type != type) continue;
    if (!found.empty() && cluster.device(found.back()).node != cluster.device(device).node) {
      found.clear();
    }
    found.push_back(device);
    if (found.size() == like.devices.size()) return found;
  }
  return {};
}

std::optional<ir::Pipeline> copy_on(const ir::Pipeline& like, const models::Cluster& cluster,
                                    std::set<DeviceId>& unused) {
  ir::Pipeline result = like;
  std::set<DeviceId> left = unused;
  for (ir::Stage& stage : result.stages) {
    std::vector<std::pair<DeviceId, DeviceId>> renamed;
    for (const ir::Group& group : stage.segments.front().groups) {
      const std::vector<DeviceId> devices = devices_like(group, cluster, left);
      if (devices.empty()) return std::nullopt;
      for (std::size_t i = 0; i < devices.size(); ++i) {
        renamed.emplace_back(group.devices[i], devices[i]);
        left.erase(devices[i]);
      }
    }
    for (ir::Segment& segment : stage.segments) {
      for (ir::Group& group : segment.groups) {
        for (DeviceId& device : group.devices) {
          const auto to = std::find_if(renamed.begin(), renamed.end(),
                                       [&](const auto& pair) { return pair.first == device; });
          device = to->second;
        }
      }
    }
  }
  unused = std::move(left);
  return result;
}

}  // namespace

std::variant<ir::Plan, models::Infeasible> surviving_pipelines(const ir::Plan& plan,
                                                               const models::Cluster& cluster,
                                                               const std::vector<DeviceId>& live) {
  ir::Plan result = plan;
  result.predicted.reset();
  std::erase_if(result.pipelines, [&](const ir::Pipeline& pipeline) {
    return !all_live(devices_of_pipeline(pipeline), live);
  });
  if (result.pipelines.empty()) return models::Infeasible{"replicas", "no whole pipeline lives"};
  for (ir::Pipeline& pipeline : result.pipelines) pipeline.reroutes.clear();
  const int size = result.pipelines.front().micro_batch_size;
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    if (pipeline.micro_batch_size == size) continue;
    return models::Infeasible{"micro-batch size", "pipelines have micro-batches of several sizes"};
  }
  share_out(result.pipelines, slots_of(result.pipelines, cluster), cluster,
            static_cast<int>(ir::global_batch(plan) / size));
  return result;
}

int add_pipelines(ir::Plan& plan, const ir::Plan* home, const models::Cluster& cluster,
                  const std::vector<DeviceId>& live) {
  const std::vector<DeviceId> used = ir::devices_of(plan);
  std::set<DeviceId> unused;
  std::set_difference(live.begin(), live.end(), used.begin(), used.end(),
                      std::inserter(unused, unused.end()));
  const int size = plan.pipelines.front().micro_batch_size;
  const auto batch = static_cast<int>(ir::global_batch(plan) / size);
  KindSlots slots = slots_of(plan.pipelines, cluster);
  std::vector<ir::Pipeline> known;
  if (home != nullptr &&
      std::all_of(home->pipelines.begin(), home->pipelines.end(),
                  [&](const ir::Pipeline& p) { return p.micro_batch_size == size; }) &&
      add_slots(slots, slots_of(home->pipelines, cluster))) {
    known = home->pipelines;
    for (ir::Pipeline& pipeline : known) pipeline.reroutes.clear();
  }
  std::vector<ir::Pipeline> shapes;
  std::set<PipelineKind> kinds;
  for (const auto* pipelines : {&plan.pipelines, &known}) {
    for (const ir::Pipeline& pipeline : *pipelines) {
      if (kinds.insert(kind_of(pipeline, cluster)).second) shapes.push_back(pipeline);
    }
  }
  const std::size_t before = plan.pipelines.size();
  const auto has_room = [&] { return static_cast<int>(plan.pipelines.size()) < batch; };
  for (const ir::Pipeline& pipeline : known) {
    const std::vector<DeviceId> own = devices_of_pipeline(pipeline);
    const bool free = std::all_of(own.begin(), own.end(),
                                  [&](DeviceId device) { return unused.contains(device); });
    if (!free || !has_room()) continue;
    for (const DeviceId device : own) unused.erase(device);
    plan.pipelines.push_back(pipeline);
  }
  for (const ir::Pipeline& shape : shapes) {
    while (has_room()) {
      std::optional<ir::Pipeline> copy = copy_on(shape, cluster, unused);
      if (!copy) break;
      plan.pipelines.push_back(std::move(*copy));
    }
  }
  const auto added = static_cast<int>(plan.pipelines.size() - before);
  if (added == 0) return 0;
  plan.predicted.reset();
  if (!order_as(plan.pipelines, known)) share_out(plan.pipelines, slots, cluster, batch);
  return added;
}

}  // namespace orrery::planners
