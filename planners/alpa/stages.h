/// Stages of Alpa: the submeshes that a stage may have, the logical shapes of a submesh, and what a
/// range of layers costs and holds under each. For alpa.cpp alone.
#pragma once
#include <cstdint>
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/names.h"
#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/kit/uniform_chain.h"

namespace orrery::planners {

enum class AlpaSubmeshes { power_of_two, small_power_of_two, all };
enum class AlpaLogical { single_node_model_parallel, same_as_physical, data_parallel_only };
ir::EnumNames<AlpaSubmeshes> enum_names(AlpaSubmeshes);
ir::EnumNames<AlpaLogical> enum_names(AlpaLogical);

struct AlpaSettings : UniformChainSettings {
  int micro_batches = 0;  ///< 0: all divisors of the batch.
  AlpaSubmeshes submeshes = AlpaSubmeshes::all;
  AlpaLogical logical = AlpaLogical::single_node_model_parallel;
  double gap = 1e-6;  ///< Seconds.
};

void describe(config::Visitor& v, AlpaSettings& s);

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

/// A choice is a submesh, of degree 1; a variant of its steps is a logical shape.
class AlpaStages final : public UniformStages {
 public:
  AlpaStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view,
             const AlpaSettings& settings, AlpaCase what);

  const AlpaShape& shape(int submesh, int variant) const { return shapes_[submesh][variant]; }
  /// Some submesh has a shape.
  bool any() const;

 private:
  void add_submesh(int devices);
  /// A step for each logical shape, with the most stages (itself included) up to the last that its
  /// activations leave room for.
  std::vector<StageStep> price(int first, int layers, int submesh) override;
  StageShape stage_shape(int first, int layers, const AlpaShape& shape) const;
  double cost(const StageShape& stage, const AlpaShape& shape) const;
  int most_stages(StageShape stage) const;

  const AlpaSettings& settings_;
  AlpaCase case_;
  std::vector<std::vector<AlpaShape>> shapes_;  ///< By submesh.
};

}  // namespace orrery::planners
