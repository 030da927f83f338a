#include "planners/hexiscale/pipeline.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "models/cost/memory.h"
#include "models/schedule/schedule.h"
#include "planners/hexiscale/order.h"
#include "planners/hexiscale/public_code.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
namespace {

/// Largest number of GPU groups in a pipeline.
constexpr int kMostGroups = 16;

/// Machines with more GPUs than this only form groups of one size, and smaller ones of the rest:
/// 16 GPUs can be split in 36 ways, 72 in thousands.
constexpr int kMostFreeGpus = 16;

/// All ways to write `gpus` as a sum of powers of two, each list from large to small.
std::vector<std::vector<int>> all_lists(int gpus) {
  std::vector<std::vector<int>> lists;
  const std::vector<int> powers = powers_of_two(gpus);
  if (gpus > kMostFreeGpus) {
    for (const int size : powers) {
      std::vector<int> list(gpus / size, size);
      for (int rest = gpus % size; rest > 0; rest -= list.back()) {
        list.push_back(static_cast<int>(floor_power_of_two(rest)));
      }
      lists.push_back(std::move(list));
    }
    return lists;
  }
  for (int count = 1; count <= gpus; ++count) {
    for_each_partition(gpus, count, powers, [&](const std::vector<int>& parts) {
      lists.emplace_back(parts.rbegin(), parts.rend());
      return true;
    });
  }
  return lists;
}

double total_power(const HexiscaleCosts& costs, const DeviceList& devices) {
  double sum = 0;
  for (const DeviceId device : devices) sum += costs.power(device);
  return sum;
}

GroupLinks links_between(const HexiscaleCosts& costs,
                         const std::vector<std::vector<DeviceList>>& groups) {
  GroupLinks links;
  links.groups = static_cast<int>(groups.size());
  for (const auto& from : groups) {
    for (const auto& to : groups) {
      double fastest = 0;
      for (const DeviceId a : from.back()) {
        for (const DeviceId b : to.front()) {
          fastest = std::max(fastest, &from == &to ? 0 : costs.bandwidth(a, b).value);
        }
      }
      links.bandwidth.push_back(fastest);
      links.hop.push_back(&from == &to ? 0 : costs.hop(from.back(), to.front()).value);
    }
  }
  return links;
}

}  // namespace

WeightedGraph device_graph(const HexiscaleCosts& costs, const DeviceList& devices) {
  std::vector<double> weights;
  for (const DeviceId device : devices) weights.push_back(costs.power(device) / 1e12);
  WeightedGraph graph = make_graph(std::move(weights));
  for (int u = 0; u < graph.vertices; ++u) {
    for (int v = u + 1; v < graph.vertices; ++v) {
      const BytesPerSecond bandwidth = costs.bandwidth(devices[u], devices[v]);
      graph.set_edge(u, v, bandwidth / 1_GBps);
    }
  }
  return graph;
}

std::vector<int> parts_of(const WeightedGraph& graph, int parts, const PartitionOptions& options,
                          const HexiscaleSettings& settings, Rng& rng) {
  if (settings.partition == PartitionRule::graph) return partition(graph, parts, options, rng);
  std::vector<int> dealt;
  for (int v = 0; v < graph.vertices; ++v) dealt.push_back(v % parts);
  for (std::size_t left = dealt.size(); left > 1; --left) {  // Fisher and Yates.
    std::swap(dealt[left - 1],
              dealt[static_cast<std::size_t>(rng.uniform() * static_cast<double>(left))]);
  }
  return dealt;
}

int PipelineBuilder::most_groups(const DeviceList& devices) const {
  std::set<std::pair<NodeId, int>> machines;
  for (const DeviceId device : devices) {
    const models::Device& d = cluster_.device(device);
    machines.emplace(d.node, d.gpu_type);
  }
  return std::min(static_cast<int>(machines.size()), kMostGroups);
}

std::vector<PipelineBuilder::Machine> PipelineBuilder::machines_of(const DeviceList& group,
                                                                   double power_per_layer) const {
  std::map<std::pair<NodeId, int>, Machine> machines;
  for (const DeviceId device : group) {
    const models::Device& d = cluster_.device(device);
    Machine& machine = machines[{d.node, d.gpu_type}];
    machine.devices.push_back(device);
    machine.share += costs_.power(device) / power_per_layer;
  }
  std::vector<Machine> result;
  for (auto& [key, machine] : machines) result.push_back(std::move(machine));
  return result;
}

/// Time of the stages alone when they hold `share` layers, and the layers that they can hold.
PipelineBuilder::Strategy PipelineBuilder::evaluate(std::vector<DeviceList> stages, double share,
                                                    const PipelineTask& task) const {
  Strategy result;
  std::vector<double> per_layer;
  double speed = 0;
  double devices = 0;
  for (const DeviceList& stage : stages) {
    per_layer.push_back(costs_.per_layer(stage).value);
    speed += 1 / per_layer.back();
    devices += static_cast<double>(stage.size());
    // Half of the stages of a pipeline of such machines come after this one.
    const double stages_here = static_cast<double>(stages.size());
    const double about = std::clamp(costs_.layers() / share * stages_here / 2, 1.0,
                                    static_cast<double>(task.micro_batches));
    HexiscaleCosts::Place place;
    place.in_flight = static_cast<int>(about);
    place.pipelines = task.pipelines;
    result.room += costs_.max_layers(stage, place);
  }
  double sum = 0;
  double longest = 0;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const double layers = settings_.layers == LayerRule::by_compute
                              ? share / speed / per_layer[s]
                              : share * static_cast<double>(stages[s].size()) / devices;
    const double hop = s + 1 < stages.size() ? costs_.hop(stages[s], stages[s + 1]).value : 0;
    const double time = std::max(1.0, layers) * per_layer[s] + hop;
    sum += time;
    longest = std::max(longest, time);
  }
  result.cost = sum + (task.micro_batches - 1) * longest;
  result.stages = std::move(stages);
  return result;
}

std::vector<PipelineBuilder::Strategy> PipelineBuilder::strategies(const Machine& machine,
                                                                   const PipelineTask& task) const {
  const int gpus = static_cast<int>(machine.devices.size());
  std::vector<std::vector<int>> lists;
  if (settings_.tensor_parallel > 0) {  // What is left of the machine stays idle.
    const std::size_t count = gpus / settings_.tensor_parallel;
    lists.emplace_back(count, settings_.tensor_parallel);
  } else if (settings_.candidates == Candidates::public_lists) {
    lists = public_lists(gpus);
  }
  if (lists.empty()) lists = all_lists(gpus);
  const std::vector<int>& degrees = costs_.tensor_degrees();
  std::vector<Strategy> result;
  for (const std::vector<int>& list : lists) {
    const bool allowed = std::all_of(list.begin(), list.end(), [&](int degree) {
      return std::binary_search(degrees.begin(), degrees.end(), degree);
    });
    if (!allowed) continue;
    std::vector<DeviceList> stages;
    auto next = machine.devices.begin();
    for (const int degree : list) {
      stages.emplace_back(next, next + degree);
      next += degree;
    }
    result.push_back(evaluate(std::move(stages), machine.share, task));
  }
  if (result.empty() && settings_.tensor_parallel > 0) return {Strategy{}};
  if (result.empty()) {  // No list of the public code is allowed: one GPU a stage always is.
    std::vector<DeviceList> singles;
    for (const DeviceId device : machine.devices) singles.push_back({device});
    result.push_back(evaluate(std::move(singles), machine.share, task));
  }
  return result;
}

const PipelineBuilder::Strategy& PipelineBuilder::choose(const MachineChoices& machine, Choice by) {
  const auto score = [&](const Strategy& s) -> std::pair<double, double> {
    switch (by) {
      case Choice::cost:
        return {s.cost, 0};
      case Choice::cost_with_room:
        return {std::max(0.0, machine.share - s.room), s.cost};
      case Choice::room:
        return {-s.room, s.cost};
      case Choice::fewest_stages:
        return {static_cast<double>(s.stages.size()), s.cost};
    }
    return {s.cost, 0};
  };
  return *std::min_element(
      machine.strategies.begin(), machine.strategies.end(),
      [&](const Strategy& a, const Strategy& b) { return score(a) < score(b); });
}

PipelineBuilder::Grouped PipelineBuilder::enumerate(const PipelineTask& task, int groups,
                                                    Rng& rng) const {
  PartitionOptions options;
  options.max_imbalance = settings_.group_imbalance;
  options.starts = 1;
  std::vector<int> part(task.devices.size(), 0);
  if (groups > 1) {
    part = parts_of(device_graph(costs_, task.devices), groups, options, settings_, rng);
  }
  const double power_per_layer = total_power(costs_, task.devices) / costs_.layers();
  Grouped result;
  for (int g = 0; g < groups; ++g) {
    DeviceList members;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (part[i] == g) members.push_back(task.devices[i]);
    }
    result.emplace_back();
    for (const Machine& machine : machines_of(members, power_per_layer)) {
      result.back().push_back({machine.share, strategies(machine, task)});
    }
  }
  return result;
}

std::vector<std::vector<int>> PipelineBuilder::orders(const GroupStages& groups) const {
  const GroupLinks links = links_between(costs_, groups);
  auto paths = settings_.stage_order == StageOrder::top_tau
                   ? top_tau_paths(links, settings_.tau)
                   : last_path_public(links, settings_.tau);
  std::sort(paths.begin(), paths.end());
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  return paths;
}

std::optional<PipelineDraft> PipelineBuilder::assign(const std::vector<DeviceList>& stages,
                                                     int pipelines, int micro_batches) const {
  const int count = static_cast<int>(stages.size());
  std::vector<StageRate> rates;
  std::vector<Bytes> memory;
  for (int s = 0; s < count; ++s) {
    const DeviceList& stage = stages[s];
    HexiscaleCosts::Place place;
    place.first = s == 0;
    place.last = s + 1 == count;
    // 1F1B: as if the pipeline had many micro-batches, since the batch is shared out later.
    const int most =
        models::schedule_entry(costs_.schedule()).holds_whole_batch() ? micro_batches : count;
    place.in_flight = models::micro_batches_in_flight(costs_.schedule(), count, s, most, 1);
    place.pipelines = pipelines;
    const Seconds hop = place.last ? Seconds{} : costs_.hop(stage, stages[s + 1]);
    rates.push_back({costs_.per_layer(stage), hop, costs_.max_layers(stage, place)});
    Bytes sum;
    for (const DeviceId device : stage) sum += cluster_.gpu(device).memory;
    memory.push_back(sum);
  }
  auto layers = settings_.layers == LayerRule::by_compute
                    ? assign_layers_by_compute(rates, costs_.layers(), micro_batches)
                    : assign_layers_by_memory(rates, memory, costs_.layers());
  if (!layers) return std::nullopt;
  PipelineDraft draft{stages, std::move(*layers), {}};
  draft.rate.fill = rate_time(rates, draft.layers, 1);
  draft.rate.period = rate_time(rates, draft.layers, 2) - draft.rate.fill;
  return draft;
}

PipelineBuilder::GroupStages PipelineBuilder::choose_all(const Grouped& grouped, Choice by) {
  GroupStages groups;
  for (const std::vector<MachineChoices>& machines : grouped) {
    std::vector<DeviceList> group;
    for (const MachineChoices& machine : machines) {
      const Strategy& chosen = choose(machine, by);
      group.insert(group.end(), chosen.stages.begin(), chosen.stages.end());
    }
    if (!group.empty()) groups.push_back(std::move(group));
  }
  return groups;
}

void PipelineBuilder::order_and_assign(const GroupStages& groups, const PipelineTask& task,
                                       std::optional<PipelineDraft>& best,
                                       std::int64_t& examined) const {
  for (const std::vector<int>& order : orders(groups)) {
    std::vector<DeviceList> stages;
    for (const int g : order) {
      const auto& part = groups[g];
      stages.insert(stages.end(), part.begin(), part.end());
    }
    ++examined;
    auto draft = assign(stages, task.pipelines, task.micro_batches);
    if (!draft) continue;
    if (!best || draft->time(task.micro_batches) < best->time(task.micro_batches)) {
      best = std::move(draft);
    }
  }
}

/// Deviation: the paper takes each machine's fastest strategy and calls the plan infinitely slow
/// when it does not fit. Where memory is short, larger tensor-parallel groups waste less of it to
/// whole layers, so that strategies with room are tried as well as the fastest.
std::optional<PipelineDraft> PipelineBuilder::build(const PipelineTask& task, int groups, Rng& rng,
                                                    std::int64_t& examined) const {
  std::optional<PipelineDraft> best;
  const Grouped grouped = enumerate(task, groups, rng);
  std::vector<GroupStages> tried;
  for (const Choice by :
       {Choice::cost, Choice::cost_with_room, Choice::room, Choice::fewest_stages}) {
    GroupStages stages = choose_all(grouped, by);
    if (std::find(tried.begin(), tried.end(), stages) != tried.end()) continue;
    if (!stages.empty()) order_and_assign(stages, task, best, examined);
    tried.push_back(std::move(stages));
  }
  return best;
}

}  // namespace orrery::planners
