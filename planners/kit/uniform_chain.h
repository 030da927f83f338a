/// One chain of stages over a uniform grid of hosts x GPUs, by dynamic programming: what Alpa and
/// Piper have in common. UniformStages prices ranges of layers; UniformChainSearch tries host sizes
/// and ranks the chains that a planner finds in each view.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/base/units.h"
#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/kit/ranking.h"
#include "planners/kit/stage_chain.h"
#include "planners/kit/stage_costs.h"
#include "planners/kit/uniform_view.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Settings of every search for a chain; 0 GPUs per host: all of host_sizes().
struct UniformChainSettings {
  int gpus_per_host = 0;
  ViewedSpeed speed = ViewedSpeed::average;
  int evaluate_top = 1;
};

/// gpus_per_host is 0 or a power of two.
void check_host_size(config::Visitor& v, const UniformChainSettings& settings);

/// Steps of ranges of layers under choices of devices, for StageChain. Each range that costs
/// something of its own is priced once.
class UniformStages {
 public:
  virtual ~UniformStages() = default;

  const std::vector<StageChoice>& choices() const { return choices_; }
  /// Steps of the layers first ... last under a choice. [UniformView::representative]
  std::vector<StageStep> steps(int first, int last, int choice);

  /// Ranges of layers that do not fit even as the last stage.
  std::int64_t rejected() const { return rejected_; }
  /// The layer that needs most memory alone, under the choice that suits it best.
  std::pair<Bytes, int> hardest_layer() const;

 protected:
  /// Keeps references.
  UniformStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view)
      : input_(input), costs_(costs), view_(view), least_need_(costs.layers()) {}
  virtual std::vector<StageStep> price(int first, int layers, int choice) = 0;
  /// What layer `layer` needs alone under some choice.
  void note_need(int layer, Bytes need);

  const PlannerInput& input_;
  const StageCosts& costs_;
  const UniformView& view_;
  std::vector<StageChoice> choices_;  ///< Not changed after the first steps().
  std::int64_t rejected_ = 0;

 private:
  std::vector<Bytes> least_need_;  ///< By layer; 0: not known.
  /// By choice, first layer, number of layers.
  std::vector<std::optional<std::vector<StageStep>>> memo_;
};

class UniformChainSearch {
 public:
  virtual ~UniformChainSearch() = default;
  PlannerResult run();

 protected:
  /// How a planner speaks of its search.
  struct Words {
    const char* planner;  ///< Name in the catalog.
    const char* stages;   ///< What a chain consists of; the constraint when there is none.
    const char* shared;   ///< What the stages share besides layers: "micro-batches of a batch".
    const char* at_best;  ///< Where a layer needs least: "on the submesh that suits it best".
  };
  /// Keeps references to input and settings.
  UniformChainSearch(const PlannerInput& input, const UniformChainSettings& settings, Words words)
      : input_(input), costs_(input), ranking_(input), grid_(settings), words_(words) {}

  /// What the planner's own settings forbid.
  virtual std::optional<models::Infeasible> refuse() const = 0;
  /// Searches all that is to be searched in a view, until proceed() or the report says stop.
  virtual void sweep(const UniformView& view) = 0;

  /// Counts one table of the dynamic program; false when the search must end.
  bool proceed();
  /// Counts what memory forbids; `what` names the case in words.
  void note_memory(const UniformStages& stages, const UniformView& view,
                   const std::function<std::string()>& what);

  const PlannerInput& input_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;

 private:
  std::optional<models::Infeasible> missing();
  models::Infeasible nothing(const std::vector<int>& sizes) const;

  const UniformChainSettings& grid_;
  Words words_;
  ConstraintCost memory_{kDeviceMemory, 0, std::nullopt, ""};
  Bytes least_excess_;
};

}  // namespace orrery::planners
