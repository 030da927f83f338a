/// Every kernel that the back end launches, by type: EACH(...) and ROWS(...) are called with the
/// name of each inside namespace kernels. What is missing here does not link.
#pragma once
#include "executor/cuda/attention_kernels.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/norm_kernels.h"
#include "executor/cuda/vocabulary_kernels.h"

#define ORRERY_KERNELS_OF(EACH, ROWS, T) \
  EACH(Fill<T>)                          \
  EACH(Add<T, T>)                        \
  EACH(Scale<T>)                         \
  EACH(Gelu<T>)                          \
  EACH(GeluBackward<T>)                  \
  EACH(Relu<T>)                          \
  EACH(ReluBackward<T>)                  \
  EACH(AddRow<T>)                        \
  EACH(ScaleRows<T>)                     \
  EACH(SwiGlu<T>)                        \
  EACH(SwiGluBackward<T>)                \
  EACH(Rotate<T>)                        \
  EACH(GainParts<T>)                     \
  EACH(RowParts<T>)                      \
  EACH(Embed<T>)                         \
  EACH(EmbedBackward<T>)                 \
  EACH(Adam<T>)                          \
  EACH(Sgd<T>)                           \
  EACH(ItemPointers<T>)                  \
  EACH(ScorePointers<T>)                 \
  EACH(SumQueryHeads<T>)                 \
  EACH(BatchedProduct<T, T>)             \
  ROWS(RmsNorm<T>)                       \
  ROWS(RmsNormBackward<T>)               \
  ROWS(Center<T>)                        \
  ROWS(DotRows<T>)                       \
  ROWS(RowMaximum<T>)                    \
  ROWS(RowSums<T>)                       \
  ROWS(CrossEntropyBackward<T>)          \
  ROWS(SoftmaxRow<T>)                    \
  ROWS(SoftmaxBackwardRow<T>)

#define ORRERY_ALL_KERNELS(EACH, ROWS)  \
  ORRERY_KERNELS_OF(EACH, ROWS, float)  \
  ORRERY_KERNELS_OF(EACH, ROWS, double) \
  ORRERY_KERNELS_OF(EACH, ROWS, Bf16)   \
  EACH(AddParts<float>)                 \
  EACH(AddParts<double>)                \
  EACH(Convert<float, Bf16>)            \
  EACH(Convert<Bf16, float>)            \
  EACH(Add<float, Bf16>)                \
  EACH(Add<Bf16, float>)                \
  EACH(BatchedProduct<Bf16, float>)
