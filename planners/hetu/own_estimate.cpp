/// The iteration objective on plans that the search did not make.
#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "planners/hetu/costs.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

std::variant<Seconds, models::Infeasible> hetu_estimate(const PlannerInput& input,
                                                        const ir::Plan& plan) {
  if (auto no = one_group_a_stage(plan)) return *std::move(no);
  const HetuCostSettings settings;
  const HetuCosts costs(input, settings);
  int full = 1;
  for (const ir::Pipeline& chain : plan.pipelines) {
    for (const ir::Stage& stage : chain.stages) {
      full = std::max(full, stage.segments.front().groups.front().tensor_parallel);
    }
  }
  const ir::Segment& sample = plan.pipelines.front().stages.front().segments.front();
  const HetuVariant variant = {static_cast<int>(plan.pipelines.front().micro_batch_size),
                               sample.recompute, sample.zero.stage, plan.schedule};
  const HetuGroups groups = costs.groups(full, true);
  HetuLayout layout;
  for (const ir::Pipeline& printed : plan.pipelines) {
    HetuChain chain;
    chain.micro_batches = static_cast<int>(printed.micro_batches);
    for (const ir::Stage& stage : printed.stages) {
      const std::vector<DeviceId>& devices = stage.segments.front().groups.front().devices;
      int found = -1;
      for (std::size_t c = 0; c < groups.classes.size(); ++c) {
        const auto& all = groups.classes[c].groups;
        if (std::find(all.begin(), all.end(), devices) != all.end()) found = static_cast<int>(c);
      }
      if (found < 0) return not_expressible("a group that the degrees do not give");
      chain.classes.push_back(found);
      chain.groups.push_back(devices);
      chain.layers.push_back(layers_of(stage, input.workload));
      chain.period = std::max(chain.period,
                              costs.layer_time(groups, found, variant).value * chain.layers.back());
    }
    layout.push_back(std::move(chain));
  }
  return costs.estimate(groups, variant, layout);
}

}  // namespace orrery::planners
