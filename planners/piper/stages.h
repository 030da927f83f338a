/// Stages of Piper: time per sample and memory of a range of layers under tensor and data degrees,
/// with recomputation of as many layers as memory asks for. For piper.cpp alone.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "models/cost/memory.h"
#include "models/ir/plan.h"
#include "planners/kit/stage_chain.h"
#include "planners/kit/uniform_view.h"

namespace orrery::planners {

enum class PiperMemory { paper, plan };
enum class PiperRecompute { per_layer, all_or_none, never };

struct PiperSettings {
  int micro_batch_size = 0;  ///< 0: all divisors of the batch that the job allows.
  int gpus_per_host = 0;     ///< 0: all that use most devices.
  PiperMemory memory = PiperMemory::paper;
  PiperRecompute recompute = PiperRecompute::per_layer;
  bool tensor = true;
  bool data = true;
  ViewedSpeed speed = ViewedSpeed::average;
  int evaluate_top = 1;
};

/// What is the same for all stages of one search.
struct PiperCase {
  int micro_batch_size = 1;        ///< Samples that a group computes at once: the paper's sample.
  std::int64_t micro_batches = 1;  ///< Of that size, per step: the paper's batch.
  /// Data degrees divide it: a micro-batch of the plan is a round of so many micro-batches.
  int round = 1;
  PiperMemory memory = PiperMemory::paper;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

struct PiperDegrees {
  int tensor = 1;
  int data = 1;
};

class PiperStages {
 public:
  PiperStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view,
              const PiperSettings& settings, PiperCase what);

  const std::vector<StageChoice>& choices() const { return choices_; }
  const PiperDegrees& degrees(int choice) const {
    return degrees_[static_cast<std::size_t>(choice)];
  }
  /// The largest load of a first stage.
  int most_load() const;

  /// Step r recomputes the r layers that give most memory for least time, r = 0, 1, ...
  std::vector<StageStep> steps(int first, int last, int choice);
  /// Layers that a step recomputes, by position in the range.
  std::vector<char> recomputed(int first, int last, int choice, int variant);
  /// The least and the most recomputation that the job and the settings allow.
  ir::Recompute keeping() const { return keeping_; }
  ir::Recompute recomputing() const { return recomputing_; }

  /// Ranges that do not fit under some degrees even as the last stage.
  std::int64_t rejected() const { return rejected_; }
  /// Of each layer alone the least need under any degrees; the largest of these, and its layer.
  std::pair<Bytes, int> hardest_layer() const;

 private:
  /// A layer's gain and price of recomputation.
  struct Saving {
    Bytes kept;          ///< Not kept any more, for each micro-batch in flight.
    Bytes transient;     ///< Held in its backward pass instead.
    double seconds = 0;  ///< More, per micro-batch.
  };
  StageShape shape(int first, int layers, const PiperDegrees& degrees, ir::Recompute recompute,
                   int samples) const;
  models::SegmentMemory memory(const StageShape& stage) const;
  int samples_held(const PiperDegrees& degrees) const;
  const Saving& saving(int layer, const PiperDegrees& degrees);
  std::vector<int> order(int first, int last, const PiperDegrees& degrees);
  double communication(int first, int last, const PiperDegrees& degrees) const;
  Bytes unshared(int first, int layers, const PiperDegrees& degrees) const;
  int most_load_for(double in_flight, const PiperDegrees& degrees) const;

  const PlannerInput& input_;
  const StageCosts& costs_;
  const UniformView& view_;
  const PiperSettings& settings_;
  PiperCase case_;
  ir::Recompute keeping_;
  ir::Recompute recomputing_;
  int zero_;
  std::vector<StageChoice> choices_;
  std::vector<PiperDegrees> degrees_;
  std::map<std::tuple<int, int, int>, Saving> savings_;
  std::map<std::tuple<int, int, int>, std::vector<StageStep>> memo_;
  std::vector<Bytes> least_need_;
  std::int64_t rejected_ = 0;
};

}  // namespace orrery::planners
