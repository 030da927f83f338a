#include "executor/compute/backend.h"
#include "models/base/check.h"
#include "models/base/ids.h"

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
  const std::size_t rows = as_size(shape.samples) * as_size(shape.tokens);
  return {rows * as_size(shape.heads) * as_size(shape.head_dim),
          rows * as_size(shape.kv_heads) * as_size(shape.head_dim), rows * as_size(shape.heads)};
}

}  // namespace orrery::executor
