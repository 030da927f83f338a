/// Moves that change which groups of a stage hold the experts of its layers together, and which of
/// them holds how many.
#pragma once
#include <vector>

#include "models/base/rng.h"
#include "planners/orrery/costs.h"
#include "planners/orrery/draft.h"
#include "planners/planner.h"

namespace orrery::planners {

struct MoveLimits;

class ExpertMoves {
 public:
  /// Keeps references.
  ExpertMoves(const PlannerInput& input, const DraftCosts& costs, const MoveLimits& limits)
      : input_(input), costs_(costs), limits_(limits) {}

  /// What other moves did to groups may leave fewer that can share experts.
  void keep(Draft& draft) const;

  using Pipelines = std::vector<std::size_t>;
  /// One move of those pipelines; false: it does not apply (the draft may be spoiled).
  bool change(Draft& draft, const Pipelines& pipelines, Rng& rng) const;

 private:
  bool join(Draft& draft, const Pipelines& pipelines, int count) const;
  bool split(DraftPipeline& pipeline, std::size_t stage, int count) const;
  bool mixes_types(const DraftStage& stage) const;
  bool change_shares(Draft& draft, const Pipelines& pipelines, Rng& rng) const;
  void balance_shares(DraftStage& stage) const;
  int layer_with_experts() const;

  const PlannerInput& input_;
  const DraftCosts& costs_;
  const MoveLimits& limits_;
};

}  // namespace orrery::planners
