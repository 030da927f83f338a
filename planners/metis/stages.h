/// What a stage of Metis's search costs: for a range of ranks, a number of micro-batches and a
/// tensor-parallel degree the time, memory and network numbers of Metis's cost model (ATC 2024,
/// 4.2.1 and 4.3). Also bounds on them, so that the search can leave out what cannot win.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "models/base/ids.h"
#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/kit/stage_costs.h"
#include "planners/metis/choices.h"
#include "planners/metis/placement.h"
#include "planners/metis/settings.h"
#include "planners/metis/tables.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Best case over the choices of a range of ranks whose degree is at least a given one: lower
/// bounds, in milliseconds.
struct MetisStageBound {
  double per_share = kNever;  ///< Least time of an inner layer over its share of the demand.
  double first = kNever;      ///< Embedding.
  double last = kNever;       ///< Head.
  double sync = kNever;
  double samples = kNever;  ///< MetisStageChoice::nominal.
};

/// What every inner layer (neither embedding nor head) costs a choice at least.
struct MetisLayerBound {
  double time = kNever;  ///< Milliseconds of each micro-batch.
  /// Layers per millisecond, when a layer costs its time for all micro-batches but one, and its
  /// gradients and its part of the optimizer once.
  double rate = 0;
  double states_mb = 0;  ///< On the tightest device.
  double kept_mb = 0;    ///< Likewise, for each micro-batch in flight.
  double have_mb = 0;
};

/// Choices and bounds for ranges of ranks, made when first asked for. Not for concurrent use.
class MetisStages {
 public:
  /// Keeps references. `batches`: numbers of micro-batches.
  MetisStages(const PlannerInput& input, const MetisSettings& settings, const MetisTables& tables,
              const MetisPlacement& placement, const std::vector<std::int64_t>& batches,
              ir::Recompute recompute);

  const MetisPlacement& placement() const { return placement_; }
  /// `batch` is a position in `batches`; `step` the exponent of the tensor-parallel degree, below
  /// steps(size): degrees that were measured. `size` is a power of two.
  const MetisStageChoice& choice(int first, int size, int batch, int step);
  const MetisStageBound& bound(int first, int size, int batch, int step);
  /// By step.
  std::span<const MetisLayerBound> layer_bounds(int first, int size, int batch) {
    const int place = (first * sizes_ + std::countr_zero(static_cast<unsigned>(size)));
    const int known = bounds_at_[as_size(place) * batches_.size() + as_size(batch)];
    const int begin = known >= 0 ? known : make_layer_bounds(first, size, batch);
    return {layer_bounds_.data() + begin, as_size(steps(size))};
  }
  int steps(int size) const {
    return std::min(static_cast<int>(std::bit_width(static_cast<unsigned>(size))),
                    tables_.tensor_steps);
  }

  /// Slowest replica on layers [begin, end), milliseconds.
  double time(const MetisStageChoice& choice, int begin, int end) const {
    return maker_->time(choice, begin, end);
  }
  /// Gradients of the layers, undivided, in bytes.
  double parameters(int begin, int end) const;
  /// A segment of the job's search without groups.
  ir::Segment segment(int begin, int end) const;
  /// Memory is counted for each device, not by the rule of the public code.
  bool device_rule() const { return device_rule_; }
  /// Megabytes that the stage has and that the layers need by the rule of the public code.
  double group_memory(int first, int size) const;
  double layer_memory(const MetisStageChoice& choice, int begin, int end) const;
  /// The same for the tightest device of the stage, as check_memory() counts.
  std::pair<double, double> device_memory(const MetisStageChoice& choice, int begin, int end,
                                          int in_flight);
  /// Activations of one sample to the next stage, milliseconds.
  double hop_per_sample(int first, int size, int next_size);
  /// Of a micro-batch, from a stage of `size` ranks from `first` on whose layers stop before `end`.
  double hop(const MetisStageChoice& from, int first, int size, int next_size, int end) {
    return from.nominal * head_input(from.tensor, end) * hop_per_sample(first, size, next_size);
  }
  /// Elements of an activation over the hidden size; `end`: the layer that takes it.
  double head_input(int tensor, int end) const;

 private:
  struct Slot {
    int choice = -1;
    int bound = -1;
  };
  Slot& slot(int first, int size, int batch, int step);
  int make_layer_bounds(int first, int size, int batch);
  MetisLayerBound make_layer_bound(const MetisStageChoice& choice, int first, int size, int batch);

  const PlannerInput& input_;
  const MetisSettings& settings_;
  const MetisTables& tables_;
  const MetisPlacement& placement_;
  std::vector<std::int64_t> batches_;
  ir::Recompute recompute_;
  std::unique_ptr<MetisChoices> maker_;
  bool device_rule_;
  double least_bytes_ = 0;  ///< Gradients of the smallest inner layer.
  int sizes_ = 0;
  StageCosts costs_;
  std::vector<Slot> slots_;
  std::deque<MetisStageChoice> choices_;
  std::vector<int> bounds_at_;  ///< By range and batch, into layer_bounds_; negative: not yet.
  std::vector<MetisLayerBound> layer_bounds_;
  std::vector<MetisStageBound> bounds_;
  std::vector<double> hops_;  ///< By first rank and both sizes; negative: not yet known.
  struct Peak {
    double fixed = -1;  ///< States, transients, staging; negative: not yet known.
    double states = 0;
    double per_in_flight = 0;
  };
  void add_table(const MetisStageChoice& choice, MetisStageChoice::Kind& kind);
  const Peak& peak(const MetisStageChoice& choice, const MetisStageChoice::Kind& kind, int begin,
                   int end);
  std::map<std::tuple<int, int, int>, int> table_of_;  ///< By degrees and samples.
  std::deque<std::vector<Peak>> peaks_;
};

/// PlannerEntry::estimate.
OwnEstimate metis_estimate;

}  // namespace orrery::planners
