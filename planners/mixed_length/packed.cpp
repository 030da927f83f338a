/// Packing baselines: all sequences are packed into windows of the context's length (longer ones
/// are cut), and one homogeneous plan works off the windows. Every window costs as much as one
/// sequence of the context's length: attention spans the whole window, as in Megatron's data
/// loader, and its unused end is padding. [Hetu v2, 7.3 and Table 9]
#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/candidates.h"
#include "planners/mixed_length/step_planner.h"

namespace orrery::planners {
namespace {

class Packed final : public StepPlanner {
 public:
  using StepPlanner::StepPlanner;

  StepDecision plan(std::span<const std::int64_t> lengths) const override {
    const std::vector<std::int64_t> windows(pack_windows(lengths, context()).size(), context());
    return {{0, balance(strategies().front(), windows), models::StepEnd::update}};
  }
};

using Candidates = decltype(StrategyRule::candidates);

constexpr StepPlannerEntry packed(const char* name, const char* source, Candidates candidates) {
  return {name,
          source,
          "how sequences are packed into windows of the context's length",
          "lengths inside a window: every window costs as much as a full sequence",
          {.with = step_planner_with<Packed>,
           .homogeneous = true,
           .packed = true,
           .candidates = candidates}};
}

}  // namespace

extern const StepPlannerEntry kPackedDeepspeed;
extern const StepPlannerEntry kPackedMegatron;

const StepPlannerEntry kPackedDeepspeed =
    packed("packed_deepspeed", "Hetu v2, 7.3 and Table 9 (DeepSpeed)", ulysses_candidates);
const StepPlannerEntry kPackedMegatron =
    packed("packed_megatron", "Hetu v2, 7.3 and Table 9 (Megatron)", ring_candidates);

}  // namespace orrery::planners
