#include "executor/model/block.h"

#include <set>

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {
namespace {

int rows_of(const Tensor& tensor, int width) { return static_cast<int>(tensor.elements) / width; }

}  // namespace

std::size_t BlockKept::bytes(const Backend& backend) const {
  std::size_t sum = 0;
  std::set<const Memory*> counted;
  for (const Tensor* tensor :
       {&input,    &norm1,   &inverse1, &query,    &key,           &value,     &attended,
        &log_sum,  &middle,  &norm2,    &inverse2, &gate,          &up,        &activated,
        &logits,   &maximum, &sums,     &arrived,  &returned,      &d_output,  &d_output_all,
        &d_middle, &d_query, &d_key,    &d_value,  &d_middle_all,  &d_gate,    &d_up,
        &d_gain1,  &d_gain2, &d_bias1,  &d_bias2,  &probabilities, &d_arrived, &d_scores}) {
    // Some have two names.
    const bool fresh = tensor->memory != nullptr && counted.insert(tensor->memory.get()).second;
    if (fresh) sum += tensor->elements * backend.element_bytes(tensor->wide);
  }
  return sum;
}

UnitRange BlockWork::own_tokens() const {
  if (!sequence) return {0, header.sequence_length};
  return even_slice(header.sequence_length, place.degree, place.position);
}

TokenRows BlockWork::token_rows() const {
  return {batch.samples, static_cast<int>(header.sequence_length), hidden()};
}

Tensor BlockWork::allocate(int columns, bool wide) const {
  return backend.allocate(as_size(rows()) * as_size(columns), wide);
}

void norm_forward(const BlockWork& work, const ParameterPair& numbers, const Tensor& x, Tensor& y,
                  Tensor& inverse) {
  const int hidden = work.hidden(), rows = rows_of(x, hidden);
  Tensor in = x;
  if (numbers.bias != kAbsent) {
    in = work.backend.allocate(x.elements, false);
    work.backend.center(x, rows, hidden, in);
  }
  y = work.backend.allocate(x.elements, false);
  inverse = work.backend.allocate(as_size(rows), true);
  work.backend.rms_norm(in, work.parameters[numbers.main].weight, rows, hidden, y, inverse);
  add_bias(work, numbers, y);
}

void norm_backward(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_norm,
                   const Tensor& x, const Tensor& inverse, const Tensor& dx, Tensor& d_gain,
                   Tensor& d_bias) {
  Backend& backend = work.backend;
  const int hidden = work.hidden(), rows = rows_of(x, hidden);
  const auto width = static_cast<std::size_t>(hidden);
  d_gain = backend.allocate(width, true);
  backend.fill(d_gain, 0);
  const Tensor& gain = work.parameters[numbers.main].weight;
  if (numbers.bias == kAbsent) {
    backend.rms_norm_backward(d_norm, x, gain, inverse, rows, hidden, dx, d_gain);
    return;
  }
  d_bias = backend.allocate(width, true);
  backend.fill(d_bias, 0);
  backend.sum_rows(d_norm, rows, hidden, d_bias);
  const Tensor centered = backend.allocate(x.elements, false);
  const Tensor d_centered = backend.allocate(x.elements, false);
  backend.center(x, rows, hidden, centered);
  backend.fill(d_centered, 0);
  backend.rms_norm_backward(d_norm, centered, gain, inverse, rows, hidden, d_centered, d_gain);
  backend.center(d_centered, rows, hidden, d_centered);
  backend.add(d_centered, dx);
}

void add_norm_gradients(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_gain,
                        const Tensor& d_bias) {
  work.backend.add(d_gain, work.parameters[numbers.main].gradient);
  if (numbers.bias != kAbsent) work.backend.add(d_bias, work.parameters[numbers.bias].gradient);
}

void add_bias(const BlockWork& work, const ParameterPair& numbers, const Tensor& y) {
  if (numbers.bias == kAbsent) return;
  const Tensor& bias = work.parameters[numbers.bias].weight;
  const int width = static_cast<int>(bias.elements);
  work.backend.add_row(bias, rows_of(y, width), width, y);
}

void add_bias_gradient(const BlockWork& work, const ParameterPair& numbers, const Tensor& dy) {
  if (numbers.bias == kAbsent) return;
  const Tensor& gradient = work.parameters[numbers.bias].gradient;
  const int width = static_cast<int>(gradient.elements);
  work.backend.sum_rows(dy, rows_of(dy, width), width, gradient);
}

Tensor sum_over(const BlockWork& work, TensorGroup& group, const Tensor& tensor) {
  const Place& place = work.place;
  ORRERY_CHECK(group.degree() == place.degree && group.position() == place.position,
               "position {} of {} in a group of {}", place.position, place.degree, group.degree());
  if (work.sequence) {
    const UnitRange tokens = work.own_tokens();
    const Tensor own = work.backend.allocate(
        as_size((tokens.end - tokens.begin) * work.batch.samples * work.hidden()), false);
    group.reduce_scatter(tensor, work.token_rows(), own);
    return own;
  }
  if (place.degree > 1) group.all_reduce(tensor);
  return tensor;
}

Tensor all_tokens(const BlockWork& work, TensorGroup& group, const Tensor& own) {
  if (!work.sequence) return own;
  Tensor all = work.allocate(work.hidden());
  group.all_gather(own, work.token_rows(), all);
  return all;
}

Tensor project(const BlockWork& work, const Tensor& x, const Tensor& weight, int inputs) {
  const int outputs = static_cast<int>(weight.elements / inputs);
  Tensor y = work.allocate(outputs);
  work.backend.gemm(false, true, work.rows(), outputs, inputs, 1, x, weight, 0, y);
  return y;
}

Tensor project_back(const BlockWork& work, const Tensor& x, const Tensor& weight, int outputs) {
  const int inputs = static_cast<int>(weight.elements / outputs);
  Tensor y = work.allocate(outputs);
  work.backend.gemm(false, false, work.rows(), outputs, inputs, 1, x, weight, 0, y);
  return y;
}

void add_weight_gradient(const BlockWork& work, const Tensor& left, const Tensor& right,
                         const Tensor& gradient) {
  const int hidden = work.hidden();
  const int units = static_cast<int>(gradient.elements / hidden);
  work.backend.gemm(true, false, units, hidden, rows_of(right, hidden), 1, left, right, 1,
                    gradient);
}

}  // namespace orrery::executor
