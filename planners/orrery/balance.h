/// Divides what a draft's structure leaves open: layers over the stages of a pipeline, with as much
/// recomputation as memory asks for, and samples over pipelines.
#pragma once
#include <cstddef>
#include <map>
#include <vector>

#include "planners/orrery/costs.h"
#include "planners/orrery/draft.h"

namespace orrery::planners {

/// Keeps a reference to the costs. Not for concurrent use.
class DraftBalance {
 public:
  DraftBalance(const PlannerInput& input, const DraftCosts& costs) : input_(input), costs_(costs) {}

  /// Layers for the shortest longest stage: one more to the stage that then takes least, from one
  /// layer each on, which is optimal as a stage with more layers never takes less. False: no
  /// division fits in memory, and the draft is as it was.
  /// `replicas`: pipelines of the plan; 0: of the draft.
  bool layers(Draft& draft, std::size_t pipeline, int replicas = 0) const;
  /// That for all pipelines, of those that are alike once.
  bool all_layers(Draft& draft) const;
  /// Recomputation alone, for the layers that a stage has. False: they do not fit.
  bool recompute(Draft& draft, std::size_t pipeline, std::size_t stage) const;
  /// Micro-batches for the earliest end of the last pipeline, one after the other to the pipeline
  /// that would end first. False: the sizes of micro-batches do not add up to the batch.
  bool batches(Draft& draft) const;

  /// Of a pipeline alone: longest stage, and all stages, for a micro-batch.
  struct Chain {
    double longest = 0;
    double sum = 0;
  };
  Chain chain(const Draft& draft, std::size_t pipeline, int replicas = 0) const;

  /// What decides layers and times of a pipeline: equal for pipelines that are alike.
  std::vector<int> kind(const DraftPipeline& pipeline) const;

 private:
  const PlannerInput& input_;
  const DraftCosts& costs_;
};

}  // namespace orrery::planners
