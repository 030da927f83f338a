#include "planners/galvatron/shape.h"

#include <algorithm>

#include "models/cost/memory.h"
#include "planners/kit/integers.h"

namespace orrery::planners {
LayerChoices GalvatronProgram::choices(const GalvatronShape& shape, int stage) const {
  const std::vector<GalvatronStrategy>& strategies = shape.strategies;
  const double weight = rounds(shape);
  const int in_flight =
      models::micro_batches_in_flight(schedule_, shape.stages, stage, shape.micro_batches, 1);
  LayerChoices result;
  std::vector<int> tensor;  // By layout.
  for (const GalvatronStrategy& s : strategies) {
    if (tensor.empty() || tensor.back() != s.tensor) tensor.push_back(s.tensor);
    result.layout.push_back(static_cast<int>(tensor.size()) - 1);
  }
  const int per_stage = devices_ / shape.stages;
  for (const double from : tensor) {
    std::vector<double>& row = result.change.emplace_back();
    for (const double to : tensor) {
      const double larger = published_ ? to : std::max(from, to);
      const double share =
          published_ ? (to > from ? (to - 1) / to : 0) : 1 - std::min(from, to) / larger;
      const double samples = shape.batch * larger / per_stage;
      row.push_back(weight * share * samples * costs_.tensor_link(static_cast<int>(larger)));
    }
  }
  result.any_change = weight * 1e-9;  // As published: sorts equal assignments.
  double transient = 0;
  for (int l = shape.first[stage]; l < shape.first[stage + 1]; ++l) {
    std::vector<double>& time = result.time.emplace_back();
    std::vector<double>& memory = result.memory.emplace_back();
    for (const GalvatronStrategy& s : strategies) {
      const GalvatronTime one = costs_.layer(l, s, shape.stages, shape.batch);
      time.push_back(published_ ? one.total : weight * one.compute + (one.total - one.compute));
      memory.push_back(costs_.memory(l, s, shape.batch, in_flight));
      transient = std::max(transient, costs_.reserve(l, s, shape.batch));
    }
    result.moved.push_back(costs_.activation(l));
  }
  result.budget = costs_.budget() - transient;
  result.steps = memory_steps_;
  return result;
}

std::optional<GalvatronPlan> GalvatronProgram::choose(const GalvatronShape& shape,
                                                      bool with_memory) const {
  GalvatronPlan plan;
  for (int stage = 0; stage < shape.stages; ++stage) {
    LayerChoices layers = choices(shape, stage);
    if (!with_memory) {
      for (std::vector<double>& memory : layers.memory) memory.assign(memory.size(), 0);
      layers.budget = layers.steps = 1;
    }
    const auto chosen = choose_strategies(layers);
    if (!chosen) return std::nullopt;
    for (const int s : chosen->strategy) plan.push_back(shape.strategies[s]);
  }
  return plan;
}

Seconds GalvatronProgram::estimate(const GalvatronShape& shape, const GalvatronPlan& plan) const {
  std::vector<GalvatronTime> stages;
  for (int stage = 0; stage < shape.stages; ++stage) {
    const LayerChoices layers = choices(shape, stage);
    GalvatronTime& sum = stages.emplace_back();
    const int first = shape.first[stage];
    int before = -1;
    for (int l = first; l < shape.first[stage + 1]; ++l) {
      const GalvatronStrategy& strategy = plan[l];
      const GalvatronTime one = costs_.layer(l, strategy, shape.stages, shape.batch);
      const int now =
          static_cast<int>(std::find(shape.strategies.begin(), shape.strategies.end(), strategy) -
                           shape.strategies.begin());
      const double change =
          l > first ? change_cost(layers, l - first, before, now) / rounds(shape) : 0;
      sum.compute += one.compute + change;
      sum.total += one.total + change;
      before = now;
    }
  }
  return Seconds{galvatron_iteration(stages, shape.micro_batches)};
}

}  // namespace orrery::planners
