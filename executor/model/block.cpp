#include "executor/model/block.h"

#include "models/base/check.h"
#include "models/base/ids.h"

namespace orrery::executor {

std::size_t BlockKept::bytes(const Backend& backend) const {
  std::size_t sum = 0;
  for (const Tensor* tensor :
       {&input,   &norm1,   &inverse1, &query,    &key,      &value,   &attended,
        &log_sum, &middle,  &norm2,    &inverse2, &gate,     &up,      &activated,
        &logits,  &maximum, &sums,     &d_output, &d_middle, &d_query, &d_key,
        &d_value, &d_gate,  &d_up,     &d_gain1,  &d_gain2,  &d_bias1, &d_bias2}) {
    if (tensor->memory != nullptr) sum += tensor->elements * backend.element_bytes(tensor->wide);
  }
  return sum;
}

Tensor BlockWork::allocate(int columns, bool wide) const {
  return backend.allocate(as_size(rows()) * as_size(columns), wide);
}

void norm_forward(const BlockWork& work, const ParameterPair& numbers, const Tensor& x, Tensor& y,
                  Tensor& inverse) {
  const int rows = work.rows(), hidden = work.hidden();
  Tensor in = x;
  if (numbers.bias != kAbsent) {
    in = work.allocate(hidden);
    work.backend.center(x, rows, hidden, in);
  }
  y = work.allocate(hidden);
  inverse = work.allocate(1, true);
  work.backend.rms_norm(in, work.parameters[numbers.main].weight, rows, hidden, y, inverse);
  add_bias(work, numbers, y);
}

void norm_backward(const BlockWork& work, const ParameterPair& numbers, const Tensor& d_norm,
                   const Tensor& x, const Tensor& inverse, const Tensor& dx, Tensor& d_gain,
                   Tensor& d_bias) {
  Backend& backend = work.backend;
  const int rows = work.rows(), hidden = work.hidden();
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
  const Tensor centered = work.allocate(hidden), d_centered = work.allocate(hidden);
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
  const int width = static_cast<int>(y.elements) / work.rows();
  work.backend.add_row(work.parameters[numbers.bias].weight, work.rows(), width, y);
}

void add_bias_gradient(const BlockWork& work, const ParameterPair& numbers, const Tensor& dy) {
  if (numbers.bias == kAbsent) return;
  const int width = static_cast<int>(dy.elements) / work.rows();
  work.backend.sum_rows(dy, work.rows(), width, work.parameters[numbers.bias].gradient);
}

void sum_over(const BlockWork& work, TensorGroup& group, const Tensor& tensor) {
  ORRERY_CHECK(group.degree() == work.degree && group.position() == work.position,
               "position {} of {} in a group of {}", work.position, work.degree, group.degree());
  if (work.degree > 1) group.all_reduce(tensor);
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
  work.backend.gemm(true, false, units, hidden, work.rows(), 1, left, right, 1, gradient);
}

}  // namespace orrery::executor
