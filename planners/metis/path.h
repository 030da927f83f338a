/// One path of Metis's search through intra-stage plans: which degrees, how layers are divided,
/// what the plan costs. [Metis, ATC 2024, 4.2.2]
#pragma once
#include <vector>

#include "models/ir/plan.h"
#include "planners/metis/balance.h"
#include "planners/metis/bounds.h"
#include "planners/metis/progress.h"
#include "planners/metis/stages.h"

namespace orrery::planners {

/// Paths in one sequence of GPU types. Keeps references and buffers; not for concurrent use.
class MetisPaths {
 public:
  MetisPaths(const MetisProblem& problem, MetisStages& stages, MetisBounds& bounds,
             MetisProgress& progress);

  /// From pure data parallelism until the layers can be divided at the first attempt.
  void follow(MetisPath& path);
  /// Ranks the plan that divides the layers at `cuts`.
  void offer(const MetisPath& path, const std::vector<int>& cuts);
  const MetisStageChoice& choice(const MetisPath& path, int stage) const;
  /// Activations to the next stage of one micro-batch, milliseconds; `end`: of the stage's layers.
  /// Metis counts elements, not bytes.
  double hop(const MetisPath& path, int stage, int end) const;

 private:
  enum class Next { moved, end };

  Next advance(MetisPath& path, const std::vector<double>& memory) const;
  double speed(const MetisStageChoice& choice) const;
  bool divide_layers(const MetisPath& path, std::vector<double>& memory, std::vector<int>& cuts,
                     int& attempts);
  void count_memory(const MetisPath& path, const std::vector<int>& cuts, std::vector<double>& have,
                    std::vector<double>& need);
  double cost(const MetisPath& path, const std::vector<int>& cuts) const;
  bool expressible(const MetisPath& path, const std::vector<int>& cuts);
  ir::Plan build(const MetisPath& path, const std::vector<int>& cuts) const;

  const MetisProblem& problem_;
  const MetisSettings& settings_;
  const MetisTables& tables_;
  MetisStages& stages_;
  MetisBounds& bounds_;
  MetisProgress& progress_;
  LayerBalancer balancer_;
};

}  // namespace orrery::planners
