#include "executor/model/numbers.h"

#include <cstddef>
#include <cstring>

namespace orrery::executor {
namespace {

template <class T>
std::vector<double> from_bytes(const std::vector<std::byte>& bytes) {
  std::vector<double> out(bytes.size() / sizeof(T));
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value{};
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    out[i] = static_cast<double>(value);
  }
  return out;
}

template <class T>
std::vector<std::byte> to_bytes(const std::vector<double>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(T));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const T value = static_cast<T>(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

}  // namespace

std::vector<double> download_numbers(Backend& backend, const Tensor& from) {
  Tensor wide = from;
  if (!from.wide) {
    wide = backend.allocate(from.elements, true);
    backend.copy(from, wide);
  }
  std::vector<std::byte> bytes(wide.elements * backend.element_bytes(true));
  backend.download(wide, bytes);
  return backend.element_bytes(true) == sizeof(double) ? from_bytes<double>(bytes)
                                                       : from_bytes<float>(bytes);
}

void upload_numbers(Backend& backend, const std::vector<double>& numbers, const Tensor& to) {
  const Tensor wide = to.wide ? to : backend.allocate(to.elements, true);
  backend.upload(backend.element_bytes(true) == sizeof(double) ? to_bytes<double>(numbers)
                                                               : to_bytes<float>(numbers),
                 wide);
  if (!to.wide) backend.copy(wide, to);
}

}  // namespace orrery::executor
