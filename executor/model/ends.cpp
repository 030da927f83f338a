// The embedding and the head, both cut by vocabulary.
#include <cmath>
#include <cstddef>

#include "executor/model/block.h"
#include "executor/model/numbers.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

const HeldParameter& output_table(const BlockWork& work) {
  return work.parameters[head_parameters(work.header.model).output];
}

/// Positions of the member's tokens of a sample, as one row.
struct PositionRow {
  std::size_t begin, end;  ///< Elements of the parameter.
  int samples, width;
};
PositionRow position_row(const BlockWork& work) {
  const UnitRange tokens = work.own_tokens();
  const std::int64_t hidden = work.hidden();
  return {as_size(tokens.begin * hidden), as_size(tokens.end * hidden), work.batch.samples,
          static_cast<int>((tokens.end - tokens.begin) * hidden)};
}

int first_entry(const HeldParameter& table) { return static_cast<int>(table.slice().begin); }
int entries(const HeldParameter& table) {
  return static_cast<int>(table.slice().end - table.slice().begin);
}

}  // namespace

void embedding_forward(const BlockWork& work, TensorGroup& group, Tensor& output) {
  const HeldParameter& table = work.parameters[kToken];
  const Tensor found = work.allocate(work.hidden());
  work.backend.embed(work.batch.tokens, table.weight, first_entry(table), entries(table),
                     work.hidden(), found);
  output = sum_over(work, group, found);
  if (work.header.model.positions == 0) return;
  const PositionRow row = position_row(work);
  work.backend.add_row(part(work.parameters[kPosition].weight, row.begin, row.end), row.samples,
                       row.width, output);
}

void embedding_input_gradient(const BlockWork& work, TensorGroup& group, BlockKept& kept) {
  kept.d_output_all = all_tokens(work, group, kept.d_output);
}

void embedding_weight_gradients(const BlockWork& work, const BlockKept& kept) {
  const HeldParameter& table = work.parameters[kToken];
  work.backend.embed_backward(work.batch.tokens, kept.d_output_all, first_entry(table),
                              entries(table), work.hidden(), table.gradient);
  if (work.header.model.positions == 0) return;
  const PositionRow row = position_row(work);
  work.backend.sum_rows(kept.d_output, row.samples, row.width,
                        part(work.parameters[kPosition].gradient, row.begin, row.end));
}

/// Loss of a row: log of the sum of exponentials over the whole vocabulary less the target's logit.
void head_forward(const BlockWork& work, TensorGroup& group, BlockKept& kept,
                  std::vector<double>& losses) {
  Backend& backend = work.backend;
  const HeldParameter& table = output_table(work);
  const auto rows = static_cast<std::size_t>(work.rows());
  norm_forward(work, head_parameters(work.header.model).norm, kept.input, kept.norm1,
               kept.inverse1);
  kept.norm1 = all_tokens(work, group, kept.norm1);
  kept.logits = project(work, kept.norm1, table.weight, work.hidden());
  kept.maximum = work.allocate(1, true);
  backend.row_maximum(kept.logits, work.rows(), entries(table), kept.maximum);
  if (work.place.degree > 1) group.all_reduce_maximum(kept.maximum);
  kept.sums = work.allocate(2, true);
  const Tensor exponentials = part(kept.sums, 0, rows);
  const Tensor target_logits = part(kept.sums, rows, 2 * rows);
  backend.row_sums(kept.logits, work.batch.targets, first_entry(table), entries(table),
                   kept.maximum, exponentials, target_logits);
  if (work.place.degree > 1) group.all_reduce(kept.sums);
  const std::vector<double> maximum = download_numbers(backend, kept.maximum);
  const std::vector<double> sums = download_numbers(backend, exponentials);
  const std::vector<double> targets = download_numbers(backend, target_logits);
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
  const Tensor d_norm =
      sum_over(work, group, project_back(work, kept.logits, table.weight, work.hidden()));
  d_input = backend.allocate(d_norm.elements, false);
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
