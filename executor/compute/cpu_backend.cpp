#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "executor/compute/backend.h"
#include "executor/compute/cpu_gemm.h"
#include "executor/compute/cpu_kernels.h"
#include "executor/compute/cpu_memory.h"
#include "models/base/check.h"

namespace orrery::executor {
namespace {

std::size_t size(int length) { return length; }

/// Wide tensors have the same precision as all others. Everything happens at once, in the calling
/// thread.
template <class T>
class CpuBackend : public Backend {
 public:
  explicit CpuBackend(CpuLibrary library) : library_(library) { use_one_thread(library); }

  std::string name() const override {
    return fmt::format("cpu {} {}", name_of(library_),
                       precision() == Precision::fp32 ? "fp32" : "fp64");
  }
  Precision precision() const override {
    return std::is_same_v<T, float> ? Precision::fp32 : Precision::fp64;
  }
  std::size_t element_bytes(bool) const override { return sizeof(T); }
  bool on_host() const override { return true; }
  std::size_t allocated() const override { return pool_->allocated(); }
  std::size_t peak() const override { return pool_->peak(); }
  void reset_peak() override { pool_->reset_peak(); }

  Tensor allocate(std::size_t elements, bool wide) override {
    return {pool_->allocate(elements * sizeof(T)), 0, elements, wide};
  }
  void fill(const Tensor& tensor, double value) override {
    Kernels::fill({at(tensor), tensor.elements}, T(value));
  }
  void copy(const Tensor& from, const Tensor& to) override {
    expect(to, from.elements);
    if (from.elements > 0) std::memmove(at(to), at(from), from.elements * sizeof(T));
  }
  void upload(std::span<const std::byte> from, const Tensor& to) override {
    expect(to, from.size() / sizeof(T));
    if (!from.empty()) std::memcpy(at(to), from.data(), from.size());
  }
  void download(const Tensor& from, std::span<std::byte> to) override {
    expect(from, to.size() / sizeof(T));
    if (!to.empty()) std::memcpy(to.data(), at(from), to.size());
  }
  void synchronize() override {}

  void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, double alpha, const Tensor& a,
            const Tensor& b, double beta, const Tensor& c) override {
    expect(a, size(m) * size(k));
    expect(b, size(k) * size(n));
    expect(c, size(m) * size(n));
    cpu_gemm<T>(library_, m, n, k, T(alpha), {at(a), transpose_a ? m : k, transpose_a},
                {at(b), transpose_b ? k : n, transpose_b}, T(beta), {at(c), n, false});
  }
  void add(const Tensor& x, const Tensor& to) override {
    expect(to, x.elements);
    Kernels::add({at(x), x.elements}, at(to));
  }

  void rms_norm(const Tensor& x, const Tensor& gain, int rows, int width, const Tensor& y,
                const Tensor& inverse) override {
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(gain, size(width));
    expect(inverse, size(rows));
    Kernels::rms_norm(at(x), at(gain), size(rows), size(width), at(y), at(inverse));
  }
  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain,
                         const Tensor& inverse, int rows, int width, const Tensor& dx,
                         const Tensor& d_gain) override {
    expect(x, size(rows) * size(width));
    expect(dy, x.elements);
    expect(dx, x.elements);
    expect(gain, size(width));
    expect(inverse, size(rows));
    if (d_gain.memory != nullptr) expect(d_gain, size(width));
    Kernels::rms_norm_backward(at(dy), at(x), at(gain), at(inverse), size(rows), size(width),
                               at(dx), d_gain.memory != nullptr ? at(d_gain) : nullptr);
  }
  void center(const Tensor& x, int rows, int width, const Tensor& y) override {
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    Kernels::center(at(x), size(rows), size(width), at(y));
  }
  void add_row(const Tensor& row, int rows, int width, const Tensor& x) override {
    expect(x, size(rows) * size(width));
    expect(row, size(width));
    Kernels::add_row(at(row), size(rows), size(width), at(x));
  }
  void sum_rows(const Tensor& x, int rows, int width, const Tensor& sum) override {
    expect(x, size(rows) * size(width));
    expect(sum, size(width));
    Kernels::sum_rows(at(x), size(rows), size(width), at(sum));
  }
  void scale_rows(const Tensor& x, const Tensor& factors, int rows, int width,
                  const Tensor& y) override {
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(factors, size(rows));
    Kernels::scale_rows(at(x), at(factors), size(rows), size(width), at(y));
  }
  void dot_rows(const Tensor& x, const Tensor& y, int rows, int width,
                const Tensor& products) override {
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(products, size(rows));
    Kernels::dot_rows(at(x), at(y), size(rows), size(width), at(products));
  }
  void rotate(const Tensor& x, int rows, int tokens, int heads, int head_dim,
              bool inverse) override {
    expect(x, size(rows) * size(heads) * size(head_dim));
    ORRERY_CHECK(head_dim % 2 == 0 && tokens > 0, "heads of {} elements", head_dim);
    Kernels::rotate(at(x), size(rows), size(tokens), size(heads), size(head_dim), inverse);
  }

  void attention(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& o, const Tensor& log_sum) override {
    expect(shape, q, k, v, o, log_sum);
    Kernels::attention(library_, shape, at(q), at(k), at(v), at(o), at(log_sum));
  }
  void attention_backward(const AttentionShape& shape, const Tensor& d_o, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& log_sum,
                          const Tensor& dq, const Tensor& dk, const Tensor& dv) override {
    expect(shape, q, k, v, o, log_sum);
    expect(shape, dq, dk, dv, d_o, log_sum);
    Kernels::attention_backward(library_, shape, at(d_o), at(q), at(k), at(v), at(o), at(log_sum),
                                at(dq), at(dk), at(dv));
  }

  void gelu(const Tensor& x, const Tensor& y) override {
    expect(y, x.elements);
    Kernels::gelu({at(x), x.elements}, at(y));
  }
  void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) override {
    expect(dy, x.elements);
    expect(dx, x.elements);
    Kernels::gelu_backward(at(dy), {at(x), x.elements}, at(dx));
  }
  void relu(const Tensor& x, const Tensor& y) override {
    expect(y, x.elements);
    Kernels::relu({at(x), x.elements}, at(y));
  }
  void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) override {
    expect(dy, y.elements);
    expect(dx, y.elements);
    Kernels::relu_backward(at(dy), {at(y), y.elements}, at(dx));
  }
  void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) override {
    expect(up, gate.elements);
    expect(y, gate.elements);
    Kernels::swiglu({at(gate), gate.elements}, at(up), at(y));
  }
  void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& d_gate,
                       const Tensor& d_up) override {
    for (const Tensor* tensor : {&dy, &up, &d_gate, &d_up}) expect(*tensor, gate.elements);
    Kernels::swiglu_backward(at(dy), {at(gate), gate.elements}, at(up), at(d_gate), at(d_up));
  }

  void embed(std::span<const std::int32_t> tokens, const Tensor& table, int first, int count,
             int width, const Tensor& y) override {
    expect(table, size(count) * size(width));
    expect(y, tokens.size() * size(width));
    Kernels::embed(tokens, at(table), first, count, size(width), at(y));
  }
  void embed_backward(std::span<const std::int32_t> tokens, const Tensor& dy, int first, int count,
                      int width, const Tensor& d_table) override {
    expect(d_table, size(count) * size(width));
    expect(dy, tokens.size() * size(width));
    Kernels::embed_backward(tokens, at(dy), first, count, size(width), at(d_table));
  }
  void row_maximum(const Tensor& logits, int rows, int count, const Tensor& maximum) override {
    expect(logits, size(rows) * size(count));
    expect(maximum, size(rows));
    Kernels::row_maximum(at(logits), size(rows), size(count), at(maximum));
  }
  void row_sums(const Tensor& logits, std::span<const std::int32_t> targets, int first, int count,
                const Tensor& maximum, const Tensor& sums, const Tensor& target_logits) override {
    expect(logits, targets.size() * size(count));
    for (const Tensor* tensor : {&maximum, &sums, &target_logits}) expect(*tensor, targets.size());
    Kernels::row_sums(at(logits), targets, first, count, at(maximum), at(sums), at(target_logits));
  }
  void cross_entropy_backward(const Tensor& logits, std::span<const std::int32_t> targets,
                              int first, int count, const Tensor& maximum, const Tensor& sums,
                              double scale) override {
    expect(logits, targets.size() * size(count));
    for (const Tensor* tensor : {&maximum, &sums}) expect(*tensor, targets.size());
    Kernels::cross_entropy_backward(at(logits), targets, first, count, at(maximum), at(sums),
                                    scale);
  }

  void adam(const AdamStep& step, const Tensor& gradient, const Tensor& master,
            const Tensor& first_moment, const Tensor& second_moment,
            const Tensor& weight) override {
    for (const Tensor* tensor : {&master, &first_moment, &second_moment}) {
      expect(*tensor, gradient.elements);
    }
    Kernels::adam(step, {at(gradient), gradient.elements}, at(master), at(first_moment),
                  at(second_moment));
    copy_master(master, weight);
  }
  void sgd(double learning_rate, const Tensor& gradient, const Tensor& master,
           const Tensor& weight) override {
    expect(master, gradient.elements);
    Kernels::sgd(learning_rate, {at(gradient), gradient.elements}, at(master));
    copy_master(master, weight);
  }

 private:
  using Kernels = CpuKernels<T>;

  static T* at(const Tensor& tensor) {
    return reinterpret_cast<T*>(tensor.memory->data()) + tensor.offset;
  }
  static void expect(const Tensor& tensor, std::size_t elements) {
    ORRERY_CHECK(tensor.elements == elements, "a tensor of {} elements, not {}", tensor.elements,
                 elements);
    ORRERY_CHECK(tensor.memory != nullptr &&
                     (tensor.offset + elements) * sizeof(T) <= tensor.memory->bytes(),
                 "{} elements from {} exceed their memory", elements, tensor.offset);
  }
  static void expect(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                     const Tensor& o, const Tensor& log_sum) {
    const AttentionElements elements = elements_of(shape);
    expect(q, elements.query);
    expect(o, elements.query);
    expect(k, elements.key_value);
    expect(v, elements.key_value);
    expect(log_sum, elements.log_sum);
  }
  void copy_master(const Tensor& master, const Tensor& weight) {
    if (weight.memory == master.memory && weight.offset == master.offset) return;
    copy(master, weight);
  }

  CpuLibrary library_;
  std::shared_ptr<CpuMemoryPool> pool_ = std::make_shared<CpuMemoryPool>();
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(Precision precision, const std::string& library) {
  if (!library.empty() && library != "eigen" && library != "openblas") {
    throw std::runtime_error(
        fmt::format("no matrix library '{}' (known: eigen, openblas)", library));
  }
  if (library == "openblas" && !has_openblas()) {
    throw std::runtime_error("this build has no OpenBLAS (install libopenblas-dev and configure)");
  }
  const bool openblas = library == "openblas" || (library.empty() && has_openblas());
  const CpuLibrary chosen = openblas ? CpuLibrary::openblas : CpuLibrary::eigen;
  if (precision == Precision::fp32) return std::make_unique<CpuBackend<float>>(chosen);
  if (precision == Precision::fp64) return std::make_unique<CpuBackend<double>>(chosen);
  throw std::runtime_error("the cpu back end computes in fp32 and fp64, not in bf16");
}

}  // namespace orrery::executor
