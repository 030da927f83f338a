/// Matrix products of the CPU back end at the shapes of a layer, beside the libraries alone on
/// matrices of their own: target 80 % of their rate. Backends are "alone" at shape and order of the
/// same name. Rates count 2 m n k operations.
#define EIGEN_DONT_PARALLELIZE
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <Eigen/Core>
#include <string>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/compute/cpu_gemm.h"

#ifdef ORRERY_WITH_OPENBLAS
#include <cblas.h>
#endif

namespace orrery::executor {
namespace {

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

void set_rate(benchmark::State& state, const Shape& s) {
  state.counters["GF/s"] =
      benchmark::Counter(2e-9 * s.m * s.n * s.k, benchmark::Counter::kIsIterationInvariantRate);
}

void run_backend(benchmark::State& state, const Shape& s, const std::string& library) {
  const auto backend = make_cpu_backend(Precision::fp32, library);
  const auto tensor = [&](int rows, int columns) {
    Tensor made = backend->allocate(
        static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), false);
    backend->fill(made, 0.5);
    return made;
  };
  const Tensor a = tensor(s.m, s.k), b = tensor(s.k, s.n), c = tensor(s.m, s.n);
  for (auto _ : state) {
    backend->gemm(s.transpose_a(), s.transpose_b(), s.m, s.n, s.k, 1, a, b,
                  s.use == Use::weight ? 1 : 0, c);
  }
  state.SetLabel(backend->name());
  set_rate(state, s);
}

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

void run_eigen(benchmark::State& state, const Shape& s) {
  const bool ta = s.transpose_a(), tb = s.transpose_b();
  const Matrix a = Matrix::Constant(ta ? s.k : s.m, ta ? s.m : s.k, 0.5F);
  const Matrix b = Matrix::Constant(tb ? s.n : s.k, tb ? s.k : s.n, 0.5F);
  Matrix c = Matrix::Zero(s.m, s.n);
  for (auto _ : state) {
    if (s.use == Use::forward) c.noalias() = a * b.transpose();
    if (s.use == Use::input) c.noalias() = a * b;
    if (s.use == Use::weight) c.noalias() += a.transpose() * b;
    benchmark::DoNotOptimize(c.data());
  }
  set_rate(state, s);
}

#ifdef ORRERY_WITH_OPENBLAS
void run_openblas(benchmark::State& state, const Shape& s) {
  openblas_set_num_threads(1);
  const auto filled = [](int rows, int columns) {
    return std::vector<float>(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns),
                              0.5F);
  };
  const std::vector<float> a = filled(s.m, s.k), b = filled(s.k, s.n);
  std::vector<float> c = filled(s.m, s.n);
  const bool ta = s.transpose_a(), tb = s.transpose_b();
  for (auto _ : state) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, s.m,
                s.n, s.k, 1, a.data(), ta ? s.m : s.k, b.data(), tb ? s.k : s.n,
                s.use == Use::weight ? 1 : 0, c.data(), s.n);
    benchmark::DoNotOptimize(c.data());
  }
  set_rate(state, s);
}
#endif

void add_all() {
  for (const Shape& s : shapes()) {
    benchmark::RegisterBenchmark((s.name + "/eigen/backend").c_str(), run_backend, s, "eigen");
    benchmark::RegisterBenchmark((s.name + "/eigen/alone").c_str(), run_eigen, s);
#ifdef ORRERY_WITH_OPENBLAS
    benchmark::RegisterBenchmark((s.name + "/openblas/backend").c_str(), run_backend, s,
                                 "openblas");
    benchmark::RegisterBenchmark((s.name + "/openblas/alone").c_str(), run_openblas, s);
#endif
  }
}

}  // namespace
}  // namespace orrery::executor

int main(int argc, char** argv) {
  orrery::executor::add_all();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
