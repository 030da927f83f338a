/// Numbers in and out of a back end, for tests: doubles here, the back end's own precision there.
#pragma once
#include <cstring>
#include <vector>

#include "executor/compute/backend.h"
#include "models/base/rng.h"

namespace orrery::executor {

/// Normal numbers, rounded to fp32 so that fp32 and fp64 back ends start from equal ones.
inline std::vector<double> random_numbers(std::size_t count, std::uint64_t seed,
                                          double deviation = 1) {
  Rng rng(seed);
  std::vector<double> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(static_cast<double>(static_cast<float>(deviation * rng.normal())));
  }
  return out;
}

inline Tensor to_tensor(Backend& backend, const std::vector<double>& numbers, bool wide = false) {
  Tensor tensor = backend.allocate(numbers.size(), wide);
  const std::size_t width = backend.element_bytes(wide);
  std::vector<std::byte> bytes(numbers.size() * width);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const float single = static_cast<float>(numbers[i]);
    std::memcpy(&bytes[i * width], width == 8 ? static_cast<const void*>(&numbers[i]) : &single,
                width);
  }
  backend.upload(bytes, tensor);
  return tensor;
}

inline std::vector<double> to_numbers(Backend& backend, const Tensor& tensor) {
  const std::size_t width = backend.element_bytes(tensor.wide);
  std::vector<std::byte> bytes(tensor.elements * width);
  backend.download(tensor, bytes);
  std::vector<double> out(tensor.elements);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (width == 8) {
      std::memcpy(&out[i], &bytes[i * width], width);
    } else {
      float single = 0;
      std::memcpy(&single, &bytes[i * width], width);
      out[i] = static_cast<double>(single);
    }
  }
  return out;
}

}  // namespace orrery::executor
