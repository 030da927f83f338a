#include "planners/hetu/costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "models/schedule/closed_form.h"
#include "models/schedule/schedule.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

HetuCosts::HetuCosts(const PlannerInput& input, const HetuCostSettings& settings)
    : input_(input), settings_(settings), costs_(input), layers_(count_layers(input.workload)) {}

HetuGroups HetuCosts::groups(int full, bool use_rest) const {
  return form_groups(
      {input_, settings_.alpha, settings_.order,
       [&](int type) { return costs_.compute(type, shape({}, 1, 0, layers_)).both(); },
       [&](const std::vector<DeviceId>& group) { return times(group, {}).layer; }},
      full, use_rest);
}

StageShape HetuCosts::shape(const HetuVariant& variant, int degree, int first, int layers) const {
  StageShape shape;
  shape.first = first;
  shape.layers = layers;
  shape.tensor_parallel = degree;
  shape.sequence = megatron_sequence(input_.job, degree);
  shape.samples = variant.micro_batch_size;
  shape.recompute = variant.recompute;
  shape.zero_stage = variant.zero;
  return shape;
}

HetuCosts::Times HetuCosts::times(const std::vector<DeviceId>& group,
                                  const HetuVariant& variant) const {
  const auto [place, added] = times_.try_emplace({group, variant});
  if (!added) return place->second;
  const int degree = static_cast<int>(group.size());
  const auto of = [&](int first, int layers) {
    return costs_.passes(group, shape(variant, degree, first, layers)).both();
  };
  Times& t = place->second;
  if (layers_ < 3) {  // No inner layer: the ends count with the layers.
    t.layer = of(0, layers_) / static_cast<double>(layers_);
    return t;
  }
  const Seconds inner = of(1, layers_ - 2) / static_cast<double>(layers_ - 2);
  t.layer = inner;
  t.first = std::max(Seconds{}, of(0, 1) - inner);
  t.last = std::max(Seconds{}, of(layers_ - 1, 1) - inner);
  return t;
}

const HetuCosts::Times& HetuCosts::class_times(const HetuGroups& groups, int group_class,
                                               const HetuVariant& variant) const {
  std::vector<Times>& all = class_times_[{groups.full, groups.idle, variant}];
  if (all.empty()) {
    for (const HetuClass& c : groups.classes) {
      all.push_back(settings_.layer_time == HetuLayerTime::profile
                        ? times(c.groups.front(), variant)
                        : declared_times(groups, c, variant));
    }
  }
  return all[group_class];
}

HetuCosts::Times HetuCosts::declared_times(const HetuGroups& groups, const HetuClass& c,
                                           const HetuVariant& variant) const {
  // One layer on one GPU of the fastest type, over the full degree.
  Seconds fastest{std::numeric_limits<double>::infinity()};
  for (const HetuClass& other : groups.classes) {
    for (const int type : other.gpu_types) {
      fastest = std::min(fastest, costs_.compute(type, shape(variant, 1, 0, layers_)).both());
    }
  }
  const double steps = std::round(std::log2(static_cast<double>(groups.full) / c.size));
  Times t;
  t.layer = c.slowness * std::pow(settings_.alpha, steps) /
            (static_cast<double>(layers_) * groups.full) * fastest;
  return t;
}

Seconds HetuCosts::layer_time(const HetuGroups& groups, int group_class,
                              const HetuVariant& variant) const {
  return class_times(groups, group_class, variant).layer;
}

int HetuCosts::micro_batches(const HetuVariant& variant) const {
  return static_cast<int>(input_.job.global_batch / variant.micro_batch_size);
}

bool HetuCosts::fits(const HetuClass& group_class, const StageShape& shape) const {
  const Bytes need =
      costs_.memory(shape) + static_cast<double>(settings_.memory_reserve_mib) * 1_MiB;
  return std::all_of(group_class.gpu_types.begin(), group_class.gpu_types.end(),
                     [&](int type) { return need <= costs_.capacity(type); });
}

int HetuCosts::most_layers(const HetuGroups& groups, int group_class, const HetuVariant& variant,
                           int pipelines, int stage, int stages) const {
  const HetuClass& c = groups.classes[group_class];
  const int limit = layers_ - stages + 1;
  if (limit < 1) return 0;
  const int batches = micro_batches(variant);
  // GPipe holds all micro-batches of the pipeline, here an even share of them.
  const int in_flight = models::schedule_entry(variant.schedule).holds_whole_batch()
                            ? (batches + pipelines - 1) / pipelines
                            : std::min(batches, stages - stage);
  const int position = stages == 1 ? 3 : stage == 0 ? 0 : stage + 1 == stages ? 2 : 1;
  const auto [place, added] = most_.try_emplace(
      {c.gpu_types, position, variant, variant.zero > 0 ? pipelines : 1, in_flight, limit}, 0);
  if (!added) return place->second;
  const auto holds = [&](int layers) {
    const int first = position == 0 || position == 3 ? 0 : position == 2 ? layers_ - layers : 1;
    StageShape s = shape(variant, c.size, first, layers);
    s.replicas = pipelines;
    s.in_flight = in_flight;
    return fits(c, s);
  };
  if (position == 3) return place->second = holds(layers_) ? layers_ : 0;
  int low = 0, high = limit;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (holds(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return place->second = low;
}

std::optional<std::vector<int>> HetuCosts::chain_layers(const HetuGroups& groups,
                                                        const HetuVariant& variant, int pipelines,
                                                        const std::vector<int>& taken) const {
  const auto [place, added] =
      chains_.try_emplace({groups.full, groups.idle, variant, pipelines, taken});
  if (!added) return place->second;
  std::vector<LayerStage> stages;
  const int count = std::accumulate(taken.begin(), taken.end(), 0);
  for (std::size_t c = 0; c < taken.size(); ++c) {
    const int number = static_cast<int>(c);
    for (int i = 0; i < taken[c]; ++i) {
      stages.push_back({layer_time(groups, number, variant).value,
                        most_layers(groups, number, variant, pipelines,
                                    static_cast<int>(stages.size()), count)});
    }
  }
  return place->second = assign_layers(layers_, stages);
}

std::optional<HetuLayout> HetuCosts::solve(const HetuGroups& groups, const HetuVariant& variant,
                                           const Deal& deal) const {
  HetuLayout layout;
  std::vector<std::size_t> next(groups.classes.size(), 0);
  std::vector<double> periods;
  std::vector<int> minimum;
  for (const std::vector<int>& taken : deal) {
    const auto layers = chain_layers(groups, variant, static_cast<int>(deal.size()), taken);
    if (!layers) return std::nullopt;
    HetuChain chain;
    chain.layers = *layers;
    for (std::size_t c = 0; c < taken.size(); ++c) {
      const double y = layer_time(groups, static_cast<int>(c), variant).value;
      for (int i = 0; i < taken[c]; ++i) {
        chain.period = std::max(chain.period, y * chain.layers[chain.classes.size()]);
        chain.classes.push_back(static_cast<int>(c));
        chain.groups.push_back(groups.classes[c].groups[next[c]++]);
      }
    }
    periods.push_back(chain.period);
    minimum.push_back(
        settings_.minimum == HetuMinimum::one ? 1 : static_cast<int>(chain.layers.size()));
    layout.push_back(std::move(chain));
  }
  const auto shares = share_micro_batches(micro_batches(variant), periods, minimum);
  if (!shares) return std::nullopt;
  for (std::size_t i = 0; i < layout.size(); ++i) layout[i].micro_batches = (*shares)[i];
  return layout;
}

Seconds HetuCosts::slowest_pipeline(const HetuGroups& groups, const HetuVariant& variant,
                                    const HetuLayout& layout) const {
  std::vector<Seconds> pipelines;
  for (const HetuChain& chain : layout) {
    if (settings_.objective == HetuObjective::steady_public) {
      pipelines.push_back(Seconds{chain.period * chain.micro_batches});
      continue;
    }
    std::vector<Seconds> stages;
    int layer = 0;
    for (std::size_t j = 0; j < chain.layers.size(); ++j) {
      const Times& t = class_times(groups, chain.classes[j], variant);
      Seconds time = static_cast<double>(chain.layers[j]) * t.layer;
      if (j == 0) time += t.first;
      layer += chain.layers[j];
      if (j + 1 == chain.layers.size()) {
        time += t.last;
      } else {
        const auto& from = chain.groups[j];
        const auto& to = chain.groups[j + 1];
        const auto [place, added] =
            hops_.try_emplace({from.front(), to.front(), static_cast<int>(to.size()), layer,
                               variant.micro_batch_size});
        if (added) {
          place->second =
              costs_.hop(from, to, layer, variant.micro_batch_size, ir::ActivationTransfer::sliced);
        }
        time += 2.0 * place->second;
      }
      stages.push_back(time);
    }
    pipelines.push_back(models::pipeline_time(stages, chain.micro_batches));
  }
  return *std::max_element(pipelines.begin(), pipelines.end());
}

Seconds HetuCosts::synchronization(const HetuVariant& variant, const HetuLayout& layout) const {
  Seconds slowest_ring, slowest_update;
  std::set<std::pair<int, int>> seen;  // First layer, layers.
  for (const HetuChain& chain : layout) {
    int first = 0;
    for (std::size_t j = 0; j < chain.layers.size(); first += chain.layers[j++]) {
      StageShape own =
          shape(variant, static_cast<int>(chain.groups[j].size()), first, chain.layers[j]);
      own.replicas = static_cast<int>(layout.size());
      for (const DeviceId device : chain.groups[j]) {
        slowest_update =
            std::max(slowest_update, costs_.optimizer(input_.cluster.device(device).gpu_type, own));
      }
      if (layout.size() < 2 || !seen.insert({first, chain.layers[j]}).second) continue;
      std::vector<DeviceId> leaders;
      std::size_t smallest = chain.groups[j].size();
      for (const HetuChain& other : layout) {
        std::size_t k = 0;
        for (int layer = other.layers[0]; layer <= first; layer += other.layers[++k]) {
        }
        leaders.push_back(other.groups[k].front());
        smallest = std::min(smallest, other.groups[k].size());
      }
      const Bytes bytes = costs_.gradients(first, chain.layers[j]);
      slowest_ring =
          std::max(slowest_ring, costs_.all_reduce(leaders, bytes / static_cast<double>(smallest)));
    }
  }
  return slowest_ring + slowest_update;
}

Seconds HetuCosts::estimate(const HetuGroups& groups, const HetuVariant& variant,
                            const HetuLayout& layout) const {
  const Seconds pipelines = slowest_pipeline(groups, variant, layout);
  if (settings_.objective == HetuObjective::steady_public) return pipelines;
  return pipelines + synchronization(variant, layout);
}

Seconds HetuCosts::lower_bound(const HetuGroups& groups, const HetuVariant& variant,
                               int pipelines) const {
  double rate = 0;
  double fastest = std::numeric_limits<double>::infinity();
  for (std::size_t c = 0; c < groups.classes.size(); ++c) {
    const double y = layer_time(groups, static_cast<int>(c), variant).value;
    rate += static_cast<double>(groups.classes[c].groups.size()) / y;
    fastest = std::min(fastest, y);
  }
  const int batches = micro_batches(variant);
  const double layers = layers_;  // Times the micro-batches of a step more than an int holds.
  const double steady = layers * batches / rate;
  if (settings_.objective == HetuObjective::steady_public) return Seconds{steady * (1 - 1e-12)};
  const double filled = layers * fastest + layers * (batches - pipelines) / rate;
  return Seconds{std::max(steady, filled) * (1 - 1e-12)};
}

ir::Plan HetuCosts::build(const HetuVariant& variant, const HetuLayout& layout) const {
  ir::Plan plan;
  plan.schedule = variant.schedule;
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  for (const HetuChain& chain : layout) {
    ir::Pipeline pipeline;
    pipeline.micro_batches = chain.micro_batches;
    pipeline.micro_batch_size = variant.micro_batch_size;
    int first = 0;
    for (std::size_t j = 0; j < chain.layers.size(); ++j) {
      const int degree = static_cast<int>(chain.groups[j].size());
      pipeline.stages.push_back(
          stage_of_layers(input_.workload, first, chain.layers[j],
                          tensor_groups(chain.groups[j], degree, variant.micro_batch_size,
                                        megatron_sequence(input_.job, degree)),
                          variant.recompute, variant.zero));
      first += chain.layers[j];
    }
    plan.pipelines.push_back(std::move(pipeline));
  }
  return plan;
}

std::string HetuCosts::describe(const HetuVariant& variant, const HetuLayout& layout) const {
  std::vector<std::string> chains;
  for (const HetuChain& chain : layout) {
    std::vector<std::string> stages;
    for (std::size_t j = 0; j < chain.layers.size(); ++j) {
      const auto& device = input_.cluster.gpu(chain.groups[j].front());
      stages.push_back(
          fmt::format("{} {} x{}", chain.layers[j], device.name, chain.groups[j].size()));
    }
    chains.push_back(fmt::format("{} of [{}]", chain.micro_batches, fmt::join(stages, ", ")));
  }
  std::string text;
  for (std::size_t i = 0; i < chains.size();) {
    std::size_t same = i;
    while (same < chains.size() && chains[same] == chains[i]) ++same;
    text += fmt::format("{}{}{}", i > 0 ? "; " : "",
                        same - i > 1 ? fmt::format("{} x ", same - i) : "", chains[i]);
    i = same;
  }
  return fmt::format("{} pipeline{}, micro-batches of {}, {} recompute, ZeRO-{}: {}", layout.size(),
                     layout.size() == 1 ? "" : "s", variant.micro_batch_size,
                     recompute_in_words(variant.recompute), variant.zero, text);
}

}  // namespace orrery::planners
