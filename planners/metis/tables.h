/// The numbers that Metis (ATC 2024, 4.3) plans with: time and memory of every layer by GPU type,
/// tensor-parallel degree and micro-batch size, both powers of two. From an imported profile as
/// they are (`orrery import metis-profile`), else from the Pricer, which serves all planners.
/// Layers are blocks: embedding and head count. Milliseconds, megabytes of 2^20 bytes.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "models/ir/plan.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Bytes.
inline constexpr double kMetisMegabyte = 0x1p20;

/// What was measured for one (GPU type, degree, micro-batch size).
struct MetisEntry {
  bool known = false;
  std::vector<double> layer_ms;  ///< Forward and backward of each layer.
  std::vector<double> layer_mb;
  double total_ms = 0;           ///< Sum of layer_ms.
  double sync_ms = 0;            ///< Of a forward and backward pass outside the layers.
  std::vector<double> range_ms;  ///< Sums over [first, last) at first * (layers + 1) + last.
  std::vector<double> range_mb;
  double fastest_layer = 0;  ///< Least time of an inner layer (neither embedding nor head).
  double per_share = 0;      ///< Least time of an inner layer over its share of the demand.
};

struct MetisTables {
  int layers = 0;
  int types = 0;                    ///< GPU types of the cluster.
  int tensor_steps = 0;             ///< Degrees 1, 2, ... 2^(tensor_steps - 1).
  int sample_steps = 0;             ///< Micro-batch sizes, likewise.
  bool imported = false;            ///< Measured by Metis's profiler.
  std::vector<int> allowed_tensor;  ///< Degrees that model and job allow.
  int first_type = 0;               ///< The first one that was profiled: its layers are the demand.
  std::vector<double> demand;       ///< Share of each layer in the model's time. Adds up to 1.
  std::vector<double> parameter_bytes;  ///< Of each layer, undivided.
  double optimizer_ms = 0;              ///< Of the whole model.
  double batch_generator_ms = 0;        ///< For each micro-batch.
  std::string note;                     ///< Where the numbers come from, in words.
  std::string problem;                  ///< Why they do not suffice; empty if they do.

  int max_tensor() const { return 1 << (tensor_steps - 1); }
  int max_samples() const { return 1 << (sample_steps - 1); }
  /// Null where nothing was measured. `tensor` and `samples` are powers of two.
  const MetisEntry* find(int type, int tensor, int samples) const;
  MetisEntry& slot(int type, int tensor, int samples);

  std::vector<MetisEntry> entries;
};

/// `recompute` is priced where the numbers come from the Pricer; a measured profile stays as it is.
/// An imported profile is used when it has as many layers as the workload has blocks.
MetisTables make_metis_tables(const PlannerInput& input, ir::Recompute recompute);

/// The powers of two that `samples` is the sum of, largest first. [Metis, 4.3: "for mbs = 7, Metis
/// sums the profiled results of mbs = 1, mbs = 2, and mbs = 4"]
std::vector<int> binary_parts(int samples);

}  // namespace orrery::planners
