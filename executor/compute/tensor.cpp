#include "executor/compute/backend.h"
#include "models/base/check.h"

namespace orrery::executor {

Tensor part(const Tensor& tensor, std::size_t begin, std::size_t end) {
  ORRERY_CHECK(begin <= end && end <= tensor.elements, "part [{}, {}) of {} elements", begin, end,
               tensor.elements);
  return {tensor.memory, tensor.offset + begin, end - begin, tensor.wide};
}

AttentionElements elements_of(const AttentionShape& shape) {
  const int first = shape.first_head / shape.group - shape.first_kv;
  const int last = (shape.first_head + shape.heads - 1) / shape.group - shape.first_kv;
  ORRERY_CHECK(first >= 0 && last < shape.kv_heads, "key-value heads {} to {} of {}", first, last,
               shape.kv_heads);
  const auto size = [](int count) { return static_cast<std::size_t>(count); };
  const std::size_t rows = size(shape.samples) * size(shape.tokens);
  return {rows * size(shape.heads) * size(shape.head_dim),
          rows * size(shape.kv_heads) * size(shape.head_dim), rows * size(shape.heads)};
}

}  // namespace orrery::executor
