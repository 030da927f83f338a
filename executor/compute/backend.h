/// A compute back end: memory and kernels of one rank. The model (executor/model) is written once
/// on this interface; `cpu` implements it with Eigen or OpenBLAS in fp32 and fp64, `cuda` with
/// cuBLAS and own kernels.
///
/// Tensors are dense, row-major and contiguous; `rows` are tokens of a micro-batch, sample by
/// sample. Weights have the dimension that tensor parallelism splits as their slowest one, so that
/// every slice is one run of memory. Kernels are enqueued in order; `synchronize` waits. All of
/// them are deterministic: equal inputs give equal bits, whatever else is running.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace orrery::executor {

/// Memory of a back end. Freed with its last owner.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual std::byte* data() = 0;  ///< Device address for cuda.
  virtual std::size_t bytes() const = 0;
};
using MemoryPointer = std::shared_ptr<Memory>;

/// What tensors of activations, weights and gradients are made of. bf16 keeps fp32 master weights
/// and fp32 gradients.
enum class Precision : std::uint8_t { fp32, fp64, bf16 };

/// A run of elements in some Memory. `wide` ones are in the precision of gradients and optimizer
/// states (fp32 under bf16; else the same).
struct Tensor {
  MemoryPointer memory;
  std::size_t offset = 0;  ///< Elements.
  std::size_t elements = 0;
  bool wide = false;
};
/// [begin, end) of a tensor.
Tensor part(const Tensor& tensor, std::size_t begin, std::size_t end);

/// Added to the mean square under the root of RMSNorm, by every back end. [Touvron et al. 2023]
inline constexpr double kNormEpsilon = 1e-5;
/// Pair i of a head turns by position x base^(-2 i / head_dim). [Su et al. 2021, 3.2.2]
inline constexpr double kRotaryBase = 10000;

struct AttentionShape {
  int samples = 0;
  int tokens = 0;  ///< Per sample.
  int heads = 0;   ///< Query heads here.
  int kv_heads = 0;
  int head_dim = 0;
  /// Query head h here uses key-value head (first_head + h) / group of the whole model, which is
  /// number (first_head + h) / group - first_kv here: slices need not start at a whole group.
  int group = 1;       ///< Query heads for each key-value head in the whole model.
  int first_head = 0;  ///< Number of the first query head here in the whole model.
  int first_kv = 0;    ///< Number of the first kv head here in the whole model.
  bool causal = true;
};

/// Elements of the tensors of attention, all samples together.
struct AttentionElements {
  std::size_t query = 0;      ///< Also of its output.
  std::size_t key_value = 0;  ///< Of keys, and of values.
  std::size_t log_sum = 0;
};
/// Aborts if a query head's key-value head is not here.
AttentionElements elements_of(const AttentionShape& shape);

struct AdamStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0;
  std::int64_t step = 1;  ///< From 1, for the bias correction.
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string name() const = 0;  ///< "cpu eigen fp32", for logs.
  virtual Precision precision() const = 0;
  /// Bytes of an element of a tensor that is, or is not, wide.
  virtual std::size_t element_bytes(bool wide) const = 0;
  /// True when Memory::data() may be read and written by the host once `synchronize` has returned.
  virtual bool on_host() const = 0;
  /// Bytes given out, to operations for their own use as well: now, and at most since reset_peak().
  virtual std::size_t allocated() const = 0;
  virtual std::size_t peak() const = 0;
  virtual void reset_peak() = 0;

  /// Not initialized. Throws std::bad_alloc.
  virtual Tensor allocate(std::size_t elements, bool wide) = 0;
  virtual void fill(const Tensor& tensor, double value) = 0;
  virtual void copy(const Tensor& from, const Tensor& to) = 0;  ///< Converts if wideness differs.
  /// Host buffers hold elements in the tensor's own precision. `download` synchronizes.
  virtual void upload(std::span<const std::byte> from, const Tensor& to) = 0;
  virtual void download(const Tensor& from, std::span<std::byte> to) = 0;
  virtual void synchronize() = 0;

  /// c = alpha op(a) op(b) + beta c; c is m x n, the inner length is k.
  virtual void gemm(bool transpose_a, bool transpose_b, int m, int n, int k, double alpha,
                    const Tensor& a, const Tensor& b, double beta, const Tensor& c) = 0;
  virtual void add(const Tensor& x, const Tensor& to) = 0;  ///< to += x.

  /// y = x / rms(x) gain by row, rms = sqrt(mean of squares + kNormEpsilon); keeps 1 / rms for each
  /// row in `inverse` (wide). [Zhang and Sennrich 2019]
  virtual void rms_norm(const Tensor& x, const Tensor& gain, int rows, int width, const Tensor& y,
                        const Tensor& inverse) = 0;
  /// dx += ..., d_gain += ... (d_gain is wide; empty memory: not wanted).
  virtual void rms_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& gain,
                                 const Tensor& inverse, int rows, int width, const Tensor& dx,
                                 const Tensor& d_gain) = 0;
  /// y = x less the mean of each row, in the same memory or in another. RMSNorm of it is LayerNorm
  /// without its bias, and as a projection it is its own derivative. [Ba et al. 2016]
  virtual void center(const Tensor& x, int rows, int width, const Tensor& y) = 0;
  /// x += row, to each row: biases; positions, with the tokens of a sample as one row.
  virtual void add_row(const Tensor& row, int rows, int width, const Tensor& x) = 0;
  /// sum += the sum of all rows (sum is wide).
  virtual void sum_rows(const Tensor& x, int rows, int width, const Tensor& sum) = 0;
  /// y = x factors[row], row by row (factors is wide); also in place.
  virtual void scale_rows(const Tensor& x, const Tensor& factors, int rows, int width,
                          const Tensor& y) = 0;
  /// products[row] = the inner product of the rows of x and y (products is wide).
  virtual void dot_rows(const Tensor& x, const Tensor& y, int rows, int width,
                        const Tensor& products) = 0;
  /// Rotary position embedding on heads of `rows` tokens, in place; `inverse` for gradients.
  /// Position is the row modulo `tokens`; elements 2 i and 2 i + 1 of a head are a pair.
  /// [Su et al. 2021, Eq. 34]
  virtual void rotate(const Tensor& x, int rows, int tokens, int heads, int head_dim,
                      bool inverse) = 0;
  /// Scaled dot-product attention with softmax over what the mask leaves; q, o: rows x heads x
  /// head_dim; k, v: rows x kv_heads x head_dim. Keeps log-sum-exp (wide, samples x heads x
  /// tokens).
  virtual void attention(const AttentionShape& shape, const Tensor& q, const Tensor& k,
                         const Tensor& v, const Tensor& o, const Tensor& log_sum) = 0;
  /// Writes dq, dk, dv; recomputes the scores. [Dao et al. 2022]
  virtual void attention_backward(const AttentionShape& shape, const Tensor& d_o, const Tensor& q,
                                  const Tensor& k, const Tensor& v, const Tensor& o,
                                  const Tensor& log_sum, const Tensor& dq, const Tensor& dk,
                                  const Tensor& dv) = 0;
  virtual void gelu(const Tensor& x, const Tensor& y) = 0;  ///< With the error function.
  virtual void gelu_backward(const Tensor& dy, const Tensor& x, const Tensor& dx) = 0;
  virtual void relu(const Tensor& x, const Tensor& y) = 0;  ///< Also in place.
  /// From the output, which all that the derivative asks is whether it is positive.
  virtual void relu_backward(const Tensor& dy, const Tensor& y, const Tensor& dx) = 0;
  /// y = silu(gate) up.
  virtual void swiglu(const Tensor& gate, const Tensor& up, const Tensor& y) = 0;
  virtual void swiglu_backward(const Tensor& dy, const Tensor& gate, const Tensor& up,
                               const Tensor& d_gate, const Tensor& d_up) = 0;

  /// Rows of `table` (vocabulary entries [first, first + count) x width); tokens outside give 0.
  virtual void embed(std::span<const std::int32_t> tokens, const Tensor& table, int first,
                     int count, int width, const Tensor& y) = 0;
  /// d_table += by row, in the order of the tokens (d_table is wide).
  virtual void embed_backward(std::span<const std::int32_t> tokens, const Tensor& dy, int first,
                              int count, int width, const Tensor& d_table) = 0;
  /// Cross-entropy over a vocabulary that is split over ranks: largest logit by row; then, given
  /// the largest over all ranks, the sum of exponentials and the logit of the target (0 if
  /// elsewhere). All outputs are wide, one element a row.
  virtual void row_maximum(const Tensor& logits, int rows, int count, const Tensor& maximum) = 0;
  virtual void row_sums(const Tensor& logits, std::span<const std::int32_t> targets, int first,
                        int count, const Tensor& maximum, const Tensor& sums,
                        const Tensor& target_logits) = 0;
  /// logits := (softmax - one-hot) x scale, with the sums over all ranks.
  virtual void cross_entropy_backward(const Tensor& logits, std::span<const std::int32_t> targets,
                                      int first, int count, const Tensor& maximum,
                                      const Tensor& sums, double scale) = 0;

  /// One Adam step [Kingma and Ba 2015], decoupled weight decay: master, moments and gradient are
  /// wide; the weight is the rounded master (the same memory where precisions agree).
  virtual void adam(const AdamStep& step, const Tensor& gradient, const Tensor& master,
                    const Tensor& first_moment, const Tensor& second_moment,
                    const Tensor& weight) = 0;
  virtual void sgd(double learning_rate, const Tensor& gradient, const Tensor& master,
                   const Tensor& weight) = 0;
};

/// Throws std::runtime_error where the precision is not supported (bf16 on the CPU). `library`:
/// "eigen" or "openblas"; empty: OpenBLAS where it was found at configure time.
std::unique_ptr<Backend> make_cpu_backend(Precision precision, const std::string& library = "");

}  // namespace orrery::executor
