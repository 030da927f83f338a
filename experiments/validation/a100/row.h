/// Training runs on clusters of A100 nodes, as published tables give them: one row is a GPT model,
/// how it is distributed over GPUs, what its software does, and the measured time of an iteration,
/// if there is one. Shared by the validation against vTrain's and Megatron's measurements.
///
/// What a row says is input and is never fitted. What is fitted are the few numbers of
/// A100Parameters, which hold for all rows of an experiment.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "models/base/units.h"
#include "models/ir/plan.h"

namespace orrery::experiments {

/// What the training software does, where it matters to time.
struct A100Software {
  /// Bytes of one gradient in the data-parallel all-reduce.
  double gradient_bytes = 2;
  /// Bytes that are moved for each parameter to add a micro-batch's gradient to the sum: fp16 sums
  /// read two and write one (6), fp32 sums read fp16 and fp32 and write fp32 (10).
  double accumulation_bytes = 6;
  /// Gradients are reduced while the backward pass still runs, in buckets of 25 MiB (PyTorch DDP).
  bool overlapped_gradients = false;
  /// Code of 2021 (SC'21): see A100Parameter::older_software.
  bool older = false;
};

/// One run.
struct A100Row {
  std::string id;
  std::string set;  ///< Rows whose errors are counted together.
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  std::int64_t sequence = 0;  ///< Tokens.
  int vocabulary = 0;         ///< Padded.
  int tp = 1;
  int pp = 1;
  int dp = 1;
  int micro_batch = 1;            ///< Sequences.
  std::int64_t global_batch = 0;  ///< Sequences.
  int virtual_stages = 1;         ///< 1: plain 1F1B.
  ir::Recompute recompute = ir::Recompute::full;
  bool sequence_parallel = false;
  int nics_per_node = 8;  ///< Of 200 Gb/s; nodes have eight GPUs.
  A100Software software;
  std::optional<Seconds> measured;  ///< Time of one iteration.
  bool fitted = false;              ///< Parameters are fitted on it.
  bool scored = true;               ///< False: its measurement does not count.

  int gpus() const { return tp * pp * dp; }
  int micro_batches() const { return static_cast<int>(global_batch / dp / micro_batch); }
};

inline constexpr int kA100GpusPerNode = 8;

/// GPT's vocabulary padded to a multiple of 128 x tp [Shoeybi et al. 2019, 3].
constexpr int padded_vocabulary(int vocabulary, int tp) {
  const int unit = 128 * tp;
  return (vocabulary + unit - 1) / unit * unit;
}

enum class A100Parameter {
  gemm_share,      ///< Share of peak that matrix products reach before tile and wave quantization.
  memory_share,    ///< Share of memory bandwidth that memory-bound kernels reach.
  nvlink_share,    ///< Share of the port's bandwidth that collectives inside a node reach.
  network_share,   ///< Share of the adapter's bandwidth.
  host_per_layer,  ///< Seconds that the host needs to launch the kernels of one pass of a layer.
  older_software,  ///< Compute time of the code of 2021 over that of later code.
};
inline constexpr std::size_t kA100Parameters = 6;

/// By A100Parameter.
struct A100Parameters {
  std::array<double, kA100Parameters> values{};
  double operator[](A100Parameter p) const { return values[static_cast<std::size_t>(p)]; }
  double& operator[](A100Parameter p) { return values[static_cast<std::size_t>(p)]; }
  bool operator==(const A100Parameters&) const = default;
};

/// What is taken where nothing is fitted: matrix products at 0.8 of peak (assumed); memory, NVLink
/// and InfiniBand as models/library declares them (0.8, 0.8, 0.9); 28 kernels of 15 us (the
/// library's launch) for one pass of a layer; no difference between versions of the software.
constexpr A100Parameters declared_a100_parameters() {
  return {{0.8, 0.8, 0.8, 0.9, 28 * 15e-6, 1.0}};
}

/// Name and unit ("" for a ratio), for tables.
const char* name_of(A100Parameter parameter);
const char* unit_of(A100Parameter parameter);

}  // namespace orrery::experiments
