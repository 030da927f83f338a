/// Matrix products of the CPU back end at the shapes of a layer, and those of the library alone
/// on matrices of its own: target 80 % of its rate, for Eigen and, where it was found at configure
/// time, for OpenBLAS. Rates count 2 m n k operations.
///
///   gemm_bench [REPEATS]     the best of this many turns of each counts (9); ends with 1 if a
///   shape
///                            misses the target
///
/// The two take turns, in processor time of all threads: other work on the machine slows both, and
/// a library that took a second thread would gain nothing by it. A library alone computes the same
/// kind of product (order of operands, with or without the sum) in one thread.
#define EIGEN_DONT_PARALLELIZE
#include <fmt/format.h>
#include <time.h>

#include <Eigen/Core>
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/compute/cpu_gemm.h"
#include "models/base/ids.h"

#ifdef ORRERY_WITH_OPENBLAS
#include <cblas.h>
#endif

namespace orrery::executor {
namespace {

constexpr double kTarget = 0.8;          ///< Of the library alone.
constexpr double kLeastSeconds = 10e-3;  ///< Of a turn: products are repeated until it is over.

/// forward: x w^T; input: dy w; weight: dy^T x.
enum class Use { forward, input, weight };

struct Shape {
  std::string name;
  Use use = Use::forward;
  int m = 0, n = 0, k = 0;
  bool transpose_a() const { return use == Use::weight; }
  bool transpose_b() const { return use == Use::forward; }
};

/// Attention projection and feed-forward of width `hidden`, over `rows` tokens, split `degree`
/// ways.
std::vector<Shape> shapes() {
  std::vector<Shape> all;
  const auto add = [&](int rows, int outputs, int inputs, int degree) {
    const int own = outputs / degree;
    const std::string name = fmt::format("{}x{}x{}/tp{}", rows, outputs, inputs, degree);
    all.push_back({"forward/" + name, Use::forward, rows, own, inputs});
    all.push_back({"input/" + name, Use::input, rows, inputs, own});
    all.push_back({"weight/" + name, Use::weight, own, inputs, rows});
  };
  for (const int degree : {1, 2, 4, 8}) {
    add(512, 256, 256, degree);
    add(512, 768, 768, degree);
    add(512, 3072, 768, degree);
  }
  return all;
}

using Product = std::function<void()>;

Product by_backend(Backend& backend, const Shape& s) {
  const auto tensor = [&](int rows, int columns) {
    Tensor made = backend.allocate(as_size(rows) * as_size(columns), false);
    backend.fill(made, 0.5);
    return made;
  };
  const Tensor a = tensor(s.m, s.k), b = tensor(s.k, s.n), c = tensor(s.m, s.n);
  return [&backend, s, a, b, c] {
    backend.gemm(s.transpose_a(), s.transpose_b(), s.m, s.n, s.k, 1, a, b,
                 s.use == Use::weight ? 1 : 0, c);
  };
}

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Product by_eigen(const Shape& s) {
  const bool ta = s.transpose_a(), tb = s.transpose_b();
  const Matrix a = Matrix::Constant(ta ? s.k : s.m, ta ? s.m : s.k, 0.5F);
  const Matrix b = Matrix::Constant(tb ? s.n : s.k, tb ? s.k : s.n, 0.5F);
  Matrix c = Matrix::Zero(s.m, s.n);
  switch (s.use) {
    case Use::forward:
      return [a, b, c]() mutable { c.noalias() = a * b.transpose(); };
    case Use::input:
      return [a, b, c]() mutable { c.noalias() = a * b; };
    case Use::weight:
      break;
  }
  return [a, b, c]() mutable { c.noalias() += a.transpose() * b; };
}

#ifdef ORRERY_WITH_OPENBLAS
Product by_openblas(const Shape& s) {
  const auto filled = [](int rows, int columns) {
    return std::vector<float>(as_size(rows) * as_size(columns), 0.5F);
  };
  return [s, a = filled(s.m, s.k), b = filled(s.k, s.n), c = filled(s.m, s.n)]() mutable {
    const bool ta = s.transpose_a(), tb = s.transpose_b();
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, s.m,
                s.n, s.k, 1, a.data(), ta ? s.m : s.k, b.data(), tb ? s.k : s.n,
                s.use == Use::weight ? 1 : 0, c.data(), s.n);
  };
}
#endif

double process_cpu() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

/// Seconds of one product, the mean of a turn.
double turn(const Product& product) {
  int products = 0;
  const double begin = process_cpu();
  double end = begin;
  for (; end - begin < kLeastSeconds; end = process_cpu()) {
    product();
    ++products;
  }
  return (end - begin) / products;
}

/// False: the target was missed.
bool measure(const std::string& library, const Shape& s, const Product& own, const Product& alone,
             int repeats) {
  double own_time = std::numeric_limits<double>::infinity();
  double alone_time = own_time;
  own();  // Pages and caches.
  alone();
  for (int i = 0; i < repeats; ++i) {
    own_time = std::min(own_time, turn(own));
    alone_time = std::min(alone_time, turn(alone));
  }
  const double operations = 2e-9 * s.m * s.n * s.k;
  const double ratio = alone_time / own_time;
  fmt::print("{:<10}{:<26}{:>10.1f}{:>12.1f}{:>8.2f} {}\n", library, s.name, operations / own_time,
             operations / alone_time, ratio, ratio >= kTarget ? "met" : "MISSED");
  std::fflush(stdout);
  return ratio >= kTarget;
}

/// Measures all shapes; false: one missed the target.
bool measure_all(const std::string& library, const std::function<Product(const Shape&)>& alone,
                 int repeats) {
  const auto backend = make_cpu_backend(Precision::fp32, library);
  fmt::print("{}: {}, one thread\n", library, backend->name());
  bool met = true;
  for (const Shape& s : shapes()) {
    met = measure(library, s, by_backend(*backend, s), alone(s), repeats) && met;
  }
  return met;
}

}  // namespace
}  // namespace orrery::executor

int main(int argc, char** argv) {
  using namespace orrery::executor;
  const int repeats = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  fmt::print("matrix products, GF/s; back end {} by default\n",
             make_cpu_backend(Precision::fp32)->name());
  fmt::print("{:<10}{:<26}{:>10}{:>12}{:>8} target {:.2f}\n", "library", "product", "back end",
             "it alone", "ratio", kTarget);
  bool met = measure_all("eigen", by_eigen, repeats);
#ifdef ORRERY_WITH_OPENBLAS
  met = measure_all("openblas", by_openblas, repeats) && met;
#else
  fmt::print("openblas: not found at configure time (libopenblas-dev)\n");
#endif
  return met ? 0 : 1;
}
