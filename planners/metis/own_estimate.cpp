/// The cost of section 4.2.1 on plans that the search did not make.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/metis/stages.h"
#include "planners/metis/tables.h"

namespace orrery::planners {

namespace {

/// GPU types in the order in which the stages of the pipeline meet them.
std::vector<int> sequence_of(const PlannerInput& input, const ir::Pipeline& chain) {
  std::vector<int> types;
  for (const ir::Stage& stage : chain.stages) {
    for (const ir::Group& group : stage.segments.front().groups) {
      const int type = input.cluster.device(group.devices.front()).gpu_type;
      if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
    }
  }
  return types;
}

}  // namespace

std::variant<Seconds, models::Infeasible> metis_estimate(const PlannerInput& input,
                                                         const ir::Plan& plan) {
  if (plan.pipelines.size() != 1) return not_expressible("Metis has one pipeline");
  const ir::Pipeline& chain = plan.pipelines.front();
  for (const ir::Stage& stage : chain.stages) {
    if (stage.segments.size() != 1) return not_expressible("a stage of several segments");
  }
  const ir::Recompute recompute = chain.stages.front().segments.front().recompute;
  const MetisSettings settings;
  const MetisTables tables = make_metis_tables(input, recompute);
  if (!tables.problem.empty()) return not_expressible(tables.problem);
  const MetisPlacement placement(input, false, sequence_of(input, chain));
  const std::vector<std::int64_t> batches = {chain.micro_batches};
  MetisStages stages(input, settings, tables, placement, batches, recompute);
  double sum = 0, slowest = 0, hops = 0, sync = 0, reduce = 0, update = 0;
  int first = 0;
  for (std::size_t s = 0; s < chain.stages.size(); ++s) {
    const ir::Segment& segment = chain.stages[s].segments.front();
    const int tensor = segment.groups.front().tensor_parallel;
    const int size = tensor * static_cast<int>(segment.groups.size());
    const int step = std::countr_zero(static_cast<unsigned>(tensor));
    if (!std::has_single_bit(static_cast<unsigned>(size)) || step >= stages.steps(size)) {
      return not_expressible("a stage whose size or degree Metis does not search");
    }
    if (placement.devices[first] != segment.groups.front().devices.front()) {
      return not_expressible("devices out of Metis's order");
    }
    const MetisStageChoice& choice = stages.choice(first, size, 0, step);
    if (!choice.valid) return not_expressible("a degree that Metis does not search");
    const int begin = segment.first_block.value, end = segment.last_block.value + 1;
    const double time = stages.time(choice, begin, end);
    sum += time;
    slowest = std::max(slowest, time);
    if (s + 1 == chain.stages.size()) {
      sync = choice.sync_ms;
    } else {
      const ir::Segment& next = chain.stages[s + 1].segments.front();
      hops += stages.hop(choice, first, size,
                         next.groups.front().tensor_parallel * static_cast<int>(next.groups.size()),
                         end);
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

}  // namespace orrery::planners
