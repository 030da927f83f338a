/// Time of the kernels of one GPT layer on one A100, from counts of their work: matrix products by
/// shape (tile and wave quantization, roofline), all other kernels by the bytes that they move. It
/// replaces a measured profile of the GPU, which the published tables lack.
///
/// Counts follow Megatron-LM's layer with fused bias-GeLU, bias-dropout-add and scaled masked
/// softmax, dropout, and attention that is not fused [Shoeybi et al. 2019, 3; Narayanan et al.
/// 2021, 4.2]. How many bytes each kernel moves is counted from what it must read and write
/// (unverified: not measured).
#pragma once
#include "experiments/validation/a100/row.h"
#include "models/base/units.h"

namespace orrery::experiments {

/// One GPU, and what it reaches.
struct A100Device {
  FlopsPerSecond peak;              ///< fp16 tensor cores.
  BytesPerSecond memory_bandwidth;  ///< Raw.
  double gemm_share = 1;
  double memory_share = 1;
};

/// Streaming multiprocessors of an A100 [NVIDIA A100 white paper].
inline constexpr int kA100Multiprocessors = 108;

/// `batch` products of m x k by k x n in fp16: the larger of moving operands and result once, and
/// computing in waves of tiles, one tile on each multiprocessor. The best of tiles of 256 x 128,
/// 128 x 256 and 128 x 128, the last at 0.9 of the others' rate (assumed). [NVIDIA, Matrix
/// Multiplication Background User's Guide, 2.3, 3.1, 3.2]
Seconds gemm_time(double m, double n, double k, double batch, const A100Device& device);

/// Kernel that moves this many bytes.
Seconds streaming_time(Bytes moved, const A100Device& device);

/// What the kernels of a block depend on.
struct A100Block {
  double sequence = 0;    ///< s
  double hidden = 0;      ///< h; the feed-forward is 4 h wide.
  double heads = 0;       ///< a
  double vocabulary = 0;  ///< Padded.
  double samples = 0;     ///< b
  double tp = 1;          ///< t
  bool sequence_parallel = false;
  double accumulation_bytes = 0;  ///< A100Software's; 0 where there is one micro-batch only.
};

struct A100BlockTime {
  Seconds forward;
  Seconds backward;        ///< Without recomputation.
  Seconds attention_core;  ///< Part of forward that selective recomputation repeats.
};

A100BlockTime layer_time(const A100Block& block, const A100Device& device);
/// Look-up, position, dropout; the gradient of the matrix is dense.
A100BlockTime embedding_time(const A100Block& block, const A100Device& device);
/// Final norm, projection onto the vocabulary, cross-entropy in fp32.
A100BlockTime head_time(const A100Block& block, const A100Device& device);
/// Adam with fp32 master copies over `parameters` elements, with the copies, the check for overflow
/// and the clipping of gradients around it: 60 bytes for each element (kernels.cpp has the sum).
Seconds optimizer_time(double parameters, const A100Device& device);

}  // namespace orrery::experiments
