// What a build without CUDA says.
#include <stdexcept>

#include "executor/cuda/backend.h"

namespace orrery::executor {
namespace {

constexpr const char* kProblem =
    "this build has no CUDA (install the CUDA toolkit and configure with ORRERY_WITH_CUDA=ON)";

}  // namespace

CudaStatus cuda_status() { return {kProblem, {}}; }

std::unique_ptr<Backend> make_cuda_backend(Precision, int, int, bool) {
  throw std::runtime_error(kProblem);
}

std::vector<std::unique_ptr<Backend>> make_green_backends(Precision, int, const std::vector<int>&) {
  throw std::runtime_error(kProblem);
}

}  // namespace orrery::executor
