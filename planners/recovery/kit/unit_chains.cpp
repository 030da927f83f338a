#include "planners/recovery/kit/unit_chains.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include "models/base/ids.h"
#include "models/check/validate.h"
#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/uniform_nodes.h"
#include "planners/recovery/kit/replan.h"

namespace orrery::planners {
namespace {

/// All devices of the cluster.
PlannerInput planner_input(const PolicyInput& input) {
  PlannerInput result{input.cluster,
                      input.topology,
                      input.workload,
                      input.job,
                      input.profile,
                      input.evaluator,
                      {},
                      input.seed,
                      0,
                      nullptr};
  for (const models::Device& device : input.cluster.devices) result.devices.push_back(device.id);
  return result;
}

bool all_alike(const models::Workload& workload) {
  const models::Block& first = workload.block(workload.first_layer());
  for (const BlockId b : ids_from_to(workload.first_layer(), workload.last_layer())) {
    const models::Block& block = workload.block(b);
    if (block.kind != first.kind || block.forward_flops != first.forward_flops ||
        models::parameters(block) != models::parameters(first) ||
        block.input_bytes != first.input_bytes || block.kept_split != first.kept_split ||
        block.kept_replicated != first.kept_replicated) {
      return false;
    }
  }
  return true;
}

}  // namespace

PipelineRate Chain::rate() const {
  if (seconds.empty()) return {};
  return {std::accumulate(seconds.begin(), seconds.end(), 0.0),
          *std::max_element(seconds.begin(), seconds.end())};
}

UnitChains::UnitChains(const PolicyInput& input, CutCriterion criterion)
    : policy_(input),
      input_(planner_input(input)),
      criterion_(criterion),
      costs_(std::make_unique<StageCosts>(input_)),
      schedule_(models::preferred_schedule(input.job.allowed.schedules)
                    .value_or(ir::ScheduleKind::one_f_one_b)),
      alike_(all_alike(input.workload)) {
  const UniformNodes nodes = uniform_nodes(input_);
  per_node_ = std::max(1, nodes.per_node);
  std::vector<ConstraintCost> constraints;
  widths_ = uniform_degrees(nodes, input_, constraints);
  bool any = false;
  for (std::size_t type = 0; type < input_.cluster.gpu_types.size(); ++type) {
    const auto index = static_cast<int>(type);
    const auto& devices = input_.cluster.devices;
    if (std::none_of(devices.begin(), devices.end(),
                     [&](const models::Device& d) { return d.gpu_type == index; })) {
      continue;
    }
    gpu_types_.push_back(index);
    if (!any || costs_->capacity(index) < capacity_) capacity_ = costs_->capacity(index);
    any = true;
  }
  sample_.assign(nodes.devices.begin(), nodes.devices.begin() + per_node_);
  for (const DeviceId device : nodes.devices) {
    if (input_.cluster.device(device).node == input_.cluster.device(sample_.front()).node) continue;
    elsewhere_ = device;
    break;
  }
}

std::vector<int> UnitChains::micro_batch_sizes() const {
  std::vector<int> sizes;
  // Jobs that are made for a given plan allow any size.
  const auto most = static_cast<int>(
      std::min<std::int64_t>(input_.job.allowed.max_micro_batch_size, input_.job.global_batch));
  for (int size = 1; size <= most; ++size) {
    if (input_.job.global_batch % size == 0) sizes.push_back(size);
  }
  return sizes;
}

const Chain* UnitChains::chain(const ChainShape& shape) const {
  const auto [entry, fresh] = chains_.try_emplace(shape);
  std::optional<Chain>& found = entry->second;
  if (fresh) {
    for (const ir::Recompute recompute : {ir::Recompute::none, ir::Recompute::selective,
                                          ir::Recompute::experts, ir::Recompute::full}) {
      const auto& allowed = input_.job.allowed.recompute;
      if (ir::weaker(recompute, shape.at_least)) continue;
      if (std::count(allowed.begin(), allowed.end(), recompute) == 0) continue;
      found = plan(shape, recompute);
      if (found) break;
    }
  }
  return found ? &*found : nullptr;
}

/// What stages cost, whichever number they have: by first layer and number of layers.
struct UnitChains::Tables {
  struct Cost {
    double seconds = 0;
    Bytes fixed;
    Bytes per_in_flight;
  };
  std::vector<Cost> costs;
  std::vector<double> near;  ///< Hop before each layer and back, inside a node,
  std::vector<double> far;   ///< and between nodes.
};

UnitChains::Tables UnitChains::tables(const ChainShape& shape, ir::Recompute recompute) const {
  const int all = layers();
  const auto rows = all + 1;
  Tables result;
  result.costs.resize(rows * rows);
  for (int first = 0; first < all; ++first) {
    for (int count = 1; first + count <= all; ++count) {
      Tables::Cost& cost = result.costs[as_size(first) * rows + count];
      if (alike_ && first > 1 && first + count < all) {
        cost = result.costs[rows + count];
        continue;
      }
      StageShape query;
      query.first = first;
      query.layers = count;
      query.tensor_parallel = shape.width;
      query.samples = shape.micro_batch_size;
      query.recompute = recompute;
      Seconds slowest;
      for (const int type : gpu_types_) {
        slowest = std::max(slowest, costs_->compute(type, query).both());
      }
      slowest +=
          costs_->tensor_parallel(Unit(sample_.begin(), sample_.begin() + shape.width), query)
              .both();
      cost.seconds = slowest.value;
      const Bytes one = costs_->memory(query);
      query.in_flight = 2;
      cost.per_in_flight = costs_->memory(query) - one;
      cost.fixed = one - cost.per_in_flight;
    }
  }
  const auto hop = [&](DeviceId to, int layer) {
    if (to == sample_.front()) return 0.0;
    // There and back: activation and its gradient.
    return 2 * costs_
                   ->hop(std::span(&sample_.front(), 1), std::span(&to, 1), layer,
                         shape.micro_batch_size, ir::ActivationTransfer::leader_broadcast)
                   .value;
  };
  for (int layer = 0; layer < all; ++layer) {
    result.near.push_back(hop(sample_.back(), layer));
    result.far.push_back(hop(elsewhere_.valid() ? elsewhere_ : sample_.back(), layer));
  }
  return result;
}

std::optional<Chain> UnitChains::plan(const ChainShape& shape, ir::Recompute recompute) const {
  const int all = layers();
  if (shape.stages > all) return std::nullopt;
  auto [entry, fresh] =
      tables_.try_emplace(std::tuple(shape.width, shape.micro_batch_size, recompute));
  if (fresh) entry->second = std::make_shared<const Tables>(tables(shape, recompute));
  const Tables& tables = *entry->second;
  const auto batch = static_cast<int>(input_.job.global_batch / shape.micro_batch_size);
  std::vector<int> in_flight;
  for (int s = 0; s < shape.stages; ++s) {
    in_flight.push_back(models::micro_batches_in_flight(schedule_, shape.stages, s, batch, 1));
  }
  const StageSeconds ask = [&](int stage, int first, int count) -> std::optional<double> {
    const Tables::Cost& cost = tables.costs[as_size(first) * (all + 1) + count];
    const Bytes need = cost.fixed + in_flight[stage] * cost.per_in_flight;
    if (need > capacity_) return std::nullopt;
    if (stage + 1 == shape.stages) return cost.seconds;
    const bool leaves = (stage + 1) % shape.units_per_node == 0;
    return cost.seconds + (leaves ? tables.far : tables.near)[first + count];
  };
  const std::optional<StageCut> cut = best_cut(all, shape.stages, batch, criterion_, ask);
  if (!cut) return std::nullopt;
  Chain chain{shape, cut->layers, {}, recompute};
  int first = 0;
  for (int s = 0; s < shape.stages; ++s) {
    const int count = cut->layers[s];
    chain.seconds.push_back(*ask(s, first, count));
    first += count;
  }
  return chain;
}

std::vector<Unit> uniform_cells(const models::Cluster& cluster, const std::vector<DeviceId>& live,
                                int per_node) {
  std::vector<Unit> cells;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const std::vector<DeviceId> devices = cluster.devices_of(NodeId{static_cast<std::int32_t>(n)});
    const std::size_t size = per_node;
    for (std::size_t i = 0; i + size <= devices.size(); i += size) {
      const Unit cell(devices.begin() + static_cast<std::ptrdiff_t>(i),
                      devices.begin() + static_cast<std::ptrdiff_t>(i + size));
      if (all_live(cell, live)) cells.push_back(cell);
    }
  }
  return cells;
}

std::vector<Unit> spread_units(const std::vector<Unit>& cells, int width) {
  std::vector<Unit> units;
  if (cells.empty()) return units;
  for (std::size_t first = 0; first < cells.front().size(); first += width) {
    for (const Unit& cell : cells) {
      const auto at = cell.begin() + static_cast<std::ptrdiff_t>(first);
      units.emplace_back(at, at + width);
    }
  }
  return units;
}

std::optional<ir::Plan> plan_of(const UnitChains& chains,
                                const std::vector<UnitPipeline>& pipelines, const char* policy,
                                ir::Redundancy redundancy) {
  if (pipelines.empty()) return std::nullopt;
  std::vector<PipelineRate> rates;
  for (const UnitPipeline& pipeline : pipelines) rates.push_back(pipeline.chain->rate());
  const int size = pipelines.front().chain->shape.micro_batch_size;
  const PlannerInput& input = chains.input();
  const std::vector<int> shares =
      split_batch(rates, static_cast<int>(input.job.global_batch / size));
  if (shares.empty()) return std::nullopt;
  ir::Plan plan;
  plan.schedule = chains.schedule();
  plan.redundancy = redundancy;
  double slowest = 0;
  for (std::size_t p = 0; p < pipelines.size(); ++p) {
    const Chain& chain = *pipelines[p].chain;
    ir::Pipeline pipeline;
    pipeline.micro_batches = shares[p];
    pipeline.micro_batch_size = size;
    slowest = std::max(slowest, rates[p].time(shares[p]));
    int first = 0;
    for (std::size_t s = 0; s < chain.layers.size(); ++s) {
      ir::Segment segment = segment_of_layers(input.workload, first, chain.layers[s]);
      first += chain.layers[s];
      ir::Group group;
      group.devices = pipelines[p].units[s];
      group.tensor_parallel = chain.shape.width;
      group.samples = size;
      segment.groups.push_back(std::move(group));
      segment.recompute = chain.recompute;
      pipeline.stages.push_back({{std::move(segment)}});
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  const ir::MemoryVerdict memory =
      models::check_memory(plan, input.cluster, input.workload, input.job, input.profile);
  sign(plan, policy, input, Seconds{slowest}, memory);
  return plan;
}

std::string problem_of(const PolicyInput& input, const ir::Plan& plan) {
  const std::vector<models::PlanDefect> defects =
      models::validate(plan, input.cluster, input.workload, input.job);
  if (!defects.empty()) return defects.front().path + ": " + defects.front().what;
  const ir::MemoryVerdict memory =
      models::check_memory(plan, input.cluster, input.workload, input.job, input.profile);
  return memory.fits() ? "" : memory.explain();
}

}  // namespace orrery::planners
