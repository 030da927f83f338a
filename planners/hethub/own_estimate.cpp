/// The 1F1B predictor on plans that the search did not make.
#include <algorithm>
#include <utility>
#include <vector>

#include "planners/hethub/stages.h"
#include "planners/kit/plan_parts.h"

namespace orrery::planners {

std::variant<Seconds, models::Infeasible> hethub_estimate(const PlannerInput& input,
                                                          const ir::Plan& plan) {
  if (auto no = one_group_a_stage(plan)) return *std::move(no);
  const ir::Pipeline& first = plan.pipelines.front();
  const ir::Segment& sample = first.stages.front().segments.front();
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
      if (chain.stages.size() != first.stages.size()) {
        return not_expressible("pipelines of unequal length");
      }
      groups.push_back(chain.stages[s].segments.front().groups.front().devices);
    }
    const auto place =
        std::find_if(stages.places().begin(), stages.places().end(),
                     [&](const HethubPlace& candidate) { return candidate.groups == groups; });
    if (place == stages.places().end()) {
      return not_expressible("the groups of a stage are no place");
    }
    order.push_back({static_cast<int>(place - stages.places().begin()),
                     layers_of(first.stages[s], input.workload)});
  }
  return predict_iteration(stages.predict(order, degrees), degrees.micro_batches);
}

}  // namespace orrery::planners
