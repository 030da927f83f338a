/// What the micro-benchmarks measure: the list of cases for a model and a set of devices.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/measurement.h"

namespace orrery::executor {

/// One measurement to be taken, by the processes of `devices` together.
struct BenchCase {
  ir::Measurement key;  ///< Without results.
  /// The one that computes; source and destination of a message; the ring of a collective.
  std::vector<DeviceId> devices;
  double slowdown = 1;  ///< Emulated slower device: factor on the time of compute.
  bool operator==(const BenchCase&) const = default;
};

void describe(config::Visitor& v, BenchCase& one);

/// A field that travels as the cells of measurement_text.h.
void describe_field(config::Visitor& v, const char* key, ir::Measurement& value, const char* doc);
void describe_field(config::Visitor& v, const char* key, std::vector<ir::Measurement>& values,
                    const char* doc);

/// The model whose blocks are timed. FLOPs are of the forward pass of one sample, without tensor
/// parallelism, as the workload counts them.
struct BenchModel {
  ir::ModelShape shape;
  std::int64_t sequence_length = 0;
  ir::Dtype dtype = ir::Dtype::fp32;
  Flops embedding;
  Flops layer;
  Flops head;
};

/// A device type, measured on its first device.
struct BenchDevice {
  DeviceId device;
  std::string type;
  double slowdown = 1;
};

struct BenchPair {
  DeviceId source;
  DeviceId destination;
  std::string link_class;
};

struct BenchGroup {
  std::vector<DeviceId> devices;
  std::string link_class;
};

struct BenchRequest {
  BenchModel model;
  std::vector<BenchDevice> devices;  ///< One for each type.
  std::vector<BenchPair> pairs;      ///< Directed.
  std::vector<BenchGroup> groups;
  std::vector<int> layers{1, 2, 4, 8};
  std::vector<int> tensor_parallel{1, 2, 4, 8};
  std::vector<int> micro_batches{1, 2, 4};
  std::vector<std::int64_t> copy_bytes;
  std::vector<std::int64_t> optimizer_parameters;
  std::vector<std::int64_t> message_bytes;
  std::vector<std::int64_t> collective_bytes;
  std::vector<std::int64_t> checkpoint_bytes;
  bool local_folder = true;             ///< Checkpoints are written to a folder of the node,
  bool cloud_folder = false;            ///< and to one that all nodes see.
  std::set<ir::MeasurementKind> kinds;  ///< Only these; empty: all.
};

/// 8 B x 4^i up to 64 MiB (the last one is 64 MiB itself), and so on; `quick`: small ones only.
void set_default_sizes(BenchRequest& request, bool quick);

/// low, 4 low, 16 low, ... below `high`, then `high`.
std::vector<std::int64_t> steps_of_four(std::int64_t low, std::int64_t high);

/// All cases, in an order that needs few changes of what lies in memory. No two have the same key.
/// Degrees of tensor parallelism that do not divide heads and feed-forward are left out.
std::vector<BenchCase> list_cases(const BenchRequest& request);

/// m, n, k of the matrix products of one rank's forward pass for `rows` tokens, each once.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  auto operator<=>(const GemmShape&) const = default;
};
std::vector<GemmShape> gemm_shapes(const ir::ModelShape& shape, std::int64_t rows,
                                   int tensor_parallel);

}  // namespace orrery::executor
