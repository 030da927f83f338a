/// Matrix products of the CPU back end, by Eigen or by OpenBLAS, in one thread. Rows may be further
/// apart than they are long, so that heads of a tensor are operands as they lie.
///
/// Eigen is compiled for the instruction set of the machine that builds (ORRERY_NATIVE_KERNELS);
/// OpenBLAS chooses its kernels at run time (OPENBLAS_CORETYPE overrides). Equal shapes give equal
/// bits in one build on one machine.
#pragma once
#include <cstddef>
#include <string>

namespace orrery::executor {

enum class CpuLibrary { eigen, openblas };

/// Whether OpenBLAS was found at configure time.
bool has_openblas();
/// "eigen avx512" or "openblas 0.3.21 SkylakeX", for logs.
std::string name_of(CpuLibrary library);
/// Keeps the library to one thread; for the whole process.
void use_one_thread(CpuLibrary library);

/// A row-major operand; `stride` elements from row to row as it lies in memory. `transposed`: the
/// product takes its transpose.
template <class T>
struct CpuMatrix {
  T* data = nullptr;
  std::ptrdiff_t stride = 0;
  bool transposed = false;
};

/// c = alpha op(a) op(b) + beta c; c is m x n, the inner length is k. With beta 0, c may be
/// uninitialized. T is float or double.
template <class T>
void cpu_gemm(CpuLibrary library, int m, int n, int k, T alpha, const CpuMatrix<const T>& a,
              const CpuMatrix<const T>& b, T beta, const CpuMatrix<T>& c);

}  // namespace orrery::executor
