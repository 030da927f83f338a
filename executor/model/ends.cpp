// The embedding and the head, both cut by vocabulary.
#include <cmath>
#include <cstddef>
#include <span>

#include "executor/model/block.h"

namespace orrery::executor {
namespace {

const HeldParameter& output_table(const BlockWork& work) {
  return work.parameters[head_parameters(work.header.model).output];
}

/// Positions of the tokens of a sample, as one row.
struct PositionRow {
  std::size_t elements;
  int samples, width;
};
PositionRow position_row(const BlockWork& work) {
  const int width = static_cast<int>(work.header.sequence_length) * work.hidden();
  return {static_cast<std::size_t>(width), work.batch.samples, width};
}

int first_entry(const HeldParameter& table) { return static_cast<int>(table.begin); }
int entries(const HeldParameter& table) { return static_cast<int>(table.end - table.begin); }

template <class T>
void append(const std::vector<std::byte>& bytes, std::vector<double>& out) {
  const std::span<const T> values(reinterpret_cast<const T*>(bytes.data()),
                                  bytes.size() / sizeof(T));
  out.assign(values.begin(), values.end());
}

std::vector<double> download(Backend& backend, const Tensor& tensor) {
  std::vector<std::byte> bytes(tensor.elements * backend.element_bytes(true));
  backend.download(tensor, bytes);
  std::vector<double> out;
  if (backend.element_bytes(true) == sizeof(double)) {
    append<double>(bytes, out);
  } else {
    append<float>(bytes, out);
  }
  return out;
}

}  // namespace

void embedding_forward(const BlockWork& work, TensorGroup& group, Tensor& output) {
  const HeldParameter& table = work.parameters[kToken];
  output = work.allocate(work.hidden());
  work.backend.embed(work.batch.tokens, table.weight, first_entry(table), entries(table),
                     work.hidden(), output);
  sum_over(work, group, output);
  if (work.header.model.positions == 0) return;
  const PositionRow row = position_row(work);
  work.backend.add_row(part(work.parameters[kPosition].weight, 0, row.elements), row.samples,
                       row.width, output);
}

void embedding_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const HeldParameter& table = work.parameters[kToken];
  work.backend.embed_backward(work.batch.tokens, kept.d_output, first_entry(table), entries(table),
                              work.hidden(), table.gradient);
  if (work.header.model.positions == 0) return;
  const PositionRow row = position_row(work);
  work.backend.sum_rows(kept.d_output, row.samples, row.width,
                        part(work.parameters[kPosition].gradient, 0, row.elements));
}

/// Loss of a row: log of the sum of exponentials over the whole vocabulary less the target's logit.
void head_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                  std::vector<double>& losses) {
  Backend& backend = work.backend;
  const HeldParameter& table = output_table(work);
  const auto rows = static_cast<std::size_t>(work.rows());
  norm_forward(work, head_parameters(work.header.model).norm, kept.input, kept.norm1,
               kept.inverse1);
  kept.logits = project(work, kept.norm1, table.weight, work.hidden());
  kept.maximum = work.allocate(1, true);
  backend.row_maximum(kept.logits, work.rows(), entries(table), kept.maximum);
  if (work.degree > 1) group.all_reduce_maximum(kept.maximum);
  kept.sums = work.allocate(2, true);
  const Tensor exponentials = part(kept.sums, 0, rows);
  const Tensor target_logits = part(kept.sums, rows, 2 * rows);
  backend.row_sums(kept.logits, work.batch.targets, first_entry(table), entries(table),
                   kept.maximum, exponentials, target_logits);
  sum_over(work, group, kept.sums);
  const std::vector<double> maximum = download(backend, kept.maximum);
  const std::vector<double> sums = download(backend, exponentials);
  const std::vector<double> targets = download(backend, target_logits);
  losses.assign(static_cast<std::size_t>(work.batch.samples), 0.0);
  const auto tokens = static_cast<std::size_t>(work.header.sequence_length);
  for (std::size_t row = 0; row < rows; ++row) {
    losses[row / tokens] += maximum[row] + std::log(sums[row]) - targets[row];
  }
}

void head_input_gradient(const BlockWork& work, TensorGroup& group, double scale, BlockKept& kept,
                         Tensor& d_input) {
  Backend& backend = work.backend;
  const HeldParameter& table = output_table(work);
  backend.cross_entropy_backward(kept.logits, work.batch.targets, first_entry(table),
                                 entries(table), kept.maximum,
                                 part(kept.sums, 0, static_cast<std::size_t>(work.rows())), scale);
  const Tensor d_norm = project_back(work, kept.logits, table.weight, work.hidden());
  sum_over(work, group, d_norm);
  d_input = work.allocate(work.hidden());
  backend.fill(d_input, 0);
  norm_backward(work, head_parameters(work.header.model).norm, d_norm, kept.input, kept.inverse1,
                d_input, kept.d_gain1, kept.d_bias1);
  for (Tensor* tensor : {&kept.input, &kept.inverse1, &kept.maximum, &kept.sums}) *tensor = {};
}

void head_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const HeadParameters numbers = head_parameters(work.header.model);
  add_weight_gradient(work, kept.logits, kept.norm1, work.parameters[numbers.output].gradient);
  add_norm_gradients(work, numbers.norm, kept.d_gain1, kept.d_bias1);
}

}  // namespace orrery::executor
