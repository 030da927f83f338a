// What a build without NCCL says.
#include <stdexcept>

#include "executor/cuda/nccl_transport.h"

namespace orrery::executor {

std::string nccl_problem() {
  return "this build has no NCCL (install CUDA and NCCL and configure with ORRERY_WITH_CUDA=ON)";
}

std::unique_ptr<Transport> make_nccl_transport(std::unique_ptr<Transport>, int) {
  throw std::runtime_error(nccl_problem());
}

}  // namespace orrery::executor
