// What a planner's own cost model says about a plan that it did not make: the planners' cost
// classes get the stages, groups and layers of a plan file. Prints one number (seconds) for each
// plan, or "not expressible: why" if the model cannot represent it.
//
//     agreement_estimate PLANNER CLUSTER MODEL JOB.yaml PLAN.yaml...
//
// Planners: autohet (Eq. 1), hethub (its 1F1B predictor), hetu (iteration objective), metis (ATC
// 2024, 4.2). The options are the planners' defaults. agreement.py feeds it the planner's own plan
// too, and stops unless the number is the estimate that the planner reported.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/interfaces/evaluator.h"
#include "models/spec/library.h"
#include "planners/autohet/costs.h"
#include "planners/hethub/stages.h"
#include "planners/hetu/costs.h"
#include "planners/kit/plan_parts.h"
#include "planners/metis/stages.h"
#include "planners/metis/tables.h"
#include "planners/planner.h"

namespace orrery::planners {
namespace {

/// The planner's cost model cannot represent the plan.
struct NotExpressible : std::runtime_error {
  using std::runtime_error::runtime_error;
};

void demand(bool holds, const std::string& what) {
  if (!holds) throw NotExpressible(what);
}

/// Cost models never ask it.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override { return {}; }
  std::string name() const override { return "none"; }
};

/// The only segment of a stage.
const ir::Segment& only(const ir::Stage& stage) {
  demand(stage.segments.size() == 1, "a stage of several segments");
  return stage.segments.front();
}

const ir::Group& only_group(const ir::Stage& stage) {
  demand(only(stage).groups.size() == 1, "a stage of several groups");
  return only(stage).groups.front();
}

/// Layers without embedding and head.
int layers_of(const ir::Segment& segment, const models::Workload& workload) {
  const int first = std::max(segment.first_block.value, 1);
  const int last = std::min(segment.last_block.value, workload.size() - 2);
  return last - first + 1;
}

Seconds autohet(const PlannerInput& input, const ir::Plan& plan) {
  const ir::Segment& sample = only(plan.pipelines.front().stages.front());
  const ir::Group& group = sample.groups.front();
  const AutohetSettings settings;
  const AutohetRound round = {
      group.tensor_parallel, static_cast<int>(plan.pipelines.front().micro_batch_size),
      sample.recompute,      plan.schedule,
      sample.zero.stage,     group.sequence};
  const auto units = autohet_units(input, round.tensor, settings.tensor_links);
  demand(units.has_value(), "the TP dimension does not divide every node");
  const StageCosts stage_costs(input);
  const AutohetCosts costs(input, settings, round, stage_costs, *units);
  Seconds longest{0};
  std::vector<AutohetPipeline> pipelines;
  for (const ir::Pipeline& chain : plan.pipelines) {
    AutohetPipeline pipeline;
    pipeline.micro_batches = static_cast<int>(chain.micro_batches);
    for (const ir::Stage& stage : chain.stages) {
      const auto unit = std::find_if(
          costs.units().begin(), costs.units().end(),
          [&](const AutohetUnit& u) { return u.devices == only_group(stage).devices; });
      demand(unit != costs.units().end(), "a group that is no unit");
      pipeline.units.push_back(static_cast<int>(unit - costs.units().begin()));
      pipeline.layers.push_back(layers_of(only(stage), input.workload));
    }
    longest = std::max(longest, costs.pipeline(pipeline));
    pipelines.push_back(std::move(pipeline));
  }
  return longest + costs.synchronization(pipelines);
}

Seconds hethub(const PlannerInput& input, const ir::Plan& plan) {
  const ir::Pipeline& first = plan.pipelines.front();
  const ir::Segment& sample = only(first.stages.front());
  HethubDegrees degrees;
  degrees.tensor = sample.groups.front().tensor_parallel;
  degrees.replicas = static_cast<int>(plan.pipelines.size());
  degrees.micro_batch_size = static_cast<int>(first.micro_batch_size);
  degrees.micro_batches = static_cast<int>(first.micro_batches);
  degrees.recompute = sample.recompute;
  degrees.zero = sample.zero.stage;
  const StageCosts costs(input);
  const HethubStages stages(input, costs, plan.communication.activation_transfer, degrees.tensor,
                            degrees.replicas);
  std::vector<HethubSlot> order;
  for (std::size_t s = 0; s < first.stages.size(); ++s) {
    std::vector<std::vector<DeviceId>> groups;
    for (const ir::Pipeline& chain : plan.pipelines) {
      demand(chain.stages.size() == first.stages.size(), "pipelines of unequal length");
      groups.push_back(only_group(chain.stages[s]).devices);
    }
    const auto place =
        std::find_if(stages.places().begin(), stages.places().end(),
                     [&](const HethubPlace& candidate) { return candidate.groups == groups; });
    demand(place != stages.places().end(), "the groups of a stage are no place");
    order.push_back({static_cast<int>(place - stages.places().begin()),
                     layers_of(only(first.stages[s]), input.workload)});
  }
  return predict_iteration(stages.predict(order, degrees), degrees.micro_batches);
}

Seconds hetu(const PlannerInput& input, const ir::Plan& plan) {
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  int full = 1;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      full = std::max(full, only_group(stage).tensor_parallel);
    }
  }
  const ir::Segment& sample = only(plan.pipelines.front().stages.front());
  const HetuVariant variant = {static_cast<int>(plan.pipelines.front().micro_batch_size),
                               sample.recompute, sample.zero.stage, plan.schedule};
  const HetuGroups groups = costs.groups(full, true);
  HetuLayout layout;
  for (const ir::Pipeline& printed : plan.pipelines) {
    HetuChain chain;
    chain.micro_batches = static_cast<int>(printed.micro_batches);
    for (const ir::Stage& stage : printed.stages) {
      const std::vector<DeviceId>& devices = only_group(stage).devices;
      int found = -1;
      for (std::size_t c = 0; c < groups.classes.size(); ++c) {
        const auto& all = groups.classes[c].groups;
        if (std::find(all.begin(), all.end(), devices) != all.end()) found = static_cast<int>(c);
      }
      demand(found >= 0, "a group that the degrees do not give");
      chain.classes.push_back(found);
      chain.groups.push_back(devices);
      chain.layers.push_back(layers_of(only(stage), input.workload));
      chain.period = std::max(chain.period,
                              costs.layer_time(groups, found, variant).value * chain.layers.back());
    }
    layout.push_back(std::move(chain));
  }
  return costs.estimate(groups, variant, layout);
}

/// GPU types in the order in which the stages of the pipeline meet them.
std::vector<int> sequence_of(const PlannerInput& input, const ir::Pipeline& chain) {
  std::vector<int> types;
  for (const ir::Stage& stage : chain.stages) {
    for (const ir::Group& group : only(stage).groups) {
      const int type = input.cluster.device(group.devices.front()).gpu_type;
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
  }
  return types;
}

/// (m - 1) max + sum of the stages, hops, gradients, optimizer. [Metis, 4.2.1]
Seconds metis(const PlannerInput& input, const ir::Plan& plan) {
  demand(plan.pipelines.size() == 1, "Metis has one pipeline");
  const ir::Pipeline& chain = plan.pipelines.front();
  const ir::Recompute recompute = only(chain.stages.front()).recompute;
  const MetisSettings settings;
  const MetisTables tables = make_metis_tables(input, recompute);
  demand(tables.problem.empty(), tables.problem);
  const MetisPlacement placement(input, false, sequence_of(input, chain));
  const std::vector<std::int64_t> batches = {chain.micro_batches};
  MetisStages stages(input, settings, tables, placement, batches, recompute);
  double sum = 0, slowest = 0, hops = 0, sync = 0, reduce = 0, update = 0;
  int first = 0;
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    const ir::Segment& segment = only(chain.stages[s]);
    const int tensor = segment.groups.front().tensor_parallel;
    const int size = tensor * static_cast<int>(segment.groups.size());
    const int step = std::countr_zero(static_cast<unsigned>(tensor));
    demand(std::has_single_bit(static_cast<unsigned>(size)) && step < stages.steps(size),
           "a stage whose size or degree Metis does not search");
    demand(placement.devices[static_cast<std::size_t>(first)] ==
               segment.groups.front().devices.front(),
           "devices out of Metis's order");
    const MetisStageChoice& choice = stages.choice(first, size, 0, step);
    demand(choice.valid, "a degree that Metis does not search");
    const int begin = segment.first_block.value, end = segment.last_block.value + 1;
    const double time = stages.time(choice, begin, end);
    sum += time;
    slowest = std::max(slowest, time);
    if (s + 1 == chain.stages.size()) {
      sync = choice.sync_ms;
    } else {
      const ir::Segment& next = only(chain.stages[s + 1]);
      hops += choice.nominal * stages.hop_per_sample(first, size,
                                                     next.groups.front().tensor_parallel *
                                                         static_cast<int>(next.groups.size()));
    }
    reduce =
        std::max(reduce, choice.reduce_ms_per_byte * stages.parameters(begin, end) / choice.tensor);
    update = std::max(update, tables.optimizer_ms / choice.tensor * (end - begin) / tables.layers);
    first += size;
  }
  const auto m = static_cast<double>(chain.micro_batches);
  const double ms =
      (m - 1) * slowest + sum + hops + reduce + update + m * (sync + tables.batch_generator_ms);
  return Seconds{ms / 1e3};
}

using Model = std::function<Seconds(const PlannerInput&, const ir::Plan&)>;

int run(std::span<char*> arguments) {
  const std::map<std::string, Model> known = {
      {"autohet", autohet}, {"hethub", hethub}, {"hetu", hetu}, {"metis", metis}};
  if (arguments.size() < 6 || !known.contains(arguments[1])) {
    fmt::print(stderr, "usage: {} autohet|hethub|hetu|metis CLUSTER MODEL JOB PLAN...\n",
               arguments[0]);
    return 2;
  }
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  const models::Cluster cluster = models::load_cluster(arguments[2], library, {}, diagnostics);
  const models::Job job = models::load_job(arguments[4], diagnostics);
  const models::Workload workload =
      models::load_workload(arguments[3], job, library, {}, diagnostics);
  diagnostics.raise();
  const models::Topology topology(cluster);
  const ir::Profile profile;
  const NoEvaluator evaluator;
  for (char* path : arguments.subspan(5)) {
    const ir::Plan plan = models::load_plan(path, diagnostics);
    diagnostics.raise();
    PlannerInput input{cluster, topology, workload, job, profile, evaluator, {}, 0, 0, nullptr};
    input.devices = ir::devices_of(plan);
    try {
      fmt::print("{:.17g}\n", known.at(arguments[1])(input, plan).value);
    } catch (const NotExpressible& why) {
      fmt::print("not expressible: {}\n", why.what());
    }
  }
  return 0;
}

}  // namespace
}  // namespace orrery::planners

int main(int count, char** values) {
  try {
    return orrery::planners::run({values, static_cast<std::size_t>(count)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
