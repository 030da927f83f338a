/// Stages of Piper: time per sample and memory of a range of layers under tensor and data degrees,
/// with recomputation of as many layers as memory asks for. For piper.cpp alone.
#pragma once
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "models/config/visitor.h"
#include "models/cost/memory.h"
#include "models/ir/names.h"
#include "models/ir/plan.h"
#include "planners/kit/integers.h"
#include "planners/kit/uniform_chain.h"

namespace orrery::planners {

enum class PiperMemory { paper, plan };
enum class PiperRecompute { per_layer, all_or_none, never };
ir::EnumNames<PiperMemory> enum_names(PiperMemory);
ir::EnumNames<PiperRecompute> enum_names(PiperRecompute);

struct PiperSettings : UniformChainSettings {
  int micro_batch_size = 0;  ///< 0: all divisors of the batch that the job allows.
  PiperMemory memory = PiperMemory::paper;
  PiperRecompute recompute = PiperRecompute::per_layer;
  bool tensor = true;
  bool data = true;
};

void describe(config::Visitor& v, PiperSettings& s);

/// What is the same for all stages of one search.
struct PiperCase {
  int micro_batch_size = 1;        ///< Samples that a group computes at once: the paper's sample.
  std::int64_t micro_batches = 1;  ///< Of that size, per step: the paper's batch.
  /// Micro-batches that make up one of the plan; data degrees divide it.
  int round = 1;
  PiperMemory memory = PiperMemory::paper;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

struct PiperDegrees {
  int tensor = 1;
  int data = 1;
};

/// Step r recomputes the r layers that give most memory for least time, r = 0, 1, ...
class PiperStages final : public UniformStages {
 public:
  PiperStages(const PlannerInput& input, const StageCosts& costs, const UniformView& view,
              const PiperSettings& settings, PiperCase what);

  const PiperDegrees& degrees(int choice) const { return degrees_[choice]; }
  /// The largest load of a first stage.
  int most_load() const;
  /// Layers that a step recomputes, by position in the range.
  std::vector<char> recomputed(int first, int last, int choice, int variant);
  /// The least and the most recomputation that the job and the settings allow.
  ir::Recompute keeping() const { return keeping_; }
  ir::Recompute recomputing() const { return recomputing_; }

 private:
  /// What recomputing a layer saves and costs.
  struct Saving {
    Bytes kept;          ///< No longer kept for each micro-batch in flight.
    Bytes transient;     ///< Held during its backward pass instead.
    double seconds = 0;  ///< Added per micro-batch.
  };
  std::vector<StageStep> price(int first, int layers, int choice) override;
  StageShape shape(int first, int layers, const PiperDegrees& degrees, ir::Recompute recompute,
                   int samples) const;
  models::SegmentMemory memory(const StageShape& stage) const;
  int samples_held(const PiperDegrees& degrees) const;
  const Saving& saving(int layer, const PiperDegrees& degrees);
  std::vector<int> order(int first, int last, const PiperDegrees& degrees);
  double communication(int first, int last, const PiperDegrees& degrees) const;
  Bytes unshared(int first, int layers, const PiperDegrees& degrees) const;
  int most_load_for(double in_flight, const PiperDegrees& degrees) const;

  const PiperSettings& settings_;
  PiperCase case_;
  ir::Recompute keeping_;
  ir::Recompute recomputing_;
  int zero_;
  std::vector<PiperDegrees> degrees_;  ///< By choice.
  std::map<std::tuple<int, int, int>, Saving> savings_;
};

}  // namespace orrery::planners
