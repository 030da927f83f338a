// The only file of the executor that includes Eigen: it alone may be compiled for the instruction
// set of this machine, and two files with different sets must not share Eigen's inline functions.
#define EIGEN_DONT_PARALLELIZE
#include "executor/compute/cpu_gemm.h"

#include <Eigen/Core>
#include <type_traits>

#include "models/base/check.h"

#ifdef ORRERY_WITH_OPENBLAS
#include <cblas.h>
#endif

namespace orrery::executor {
namespace {

/// Below it (m + n + k) Eigen sums coefficient by coefficient, in an order that depends on
/// alignment; the loop here does not.
constexpr int kSmall = 24;

template <class T>
void small_gemm(int m, int n, int k, T alpha, const CpuMatrix<const T>& a,
                const CpuMatrix<const T>& b, T beta, const CpuMatrix<T>& c) {
  const std::ptrdiff_t a_row = a.transposed ? 1 : a.stride, a_inner = a.transposed ? a.stride : 1;
  const std::ptrdiff_t b_column = b.transposed ? b.stride : 1;
  const std::ptrdiff_t b_inner = b.transposed ? 1 : b.stride;
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      T sum = 0;
      for (int l = 0; l < k; ++l) {
        sum += a.data[i * a_row + l * a_inner] * b.data[j * b_column + l * b_inner];
      }
      T& to = c.data[i * c.stride + j];
      to = beta == T(0) ? alpha * sum : alpha * sum + beta * to;
    }
  }
}

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using Constant = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;
template <class T>
using Target = Eigen::Map<Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

template <class T, class A, class B>
void eigen_product(T alpha, const A& a, const B& b, T beta, Target<T>& c) {
  if (beta == T(0)) {
    c.noalias() = alpha * a * b;
    return;
  }
  if (beta != T(1)) c *= beta;
  c.noalias() += alpha * a * b;
}

template <class T>
void eigen_gemm(int m, int n, int k, T alpha, const CpuMatrix<const T>& a,
                const CpuMatrix<const T>& b, T beta, const CpuMatrix<T>& c) {
  const auto map = [](const CpuMatrix<const T>& x, int rows, int columns) {
    return Constant<T>(x.data, x.transposed ? columns : rows, x.transposed ? rows : columns,
                       Eigen::OuterStride<>(x.stride));
  };
  const Constant<T> left = map(a, m, k), right = map(b, k, n);
  Target<T> to(c.data, m, n, Eigen::OuterStride<>(c.stride));
  if (a.transposed && b.transposed) {
    eigen_product<T>(alpha, left.transpose(), right.transpose(), beta, to);
  } else if (a.transposed) {
    eigen_product<T>(alpha, left.transpose(), right, beta, to);
  } else if (b.transposed) {
    eigen_product<T>(alpha, left, right.transpose(), beta, to);
  } else {
    eigen_product<T>(alpha, left, right, beta, to);
  }
}

#ifdef ORRERY_WITH_OPENBLAS
template <class T>
void openblas_gemm(int m, int n, int k, T alpha, const CpuMatrix<const T>& a,
                   const CpuMatrix<const T>& b, T beta, const CpuMatrix<T>& c) {
  const auto order = [](bool transposed) { return transposed ? CblasTrans : CblasNoTrans; };
  const auto length = [](std::ptrdiff_t stride) { return static_cast<blasint>(stride); };
  if constexpr (std::is_same_v<T, float>) {
    cblas_sgemm(CblasRowMajor, order(a.transposed), order(b.transposed), m, n, k, alpha, a.data,
                length(a.stride), b.data, length(b.stride), beta, c.data, length(c.stride));
  } else {
    cblas_dgemm(CblasRowMajor, order(a.transposed), order(b.transposed), m, n, k, alpha, a.data,
                length(a.stride), b.data, length(b.stride), beta, c.data, length(c.stride));
  }
}
#endif

}  // namespace

bool has_openblas() {
#ifdef ORRERY_WITH_OPENBLAS
  return true;
#else
  return false;
#endif
}

std::string name_of(CpuLibrary library) {
  if (library == CpuLibrary::eigen) {
#if defined(__AVX512F__)
    return "eigen avx512";
#elif defined(__AVX2__)
    return "eigen avx2";
#else
    return "eigen";
#endif
  }
#ifdef ORRERY_WITH_OPENBLAS
  // "OpenBLAS 0.3.21 NO_LAPACKE ...": the second word is the version.
  const std::string config = openblas_get_config();
  const std::size_t begin = config.find(' ') + 1;
  return "openblas " + config.substr(begin, config.find(' ', begin) - begin) + " " +
         openblas_get_corename();
#else
  return "openblas";
#endif
}

void use_one_thread([[maybe_unused]] CpuLibrary library) {
#ifdef ORRERY_WITH_OPENBLAS
  if (library == CpuLibrary::openblas) openblas_set_num_threads(1);
#endif
}

template <class T>
void cpu_gemm(CpuLibrary library, int m, int n, int k, T alpha, const CpuMatrix<const T>& a,
              const CpuMatrix<const T>& b, T beta, const CpuMatrix<T>& c) {
  if (m == 0 || n == 0) return;
  if (m + n + k < kSmall || k == 0 || (m == 1 && n == 1)) {
    return small_gemm(m, n, k, alpha, a, b, beta, c);
  }
  if (library == CpuLibrary::eigen) return eigen_gemm(m, n, k, alpha, a, b, beta, c);
#ifdef ORRERY_WITH_OPENBLAS
  openblas_gemm(m, n, k, alpha, a, b, beta, c);
#else
  ORRERY_CHECK(false, "OpenBLAS was not found at configure time");
#endif
}

template void cpu_gemm<float>(CpuLibrary, int, int, int, float, const CpuMatrix<const float>&,
                              const CpuMatrix<const float>&, float, const CpuMatrix<float>&);
template void cpu_gemm<double>(CpuLibrary, int, int, int, double, const CpuMatrix<const double>&,
                               const CpuMatrix<const double>&, double, const CpuMatrix<double>&);

}  // namespace orrery::executor
