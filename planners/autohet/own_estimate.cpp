/// Eq. 1 on plans that the search did not make.
#include <algorithm>
#include <utility>
#include <vector>

#include "planners/autohet/costs.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

std::variant<Seconds, models::Infeasible> autohet_estimate(const PlannerInput& input,
                                                           const ir::Plan& plan) {
  if (auto no = one_group_a_stage(plan)) return *std::move(no);
  const ir::Segment& sample = plan.pipelines.front().stages.front().segments.front();
  const ir::Group& group = sample.groups.front();
  const AutohetSettings settings;
  const AutohetRound round = {
      group.tensor_parallel, static_cast<int>(plan.pipelines.front().micro_batch_size),
      sample.recompute,      plan.schedule,
      sample.zero.stage,     group.sequence};
  const auto units = autohet_units(input, round.tensor, settings.tensor_links);
  if (!units) return not_expressible("the TP dimension does not divide every node");
  const StageCosts stage_costs(input);
  const AutohetCosts costs(input, settings, round, stage_costs, *units);
  Seconds longest{0};
  std::vector<AutohetPipeline> pipelines;
  for (const ir::Pipeline& chain : plan.pipelines) {
    AutohetPipeline pipeline;
    pipeline.micro_batches = static_cast<int>(chain.micro_batches);
    for (const ir::Stage& stage : chain.stages) {
      const std::vector<DeviceId>& devices = stage.segments.front().groups.front().devices;
      const auto unit = std::find_if(costs.units().begin(), costs.units().end(),
                                     [&](const AutohetUnit& u) { return u.devices == devices; });
      if (unit == costs.units().end()) return not_expressible("a group that is no unit");
      pipeline.units.push_back(static_cast<int>(unit - costs.units().begin()));
      pipeline.layers.push_back(layers_of(stage, input.workload));
    }
    longest = std::max(longest, costs.pipeline(pipeline));
    pipelines.push_back(std::move(pipeline));
  }
  return longest + costs.synchronization(pipelines);
}

}  // namespace orrery::planners
