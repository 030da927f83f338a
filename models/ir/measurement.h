/// One raw measurement of a machine, as the executor's micro-benchmarks take it: what was timed,
/// and one repetition's time. Fits read many of them (calibration/fit); all are kept, disturbed
/// ones too, so that anybody can repeat the fits.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/ir/model_shape.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"

namespace orrery::ir {

enum class MeasurementKind : std::uint8_t {
  block,             ///< `layers` blocks of `block` kind, one pass, one micro-batch.
  gemm,              ///< m x n x k matrix product.
  memory_bandwidth,  ///< Copy of `bytes` (read and written once each).
  point_to_point,    ///< `bytes` from source to destination; `both_ways`: both at once.
  collective,        ///< `collective` over `ranks` devices, `bytes` the full tensor.
  optimizer,         ///< One update of `parameters`.
  checkpoint_write,  ///< `bytes` to `location`.
  checkpoint_read,
  memory,       ///< `bytes` is the result: held by `layers` blocks between forward and backward.
  op_overhead,  ///< An op of a program that does nothing: what the engine adds to each op.
};

/// Fields that do not concern the kind stay as they are by default.
struct Measurement {
  MeasurementKind kind = MeasurementKind::block;
  std::string device_type;  ///< GPU type of the cluster file, or "cpu".
  BlockKind block = BlockKind::transformer;
  Pass pass = Pass::forward;
  int layers = 0;
  int tensor_parallel = 1;
  int micro_batch_size = 0;
  std::int64_t sequence_length = 0;
  /// For block and memory. A backward pass with full recompute runs the forward pass again: fits of
  /// plain passes leave these out.
  Recompute recompute = Recompute::none;
  Dtype dtype = Dtype::fp32;
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  Flops flops;  ///< Of block and gemm, by the model's own count.
  DeviceId source;
  DeviceId destination;
  bool both_ways = false;
  std::string link_class;  ///< Narrowest link of the path, as the cluster names it.
  CollectiveKind collective = CollectiveKind::all_reduce;
  int ranks = 0;
  Location location = Location::none;
  Bytes bytes;
  double parameters = 0;
  int repetition = 0;
  Seconds wall;
  Seconds cpu;             ///< Of the thread that computed; 0 where it only waited.
  bool disturbed = false;  ///< wall / cpu above the limit: another process had the core.
  bool operator==(const Measurement&) const = default;
};

/// MeasurementSet::sampling of few sizes and repetitions, and what the sources of a profile say
/// that was fitted to such a set.
inline constexpr const char* kQuickSampling = "quick";
inline constexpr const char* kQuickSource = "calibrate --quick: not for use";

/// All measurements of one run of the micro-benchmarks, and what they were taken on.
struct MeasurementSet {
  std::string machine;    ///< CPU or GPU model, cores, kernel.
  std::string libraries;  ///< Back end and its libraries with versions.
  std::string date;       ///< ISO 8601, given from outside.
  std::string model;      ///< Whose blocks were timed.
  std::string backend;    ///< cpu, cuda.
  std::string sampling;   ///< kQuickSampling, or "": in full.
  std::vector<Measurement> measurements;
};

}  // namespace orrery::ir
