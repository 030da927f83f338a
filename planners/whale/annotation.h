/// An annotation as a user of Whale would write it, and what Whale makes of it on unequal GPUs:
/// layers of the stages, samples of the replicas, a plan. whale.cpp says where this comes from.
#pragma once
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/names.h"
#include "models/ir/plan.h"
#include "planners/kit/stage_costs.h"
#include "planners/kit/use_all_devices.h"
#include "planners/planner.h"
#include "planners/whale/balance.h"

namespace orrery::planners {

enum class WhaleSharing { by_compute, uniform };
enum class WhaleOrder { memory, cluster };
enum class WhaleCompute { peak, profile };
ir::EnumNames<WhaleSharing> enum_names(WhaleSharing);
ir::EnumNames<WhaleOrder> enum_names(WhaleOrder);
ir::EnumNames<WhaleCompute> enum_names(WhaleCompute);

struct WhaleSettings {
  WhaleSharing layers = WhaleSharing::by_compute;
  WhaleSharing batches = WhaleSharing::by_compute;
  WhaleOrder order = WhaleOrder::memory;
  WhaleCompute compute = WhaleCompute::peak;
  UseAllDevices use_all = UseAllDevices::automatic;
  ir::ActivationTransfer transfer = ir::ActivationTransfer::leader_broadcast;
  int evaluate_top = 8;
};

void describe(config::Visitor& v, WhaleSettings& s);

/// What a user would write.
struct WhaleAnnotation {
  int tensor = 1;
  int stages = 1;
  int replicas = 1;
  int batch = 1;  ///< Samples of a micro-batch over all replicas.
  ir::Recompute recompute = ir::Recompute::none;
  int zero = 0;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
};

/// "TP 2 x PP 2 x DP 4, micro-batch 16 over the replicas, 1f1b"
std::string in_words(const WhaleAnnotation& annotation);

/// Layers and samples of an annotation on its devices.
struct WhaleShares {
  std::vector<int> layers;                ///< By stage.
  std::vector<std::vector<int>> samples;  ///< By stage and replica.
  bool fits = true;                       ///< In memory, and within what the job allows.
};

/// Keeps references to the input and the settings. Caches; not for concurrent use.
class WhaleAnnotations {
 public:
  using Groups = std::vector<std::vector<DeviceId>>;

  WhaleAnnotations(const PlannerInput& input, const WhaleSettings& settings);

  /// Tensor-parallel groups inside nodes, of one GPU type each, in the order of the stages. Stage s
  /// has those from s * replicas on.
  const Groups& groups(int tensor);
  /// Inter-TaskGraph, then intra-TaskGraph load balance. At least stages * replicas groups, as many
  /// layers as stages and samples as replicas.
  WhaleShares balance(const WhaleAnnotation& annotation);
  /// One pipeline, whose stages have the replicas as groups.
  ir::Plan build(const WhaleAnnotation& annotation, const WhaleShares& shares);

 private:
  int type_of(const WhaleAnnotation& a, int stage, int replica);
  double compute_of(int gpu_type) const;
  std::vector<double> compute_of_replicas(const WhaleAnnotation& a, int stage);
  double memory_use(int gpu_type, const WhaleAnnotation& a, int stage, int first, int layers,
                    int samples) const;
  WhaleLoads replicas(const WhaleAnnotation& a, int stage, int first, int layers);
  double stage_use(const WhaleAnnotation& a, int stage, int layers);

  const PlannerInput& input_;
  const WhaleSettings& settings_;
  int layers_;
  StageCosts costs_;
  std::map<int, Groups> groups_;  // By tensor-parallel degree.
};

}  // namespace orrery::planners
