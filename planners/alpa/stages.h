/// Stages of Alpa: the submeshes that a stage may have, the logical shapes of a submesh, and what a
/// range of layers costs and holds under each. For alpa.cpp alone.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "models/ir/plan.h"
#include "planners/kit/stage_chain.h"
#include "planners/kit/uniform_view.h"

namespace orrery::planners {

enum class AlpaSubmeshes { power_of_two, small_power_of_two, all };
enum class AlpaLogical { single_node_model_parallel, same_as_physical, data_parallel_only };

struct AlpaSettings {
  int micro_batches = 0;  ///< 0: all divisors of the batch.
  int gpus_per_host = 0;  ///< 0: all that use most devices.
  AlpaSubmeshes submeshes = AlpaSubmeshes::power_of_two;
  AlpaLogical logical = AlpaLogical::single_node_model_parallel;
  ViewedSpeed speed = ViewedSpeed::average;
  double gap = 1e-6;  ///< Seconds.
  int evaluate_top = 1;
};

/// How a submesh runs a stage.
struct AlpaShape {
  int data = 1;    ///< Groups that share each micro-batch.
  int tensor = 1;  ///< Devices of a group.
  int zero = 0;
};

/// What is the same for all stages of a plan.
struct AlpaCase {
  std::int64_t micro_batches = 1;
  int micro_batch_size = 1;  ///< Samples, of the whole micro-batch.
  ir::Recompute recompute = ir::Recompute::none;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

class AlpaStages {
 public:
  AlpaStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view,
             const AlpaSettings& settings, AlpaCase what);

  /// Submeshes: devices of each, ascending; degree 1.
  const std::vector<StageChoice>& submeshes() const { return submeshes_; }
  const AlpaShape& shape(int submesh, int variant) const {
    return shapes_[static_cast<std::size_t>(submesh)][static_cast<std::size_t>(variant)];
  }
  bool any() const;
  /// Steps of the layers first ... last on a submesh: one for each logical shape, with the most
  /// stages (itself included) up to the last that its activations leave room for.
  std::vector<StageStep> steps(int first, int last, int submesh);

  /// Ranges of layers under a shape that do not fit even as the last stage.
  std::int64_t rejected() const { return rejected_; }
  /// Of each layer alone the least need under any shape; the largest of these, and its layer.
  std::pair<Bytes, int> hardest_layer() const;

 private:
  void add_submesh(int devices);
  StageShape stage_shape(int first, int layers, const AlpaShape& shape) const;
  double cost(const StageShape& stage, const AlpaShape& shape) const;
  int most_stages(StageShape stage);

  const PlannerInput& input_;
  const StageCosts& costs_;
  const UniformView& view_;
  const AlpaSettings& settings_;
  AlpaCase case_;
  std::vector<StageChoice> submeshes_;
  std::vector<std::vector<AlpaShape>> shapes_;  ///< By submesh.
  std::vector<Bytes> least_need_;               ///< By layer; 0: not asked.
  std::int64_t rejected_ = 0;
  using Memo = std::vector<std::vector<StageStep>>;
  Memo memo_;  ///< By (submesh, layers, first is 0, last is the end).
  std::vector<char> known_;
};

}  // namespace orrery::planners
