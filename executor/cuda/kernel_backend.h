/// The back end on the kernels of executor/cuda: everything but memory, streams, launches and
/// matrix products, which are the Device's. executor/cuda/backend.cpp instantiates it on a GPU;
/// tests instantiate it on the host, where the same kernels run in loops.
///
/// A Device has
///   name();                            "cuda H100 132 SMs", for logs
///   allocate(bytes);                   MemoryPointer, for tensors and for an operation's own use
///   allocated(), peak(), reset_peak();   of both
///   turn();                            a lock, held while an operation is enqueued
///   use(memory);                       its address, for work that is enqueued from now on
///   copy(from, to, bytes);             enqueued
///   send(bytes, memory);               host bytes, taken before it returns; enqueued
///   upload(bytes, memory, offset), download(memory, offset, bytes), synchronize();
///   each(kernel, n), rows(kernel, n);  enqueued
///   gemm(GemmCall), gemm_batched(GemmCall, count);  enqueued
/// and calls from several threads may interleave.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "executor/compute/backend.h"
#include "executor/cuda/attention_kernels.h"
#include "executor/cuda/gemm_call.h"
#include "executor/cuda/kernels.h"
#include "executor/cuda/norm_kernels.h"
#include "executor/cuda/vocabulary_kernels.h"
#include "models/base/check.h"

namespace orrery::executor {

template <class Device, class T>
class KernelBackend final : public Backend {
 public:
  using C = WideOf<T>;

  explicit KernelBackend(std::shared_ptr<Device> device) : device_(std::move(device)) {}

  std::string name() const override {
    return fmt::format("{} {}", device_->name(),
                       precision() == Precision::bf16   ? "bf16"
                       : precision() == Precision::fp32 ? "fp32"
                                                        : "fp64");
  }
  Precision precision() const override {
    if constexpr (std::is_same_v<T, Bf16>) return Precision::bf16;
    return std::is_same_v<T, float> ? Precision::fp32 : Precision::fp64;
  }
  std::size_t element_bytes(bool wide) const override { return wide ? sizeof(C) : sizeof(T); }
  bool on_host() const override { return false; }
  std::size_t allocated() const override { return device_->allocated(); }
  std::size_t peak() const override { return device_->peak(); }
  void reset_peak() override { device_->reset_peak(); }

  Tensor allocate(std::size_t elements, bool wide) override {
    return {device_->allocate(elements * element_bytes(wide)), 0, elements, wide};
  }
  void fill(const Tensor& tensor, double value) override {
    const auto turn = device_->turn();
    visit(tensor, [&]<class X>(X* x) {
      device_->each(kernels::Fill<X>{x, store<X>(static_cast<C>(value))}, tensor.elements);
    });
  }
  void copy(const Tensor& from, const Tensor& to) override {
    const auto turn = device_->turn();
    expect(to, from.elements);
    expect(from, from.elements);
    if (from.elements == 0) return;
    visit(from, [&]<class X>(X* x) {
      visit(to, [&]<class Y>(Y* y) {
        if constexpr (std::is_same_v<X, Y>) {
          device_->copy(x, y, from.elements * sizeof(X));
        } else {
          device_->each(kernels::Convert<X, Y>{x, y}, from.elements);
        }
      });
    });
  }
  void upload(std::span<const std::byte> from, const Tensor& to) override {
    const std::size_t width = element_bytes(to.wide);
    expect(to, from.size() / width);
    if (!from.empty()) device_->upload(from, *to.memory, to.offset * width);
  }
  void download(const Tensor& from, std::span<std::byte> to) override {
    const std::size_t width = element_bytes(from.wide);
    expect(from, to.size() / width);
    if (!to.empty()) device_->download(*from.memory, from.offset * width, to);
  }
  void synchronize() override { device_->synchronize(); }

  void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, double alpha, const Tensor& a,
            const Tensor& b, double beta, const Tensor& c) override {
    const auto turn = device_->turn();
    expect(a, size(m) * size(k));
    expect(b, size(k) * size(n));
    expect(c, size(m) * size(n));
    if (m == 0 || n == 0) return;
    visit(c, [&]<class Out>(Out* out) {
      if (k == 0) return device_->each(kernels::Scale<Out>{out, beta}, c.elements);
      device_->gemm({transpose_a, transpose_b, m, n, k, alpha, beta, number_of<T>(),
                     number_of<Out>(), at(a), transpose_a ? m : k, at(b), transpose_b ? k : n, out,
                     n});
    });
  }
  void add(const Tensor& x, const Tensor& to) override {
    const auto turn = device_->turn();
    expect(x, x.elements);
    expect(to, x.elements);
    visit(x, [&]<class X>(X* from) {
      visit(to, [&]<class Y>(Y* sum) { device_->each(kernels::Add<X, Y>{from, sum}, x.elements); });
    });
  }

  void rms_norm(const Tensor& x, const Tensor& gain, int rows, int width, const Tensor& y,
                const Tensor& inverse) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(gain, size(width));
    expect(inverse, size(rows));
    device_->rows(kernels::RmsNorm<T>{at(x), at(gain), size(width), at(y), wide_at(inverse)},
                  size(rows));
  }
  void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain,
                         const Tensor& inverse, int rows, int width, const Tensor& dx,
                         const Tensor& d_gain) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(dy, x.elements);
    expect(dx, x.elements);
    expect(gain, size(width));
    expect(inverse, size(rows));
    device_->rows(
        kernels::RmsNormBackward<T>{at(dy), at(x), at(gain), wide_at(inverse), size(width), at(dx)},
        size(rows));
    if (d_gain.memory == nullptr) return;
    add_parts(rows, width, d_gain, [&](C* sums) {
      return kernels::GainParts<T>{at(dy), at(x), wide_at(inverse), size(rows), size(width), sums};
    });
  }
  void center(const Tensor& x, int rows, int width, const Tensor& y) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    device_->rows(kernels::Center<T>{at(x), size(width), at(y)}, size(rows));
  }
  void add_row(const Tensor& row, int rows, int width, const Tensor& x) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(row, size(width));
    device_->each(kernels::AddRow<T>{at(row), size(width), at(x)}, x.elements);
  }
  void sum_rows(const Tensor& x, int rows, int width, const Tensor& sum) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    add_parts(rows, width, sum, [&](C* sums) {
      return kernels::RowParts<T>{at(x), size(rows), size(width), sums};
    });
  }
  void scale_rows(const Tensor& x, const Tensor& factors, int rows, int width,
                  const Tensor& y) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(factors, size(rows));
    device_->each(kernels::ScaleRows<T>{at(x), wide_at(factors), size(width), at(y)}, x.elements);
  }
  void dot_rows(const Tensor& x, const Tensor& y, int rows, int width,
                const Tensor& products) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(width));
    expect(y, x.elements);
    expect(products, size(rows));
    device_->rows(kernels::DotRows<T>{at(x), at(y), size(width), wide_at(products)}, size(rows));
  }
  void rotate(const Tensor& x, int rows, int tokens, int heads, int head_dim,
              bool inverse) override {
    const auto turn = device_->turn();
    expect(x, size(rows) * size(heads) * size(head_dim));
    ORRERY_CHECK(head_dim % 2 == 0 && tokens > 0, "heads of {} elements", head_dim);
    const std::size_t pairs = size(head_dim) / 2;
    const MemoryPointer angles = angles_of(size(tokens), size(head_dim));
    const C* cosine = address<C>(angles);
    device_->each(kernels::Rotate<T>{at(x), cosine, cosine + size(tokens) * pairs, size(tokens),
                                     size(heads), pairs, inverse},
                  x.elements / 2);
  }

  void attention(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                 const Tensor& o, const Tensor& log_sum) override;
  void attention_backward(const AttentionShape& shape, const Tensor& d_o, const Tensor& q,
                          const Tensor& k, const Tensor& v, const Tensor& o, const Tensor& log_sum,
                          const Tensor& dq, const Tensor& dk, const Tensor& dv) override;

  void gelu(const Tensor& x, const Tensor& y) override {
    const auto turn = device_->turn();
    expect(x, x.elements);
    expect(y, x.elements);
    device_->each(kernels::Gelu<T>{at(x), at(y)}, x.elements);
  }
  void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&dy, &x, &dx}) expect(*tensor, x.elements);
    device_->each(kernels::GeluBackward<T>{at(dy), at(x), at(dx)}, x.elements);
  }
  void relu(const Tensor& x, const Tensor& y) override {
    const auto turn = device_->turn();
    expect(x, x.elements);
    expect(y, x.elements);
    device_->each(kernels::Relu<T>{at(x), at(y)}, x.elements);
  }
  void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&dy, &y, &dx}) expect(*tensor, y.elements);
    device_->each(kernels::ReluBackward<T>{at(dy), at(y), at(dx)}, y.elements);
  }
  void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&gate, &up, &y}) expect(*tensor, gate.elements);
    device_->each(kernels::SwiGlu<T>{at(gate), at(up), at(y)}, gate.elements);
  }
  void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up, const Tensor& d_gate,
                       const Tensor& d_up) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&dy, &gate, &up, &d_gate, &d_up}) expect(*tensor, gate.elements);
    device_->each(kernels::SwiGluBackward<T>{at(dy), at(gate), at(up), at(d_gate), at(d_up)},
                  gate.elements);
  }

  void embed(std::span<const std::int32_t> tokens, const Tensor& table, int first, int count,
             int width, const Tensor& y) override {
    const auto turn = device_->turn();
    expect(table, size(count) * size(width));
    expect(y, tokens.size() * size(width));
    const MemoryPointer on_device = send(tokens);
    device_->each(kernels::Embed<T>{address<std::int32_t>(on_device), at(table), first, count,
                                    size(width), at(y)},
                  y.elements);
  }
  void embed_backward(std::span<const std::int32_t> tokens, const Tensor& dy, int first, int count,
                      int width, const Tensor& d_table) override;
  void row_maximum(const Tensor& logits, int rows, int count, const Tensor& maximum) override {
    const auto turn = device_->turn();
    expect(logits, size(rows) * size(count));
    expect(maximum, size(rows));
    device_->rows(kernels::RowMaximum<T>{at(logits), size(count), wide_at(maximum)}, size(rows));
  }
  void row_sums(const Tensor& logits, std::span<const std::int32_t> targets, int first, int count,
                const Tensor& maximum, const Tensor& sums, const Tensor& target_logits) override {
    const auto turn = device_->turn();
    expect(logits, targets.size() * size(count));
    for (const Tensor* tensor : {&maximum, &sums, &target_logits}) expect(*tensor, targets.size());
    const MemoryPointer on_device = send(targets);
    device_->rows(kernels::RowSums<T>{at(logits), address<std::int32_t>(on_device), first, count,
                                      wide_at(maximum), wide_at(sums), wide_at(target_logits)},
                  targets.size());
  }
  void cross_entropy_backward(const Tensor& logits, std::span<const std::int32_t> targets,
                              int first, int count, const Tensor& maximum, const Tensor& sums,
                              double scale) override {
    const auto turn = device_->turn();
    expect(logits, targets.size() * size(count));
    for (const Tensor* tensor : {&maximum, &sums}) expect(*tensor, targets.size());
    const MemoryPointer on_device = send(targets);
    device_->rows(
        kernels::CrossEntropyBackward<T>{at(logits), address<std::int32_t>(on_device), first, count,
                                         wide_at(maximum), wide_at(sums), scale},
        targets.size());
  }

  void adam(const AdamStep& step, const Tensor& gradient, const Tensor& master,
            const Tensor& first_moment, const Tensor& second_moment,
            const Tensor& weight) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&gradient, &master, &first_moment, &second_moment, &weight}) {
      expect(*tensor, gradient.elements);
    }
    const auto count = static_cast<double>(step.step);
    const auto number = [](double value) { return static_cast<C>(value); };
    device_->each(
        kernels::Adam<T>{wide_at(gradient), wide_at(master), wide_at(first_moment),
                         wide_at(second_moment), weight_apart(master, weight), number(step.beta1),
                         number(step.beta2), number(1 - step.beta1), number(1 - step.beta2),
                         number(1 / (1 - std::pow(step.beta1, count))),
                         number(1 / (1 - std::pow(step.beta2, count))), number(step.learning_rate),
                         number(step.epsilon), number(step.weight_decay)},
        gradient.elements);
  }
  void sgd(double learning_rate, const Tensor& gradient, const Tensor& master,
           const Tensor& weight) override {
    const auto turn = device_->turn();
    for (const Tensor* tensor : {&gradient, &master, &weight}) expect(*tensor, gradient.elements);
    device_->each(kernels::Sgd<T>{static_cast<C>(learning_rate), wide_at(gradient), wide_at(master),
                                  weight_apart(master, weight)},
                  gradient.elements);
  }

 private:
  static std::size_t size(int length) { return length; }

  void expect(const Tensor& tensor, std::size_t elements) const {
    ORRERY_CHECK(tensor.elements == elements, "a tensor of {} elements, not {}", tensor.elements,
                 elements);
    ORRERY_CHECK(
        tensor.memory != nullptr &&
            (tensor.offset + elements) * element_bytes(tensor.wide) <= tensor.memory->bytes(),
        "{} elements from {} exceed their memory", elements, tensor.offset);
  }
  void expect(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
              const Tensor& o, const Tensor& log_sum) const;

  template <class X>
  X* address(const MemoryPointer& memory) const {
    return reinterpret_cast<X*>(device_->use(*memory));
  }
  T* at(const Tensor& tensor) const {
    ORRERY_CHECK((std::is_same_v<T, C>) || !tensor.wide, "a wide tensor where none is taken");
    return address<T>(tensor.memory) + tensor.offset;
  }
  C* wide_at(const Tensor& tensor) const {
    ORRERY_CHECK((std::is_same_v<T, C>) || tensor.wide, "a tensor that is not wide");
    return address<C>(tensor.memory) + tensor.offset;
  }
  /// Calls with the address of the elements in their own type.
  template <class Visit>
  void visit(const Tensor& tensor, const Visit& call) const {
    if constexpr (std::is_same_v<T, C>) {
      call(at(tensor));
    } else {
      tensor.wide ? call(wide_at(tensor)) : call(at(tensor));
    }
  }
  /// Null when the weight is the master.
  T* weight_apart(const Tensor& master, const Tensor& weight) const {
    const bool same = weight.memory == master.memory && weight.offset == master.offset;
    return same ? nullptr : at(weight);
  }
  /// Adds sums over rows to `to`: first those of chunks of rows, by the kernel that `chunk_sums`
  /// makes for their memory. Under the turn.
  template <class Make>
  void add_parts(int rows, int width, const Tensor& to, const Make& chunk_sums) {
    expect(to, size(width));
    const std::size_t chunks = (size(rows) + kernels::kGainRows - 1) / kernels::kGainRows;
    const MemoryPointer parts = device_->allocate(chunks * size(width) * sizeof(C));
    C* sums = address<C>(parts);
    device_->each(chunk_sums(sums), chunks * size(width));
    device_->each(kernels::AddParts<C>{sums, chunks, size(width), wide_at(to)}, size(width));
  }
  MemoryPointer send(std::span<const std::int32_t> numbers) {
    MemoryPointer memory = device_->allocate(numbers.size_bytes());
    device_->send(std::as_bytes(numbers), *memory);
    return memory;
  }
  /// Cosines, then sines, of each token and pair. Under the turn.
  MemoryPointer angles_of(std::size_t tokens, std::size_t head_dim);

  static kernels::AttentionSizes sizes_of(const AttentionShape& shape) {
    return {size(shape.tokens), size(shape.heads),      size(shape.kv_heads), size(shape.head_dim),
            size(shape.group),  size(shape.first_head), size(shape.first_kv), shape.causal};
  }
  class Attention;

  std::shared_ptr<Device> device_;
  std::map<std::pair<std::size_t, std::size_t>, MemoryPointer> angles_;
};

template <class Device, class T>
MemoryPointer KernelBackend<Device, T>::angles_of(std::size_t tokens, std::size_t head_dim) {
  MemoryPointer& memory = angles_[{tokens, head_dim}];
  if (memory != nullptr) return memory;
  const std::size_t pairs = head_dim / 2;
  std::vector<C> table(2 * tokens * pairs);
  for (std::size_t token = 0; token < tokens; ++token) {
    for (std::size_t i = 0; i < pairs; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
      const double angle = static_cast<double>(token) * std::pow(kRotaryBase, exponent);
      table[token * pairs + i] = static_cast<C>(std::cos(angle));
      table[(tokens + token) * pairs + i] = static_cast<C>(std::sin(angle));
    }
  }
  memory = device_->allocate(table.size() * sizeof(C));
  device_->send(std::as_bytes(std::span<const C>(table)), *memory);
  return memory;
}

/// Places of equal tokens are gathered on the host, so that each row of the table has one writer.
template <class Device, class T>
void KernelBackend<Device, T>::embed_backward(std::span<const std::int32_t> tokens,
                                              const Tensor& dy, int first, int count, int width,
                                              const Tensor& d_table) {
  const auto turn = device_->turn();
  expect(d_table, size(count) * size(width));
  expect(dy, tokens.size() * size(width));
  std::vector<std::int32_t> order;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= first && tokens[i] - first < count) {
      order.push_back(static_cast<std::int32_t>(i));
    }
  }
  if (order.empty()) return;
  const auto token_at = [&](std::int32_t place) { return tokens[place]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return token_at(a) < token_at(b); });
  std::vector<std::int32_t> starts, rows;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && token_at(order[i]) == token_at(order[i - 1])) continue;
    starts.push_back(static_cast<std::int32_t>(i));
    rows.push_back(token_at(order[i]) - first);
  }
  starts.push_back(static_cast<std::int32_t>(order.size()));
  const MemoryPointer order_memory = send(order), starts_memory = send(starts),
                      rows_memory = send(rows);
  device_->each(
      kernels::EmbedBackward<T>{at(dy), address<std::int32_t>(order_memory),
                                address<std::int32_t>(starts_memory),
                                address<std::int32_t>(rows_memory), size(width), wide_at(d_table)},
      rows.size() * size(width));
}

}  // namespace orrery::executor

#include "executor/cuda/kernel_backend_attention.h"
