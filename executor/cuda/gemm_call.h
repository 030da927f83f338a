/// A matrix product as the kernels of executor/cuda ask their device for it.
#pragma once
#include <type_traits>

#include "executor/cuda/numbers.h"

namespace orrery::executor {

enum class Number { f32, f64, bf16 };
template <class T>
constexpr Number number_of() {
  if constexpr (std::is_same_v<T, Bf16>) return Number::bf16;
  return std::is_same_v<T, float> ? Number::f32 : Number::f64;
}

/// c = alpha op(a) op(b) + beta c, row-major: c is m x n, the inner length is k, none is 0. `ld`s
/// are elements from row to row as the operand lies in memory. Of a batch, a, b and c are device
/// arrays with the address of each item's matrix.
struct GemmCall {
  bool transpose_a = false, transpose_b = false;
  int m = 0, n = 0, k = 0;
  double alpha = 1, beta = 0;
  Number in = Number::f32;   ///< Of a and b.
  Number out = Number::f32;  ///< Of c: as `in`, or f32 where `in` is bf16.
  const void* a = nullptr;
  int lda = 0;
  const void* b = nullptr;
  int ldb = 0;
  void* c = nullptr;
  int ldc = 0;
};

}  // namespace orrery::executor
