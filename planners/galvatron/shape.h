/// A pipeline shape of Galvatron (stages, micro-batches, possible strategies): the layer program of
/// each stage, and how long the whole pipeline takes with the strategies chosen.
/// [Miao et al., VLDB 2023]
#pragma once
#include <optional>
#include <vector>

#include "planners/galvatron/costs.h"
#include "planners/galvatron/layers.h"

namespace orrery::planners {

/// An even pipeline over all devices, and the strategies possible in its stages.
struct GalvatronShape {
  int stages = 1;
  int micro_batches = 1;
  int batch = 1;           ///< Samples of a micro-batch.
  std::vector<int> first;  ///< [stages + 1] First layer of each stage, and the end.
  /// Strategies of equal TP are neighbors; they have the same layout of activations.
  std::vector<GalvatronStrategy> strategies;
};

/// A strategy for each layer.
using GalvatronPlan = std::vector<GalvatronStrategy>;

class GalvatronProgram {
 public:
  /// `published`: as the option `mode` of the planner. Keeps a reference to `costs`.
  GalvatronProgram(const GalvatronCosts& costs, int devices, ir::ScheduleKind schedule,
                   int memory_steps, bool published)
      : costs_(costs),
        devices_(devices),
        schedule_(schedule),
        memory_steps_(memory_steps),
        published_(published) {}

  /// The layers of a stage. A layer weighs (m - 1 + P) times its computation and once what gradient
  /// reduction adds; as published, one micro-batch with reduction. Budget: that of the smallest
  /// device less the largest transient of the stage.
  LayerChoices choices(const GalvatronShape& shape, int stage) const;
  /// The fastest strategies of each stage; nothing when a stage does not fit. Without memory: as if
  /// everything fitted.
  std::optional<GalvatronPlan> choose(const GalvatronShape& shape, bool with_memory) const;
  /// galvatron_iteration() over the stages, changes of strategy counted in each micro-batch.
  Seconds estimate(const GalvatronShape& shape, const GalvatronPlan& plan) const;

 private:
  double rounds(const GalvatronShape& shape) const {
    return published_ ? 1 : shape.micro_batches - 1 + shape.stages;
  }

  const GalvatronCosts& costs_;
  int devices_;
  ir::ScheduleKind schedule_;
  int memory_steps_;
  bool published_;
};

}  // namespace orrery::planners
