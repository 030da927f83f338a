/// Hyper-parameters of the HexiScale search, and the points on which the authors' public code
/// (Relaxed-System-Lab/FlashFlex, experimental/) does something else than the paper. Defaults are
/// the paper's.
#pragma once
#include "models/config/visitor.h"
#include "models/ir/names.h"

namespace orrery::planners {

enum class NumPipelines { enumerate, random_walk_public };
enum class CutRule { moving_average, compare_costs, minimize, maximize };
enum class EdgeWeight { bandwidth, inverse_public };
enum class GroupCount { uniform, binomial_public };
enum class PartitionRule { graph, random };
enum class Candidates { all, public_lists };
enum class StageOrder { top_tau, last_path_public };
enum class LayerRule { by_compute, by_memory_public };
enum class BatchRule { balanced, equal_public };
enum class CostFactors { paper, public_code };
enum class MemoryRule { timeline, equation_11 };
enum class RecomputeRule { strongest, weakest };

struct HexiscaleSettings {
  int rounds = 50;
  int micro_batch_size = 1;
  double max_imbalance = 1.15;
  double group_imbalance = 2;
  double smoothing = 0.3;
  int tau = 2;
  int group_counts = 3;
  int evaluate_top = 16;
  int tensor_parallel = 0;
  PartitionRule partition = PartitionRule::graph;
  NumPipelines num_pipelines = NumPipelines::enumerate;
  CutRule cut = CutRule::moving_average;
  EdgeWeight edges = EdgeWeight::bandwidth;
  GroupCount group_count = GroupCount::uniform;
  Candidates candidates = Candidates::all;
  StageOrder stage_order = StageOrder::top_tau;
  LayerRule layers = LayerRule::by_compute;
  BatchRule batches = BatchRule::balanced;
  CostFactors cost_factors = CostFactors::paper;
  MemoryRule memory = MemoryRule::timeline;
  RecomputeRule recompute = RecomputeRule::strongest;
};

void describe(config::Visitor& v, HexiscaleSettings& s);
ir::EnumNames<MemoryRule> enum_names(MemoryRule);
ir::EnumNames<RecomputeRule> enum_names(RecomputeRule);

}  // namespace orrery::planners
