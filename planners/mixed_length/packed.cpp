/// Packing baselines: all sequences are packed into windows of the context's length, longer ones
/// are cut, and one homogeneous plan works off the windows, each as long as the context: attention
/// is over the whole window, as in Megatron's data loader, and its unused end is padding. [Hetu
/// v2, 7.3 and Table 9]
#include <algorithm>
#include <utility>

#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/search.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class Packed final : public StepPlanner {
 public:
  Packed(std::vector<PreparedStrategy> strategies, std::int64_t context)
      : strategies_(std::move(strategies)), context_(context) {}

  const std::vector<PreparedStrategy>& strategies() const override { return strategies_; }

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    const std::size_t windows = pack_windows(lengths, context_).size();
    return {{0, balance(strategies_.front(), std::vector<std::int64_t>(windows, context_)),
             models::StepEnd::update}};
  }

  models::SwitchBytes moved_inside_step(const models::StateBytes&) const override {
    return {0, 0, 0};
  }
  models::SwitchBytes moved_between_steps(const models::StateBytes&) const override {
    return {0, 0, 0};
  }

 private:
  std::vector<PreparedStrategy> strategies_;
  std::int64_t context_;
};

/// Of strategies that were searched: for the context.
std::unique_ptr<StepPlanner> with(std::vector<PreparedStrategy> strategies) {
  const std::int64_t context = strategies.empty() ? 0 : strategies.front().longest();
  return std::make_unique<Packed>(std::move(strategies), context);
}

StepPlannerResult make(const MixedLengthInput& input) {
  if (input.set.strategies.size() != 1) {
    return models::Infeasible{"one strategy", "packing runs every step under one strategy"};
  }
  auto made = prepare_all(input);
  if (auto* no = std::get_if<models::Infeasible>(&made)) return std::move(*no);
  auto& strategies = std::get<std::vector<PreparedStrategy>>(made);
  for (int p = 0; p < strategies.front().pipelines(); ++p) {
    if (strategies.front().limit(p) < input.context) {
      return models::Infeasible{"device memory", "a pipeline does not hold one window"};
    }
  }
  return std::make_unique<Packed>(std::move(strategies), input.context);
}

StrategySearchResult search_ulysses(const StrategySearchInput& input) {
  return search_strategies(
      input, {.homogeneous = true, .packed = true, .make = with, .candidates = ulysses_candidates});
}

StrategySearchResult search_ring(const StrategySearchInput& input) {
  return search_strategies(
      input, {.homogeneous = true, .packed = true, .make = with, .candidates = ring_candidates});
}

constexpr const char* kDecides = "how sequences are packed into windows of the context's length";

}  // namespace

extern const StepPlannerEntry kPackedDeepspeed;
extern const StepPlannerEntry kPackedMegatron;

const StepPlannerEntry kPackedDeepspeed = {
    "packed_deepspeed",
    "Hetu v2, 7.3 and Table 9 (DeepSpeed)",
    kDecides,
    "lengths inside a window: every window costs as much as a full sequence",
    make,
    search_ulysses};
const StepPlannerEntry kPackedMegatron = {
    "packed_megatron",
    "Hetu v2, 7.3 and Table 9 (Megatron)",
    kDecides,
    "lengths inside a window: every window costs as much as a full sequence",
    make,
    search_ring};

}  // namespace orrery::planners
