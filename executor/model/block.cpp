#include "executor/model/block.h"

#include "models/base/check.h"

namespace orrery::executor {

std::size_t BlockKept::bytes(const Backend& backend) const {
  std::size_t sum = 0;
  for (const Tensor* tensor :
       {&input,   &norm1,   &inverse1, &query,    &key,      &value,   &attended,
        &log_sum, &middle,  &norm2,    &inverse2, &gate,     &up,      &activated,
        &logits,  &maximum, &sums,     &d_output, &d_middle, &d_query, &d_key,
        &d_value, &d_gate,  &d_up,     &d_gain1,  &d_gain2}) {
    if (tensor->memory != nullptr) sum += tensor->elements * backend.element_bytes(tensor->wide);
  }
  return sum;
}

Tensor BlockWork::allocate(int columns, bool wide) const {
  return backend.allocate(static_cast<std::size_t>(rows()) * static_cast<std::size_t>(columns),
                          wide);
}

void sum_over(const BlockWork& work, TensorGroup& group, const Tensor& tensor) {
  ORRERY_CHECK(group.degree() == work.degree && group.position() == work.position,
               "position {} of {} in a group of {}", work.position, work.degree, group.degree());
  if (work.degree > 1) group.all_reduce(tensor);
}

Tensor project(const BlockWork& work, const Tensor& x, const Tensor& weight, int inputs) {
  const int outputs = static_cast<int>(weight.elements / static_cast<std::size_t>(inputs));
  Tensor y = work.allocate(outputs);
  work.backend.gemm(false, true, work.rows(), outputs, inputs, 1, x, weight, 0, y);
  return y;
}

Tensor project_back(const BlockWork& work, const Tensor& x, const Tensor& weight, int outputs) {
  const int inputs = static_cast<int>(weight.elements / static_cast<std::size_t>(outputs));
  Tensor y = work.allocate(outputs);
  work.backend.gemm(false, false, work.rows(), outputs, inputs, 1, x, weight, 0, y);
  return y;
}

void add_weight_gradient(const BlockWork& work, const Tensor& left, const Tensor& right,
                         const Tensor& gradient) {
  const int hidden = work.hidden();
  const int units = static_cast<int>(gradient.elements / static_cast<std::size_t>(hidden));
  work.backend.gemm(true, false, units, hidden, work.rows(), 1, left, right, 1, gradient);
}

}  // namespace orrery::executor
