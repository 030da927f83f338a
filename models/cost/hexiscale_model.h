/// The cost model of HexiScale in its two forms: the equations of the paper's Appendix A and those
/// of the authors' public code (Relaxed-System-Lab/FlashFlex, commit a4f366f,
/// experimental/cost_modeling.py), which differ. Selected as `cost: hexiscale_paper` and
/// `cost: hexiscale_public_code`.
#pragma once
#include <span>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/cost/path_function.h"
#include "models/ir/plan.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/workload.h"

namespace orrery::models {

/// All that the two forms do differently. The defaults are the paper's.
struct HexiscaleOptions {
  /// Latencies (alpha) count. The code knows none.
  bool latency = true;
  /// Layers carry the head's FLOPs: the term V / 16 L H. Eq. 6 leaves it out.
  bool vocabulary_term = false;
  /// GPipe chart in lock step (closed_form.h) instead of Eq. 9.
  bool lock_step = false;
  /// Data-parallel cost is the sum over layers and tensor-parallel members. Eq. 7: the largest sum
  /// over the layers of one stage.
  bool sum_data_parallel = false;
  double pipeline_factor = 1;       ///< On the slowest pipeline.
  double data_parallel_factor = 1;  ///< On the data-parallel cost.
  double zero3_factor = 1;          ///< Once more on it where a segment uses ZeRO-3.
  /// The job's (Job::gradient_synchronizations): the data-parallel cost counts once for each round.
  int gradient_synchronizations = 1;
  /// What the code takes a TFLOPS and a GB/s of a data sheet for: 2^40 and 2^30.
  double flops_per_tera = 1e12;
  double bytes_per_giga = 1e9;

  static HexiscaleOptions paper();
  static HexiscaleOptions public_code();
};

/// In the units of the model. Printed times are in seconds.
struct HexiscaleEstimate {
  std::vector<Seconds> pipelines;  ///< With pipeline_factor: what the code prints.
  Seconds data_parallel;           ///< With its factors, all rounds.
  Seconds iteration;               ///< Eq. 10: slowest pipeline + data_parallel.
};

/// Parts of the model for one workload. Layers are all blocks but embedding and head; bytes per
/// element are those of the workload's dtype. Recompute is full or none (selective counts as
/// none). Keeps references to cluster, workload and path.
class HexiscaleModel {
 public:
  HexiscaleModel(const Cluster& cluster, const Workload& workload, PathFunction path,
                 HexiscaleOptions options);

  /// Eq. 3, one layer, one micro-batch: 12 (8 without recompute) x max over members of the sum over
  /// the others of alpha + B S H bytes / (tp x bandwidth).
  Seconds tensor_parallel_layer(std::span<const DeviceId> group, int samples, bool recompute) const;
  /// Eq. 4, one layer among replicas of the same part of it: 2 x max over replicas of the sum over
  /// the others of alpha + 12 H^2 bytes / (parts x replicas x bandwidth). The paper's form has no
  /// `parts`, the code divides by the smallest tensor-parallel degree.
  Seconds data_parallel_layer(std::span<const DeviceId> replicas, int parts) const;
  /// Eq. 5: 2 x min over pairs of (alpha + B S H bytes / bandwidth + broadcast in `to`).
  Seconds hop(std::span<const DeviceId> from, std::span<const DeviceId> to, int samples) const;
  /// Eq. 6: 96 (72 without recompute) x B S H^2 (1 + S/6H) / (peak of the first member x tp).
  Seconds compute_layer(std::span<const DeviceId> group, int samples, bool recompute) const;
  /// Eq. 8: layers x (compute_layer + tensor_parallel_layer).
  Seconds stage(std::span<const DeviceId> group, int layers, int samples, bool recompute) const;
  /// Eq. 9 or lock step over stages that include their hop, without pipeline_factor.
  Seconds pipeline(std::span<const Seconds> stages, int micro_batches) const;
  /// Eq. 11, one layer on one device under full recompute and plain data parallelism:
  /// 48 H^2 bytes / tp + B S H bytes.
  Bytes layer_memory(int tensor_parallel, int samples) const;

  /// Eq. 10. A stage is as slow as its slowest device, a hop as slow as the slowest receiving
  /// group; HexiScale's own plans have one group in each stage. Deviation: Eq. 4's set is formed
  /// from the groups of a layer as the code does where their degrees differ: members of the smaller
  /// groups stand for several of the larger ones, and there are as many sets as the largest degree
  /// over the smallest; the paper does not say.
  HexiscaleEstimate estimate(const ir::Plan& plan) const;

 private:
  Bytes activation(int samples) const;
  Seconds wire(DeviceId a, DeviceId b, Bytes bytes) const;
  Seconds data_parallel(const ir::Plan& plan) const;

  const Cluster& cluster_;
  const Workload& workload_;
  PathFunction path_;
  HexiscaleOptions options_;
};

}  // namespace orrery::models
