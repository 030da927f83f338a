#include "models/ir/model_shape.h"

#include "models/base/check.h"

namespace orrery::ir {

Bytes size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64:
      return 8_B;
    case Dtype::fp32:
    case Dtype::tf32:
      return 4_B;
    case Dtype::fp16:
    case Dtype::bf16:
    case Dtype::fp8:
    case Dtype::mxfp8:
    case Dtype::fp4:
      return 2_B;
  }
  ORRERY_CHECK(false, "dtype {}", static_cast<int>(dtype));
}

}  // namespace orrery::ir
