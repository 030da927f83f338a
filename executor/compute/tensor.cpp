#include "executor/compute/backend.h"
#include "models/base/check.h"

namespace orrery::executor {

Tensor part(const Tensor& tensor, std::size_t begin, std::size_t end) {
  ORRERY_CHECK(begin <= end && end <= tensor.elements, "part [{}, {}) of {} elements", begin, end,
               tensor.elements);
  return {tensor.memory, tensor.offset + begin, end - begin, tensor.wide};
}

}  // namespace orrery::executor
