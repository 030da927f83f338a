/// Prices for `exhaustive`, by kinds of stages instead of by devices: what a stage costs under each
/// division of its samples and each recomputation that fits in memory, what the gradients of a
/// structure cost, and how fast a structure can be at best. The same formulas as PlanEstimator and
/// check_memory, term by term, so that the best plan found here is the best one under them.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/cost/path_function.h"
#include "models/cost/pricer.h"
#include "planners/exhaustive/space.h"

namespace orrery::planners::exhaustive {

/// What all pipelines of a plan have in common.
struct CommonChoice {
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  int zero = 0;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::sliced;
};

/// One way to run a stage.
struct StageChoice {
  double forward = 0;  ///< Seconds of one micro-batch, without the hop to the next stage.
  double backward = 0;
  double hop_in = 0;  ///< From the stage before, one direction; a part of that stage's time.
  ir::Recompute recompute = ir::Recompute::none;
  std::vector<int> samples;  ///< By group.
};

/// A stage in its surroundings.
struct StagePlace {
  int stage = 0;    ///< Of Space::stages.
  int sender = -1;  ///< Class of the device that sends to it; -1: first stage.
  int first = 0;    ///< Block; embedding and head count like layers.
  int blocks = 1;
  int in_flight = 1;  ///< Micro-batches held at the peak.
};

/// Copies of each block in the plan, among which ZeRO divides; empty without ZeRO.
using Replicas = std::vector<int>;

class ExhaustiveCosts {
 public:
  /// Keeps references.
  ExhaustiveCosts(const PlannerInput& input, const Space& space, const CommonChoice& common);

  /// By samples of a micro-batch: the choices that fit in memory and of which none is as good as
  /// another in all three times. Found group by group: a stage is as slow as its slowest group, so
  /// a division of fewer samples among fewer groups that is no better than another one stays so.
  const std::vector<std::vector<StageChoice>>& choices(const StagePlace& place,
                                                       const Replicas& replicas);

  /// Class of the device that sends a stage's activations.
  int leader(int stage) const;
  /// Longest update of a device of the stage, with `pipelines` in the plan. [PlanEstimator]
  double optimizer(int stage, int first, int blocks, int pipelines) const;

  /// An upper limit of the samples that a pipeline of the kind trains in a second: the sum over its
  /// devices' groups of 1 / (least time of a sample). A stage that holds blocks b takes at least
  /// samples x sum over b of each of its groups' least times, and the longest stage at least the
  /// mean weighted by rates. Times of blocks are scaled down to those that no group undercuts.
  double rate(int chain) const;

  /// "needs 91.0 GiB, X has 80.0 GiB": the stage at one micro-batch of one sample per group with
  /// the strongest recomputation, and need / have.
  struct Squeeze {
    double ratio = 0;
    std::string words;
  };
  Squeeze squeeze(const StagePlace& place, const Replicas& replicas);

  std::int64_t refused() const { return refused_; }  ///< Stage choices that do not fit.
  const CommonChoice& common() const { return common_; }

 private:
  struct Affine {
    double fixed = 0;
    double per_byte = 0;
    double at(double bytes) const { return fixed + per_byte * bytes; }
  };
  struct KeyHash {
    std::size_t operator()(const std::vector<int>& key) const;
  };
  const GroupKind& group(int kind) const { return space_.groups[static_cast<std::size_t>(kind)]; }
  struct Passes {
    double forward = 0;
    double backward = 0;
  };
  /// Peak on one device of a group.
  struct Held {
    Bytes fixed;          // States, transients, staging.
    Bytes per_in_flight;  // Activations of a micro-batch.
  };
  const models::GpuType& gpu(int device_class) const;
  int gpu_type(int device_class) const;
  ir::Group group_of(int kind, int samples) const;
  ir::Segment segment(const StagePlace& place, ir::Recompute recompute) const;
  const Held& held(int kind, const StagePlace& place, int samples, ir::Recompute recompute,
                   const Replicas& replicas);
  bool fits(int kind, Bytes need) const;
  std::vector<std::vector<StageChoice>> divide(const StagePlace& place, ir::Recompute recompute,
                                               const Replicas& replicas);
  const Passes& passes(int kind, const StagePlace& place, int samples, ir::Recompute recompute);
  /// Times of all blocks before block b at position b: computation, and all-reduces of a group.
  const std::vector<Passes>& computed(int type, int degree, int samples, ir::Recompute recompute);
  const std::vector<Passes>& reduced(int kind, int samples, ir::Recompute recompute);
  double hop(const StagePlace& place, int group, int samples);
  const Affine& way(int sender, int group);
  std::vector<DeviceId> devices(int group) const;
  void make_rates();

  const PlannerInput& input_;
  const Space& space_;
  CommonChoice common_;
  models::PathFunction path_;
  models::Pricer pricer_;
  std::vector<ir::Recompute> recomputes_;  // Allowed, weakest first.
  std::int64_t refused_ = 0;
  std::vector<Bytes> capacity_;  // By GPU type: (memory - context) / fragmentation.
  std::vector<double> group_rates_;
  std::unordered_map<std::vector<int>, std::vector<std::vector<StageChoice>>, KeyHash> choices_;
  std::unordered_map<std::vector<int>, Passes, KeyHash> passes_;
  std::unordered_map<std::vector<int>, Held, KeyHash> held_;
  std::map<std::vector<int>, std::vector<Passes>> computed_;
  std::map<std::vector<int>, std::vector<Passes>> reduced_;
  std::map<std::pair<int, int>, Affine> ways_;
};

/// Whether slicing activations is never slower than a leader's broadcast, between any two groups
/// and for any size. Both are a fixed time and a time per byte.
bool slicing_wins(const PlannerInput& input, const Space& space);

/// Gradient synchronization of one structure. [PlanEstimator]
class GradientCosts {
 public:
  GradientCosts(const PlannerInput& input, const Space& space, const Structure& structure,
                int zero);
  /// The longest sum over the blocks of a stage; `splits[p]` are the blocks by stage of pipeline p.
  double time(const std::vector<const std::vector<int>*>& splits);
  /// At most any time(): all gradients at the rate of the cheapest choice of one stage per
  /// pipeline, shared among the stages of the shortest pipeline.
  double least();

 private:
  struct Ring {
    double fixed = 0;
    double per_byte = 0;
  };
  /// All-reduce among the groups of one stage per pipeline.
  struct Reduction {
    double factor = 0;  ///< 0: a single group holds the layers.
    std::vector<Ring> slices;
    double at(double bytes) const;
  };
  const Reduction& reduction(const std::vector<int>& stages);
  Reduction reduce(const std::vector<std::vector<DeviceId>>& holders) const;

  const PlannerInput& input_;
  double zero_factor_ = 1;
  std::vector<std::vector<std::vector<std::vector<DeviceId>>>> devices_;  // Pipeline, stage, group.
  std::vector<double> bytes_before_;  // Gradients of the blocks before each block.
  std::map<std::vector<int>, Reduction> reductions_;
};

/// Devices for each group of a structure, by pipeline, stage and group: those of a class in their
/// order.
std::vector<std::vector<std::vector<std::vector<DeviceId>>>> place_devices(
    const Space& space, const Structure& structure);

}  // namespace orrery::planners::exhaustive
