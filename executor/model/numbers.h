/// Numbers of a tensor on the host, in double. Private to the folder.
#pragma once
#include <vector>

#include "executor/compute/backend.h"

namespace orrery::executor {

/// Wide or not.
std::vector<double> download_numbers(Backend& backend, const Tensor& from);
/// Wide or not; rounded.
void upload_numbers(Backend& backend, const std::vector<double>& numbers, const Tensor& to);

}  // namespace orrery::executor
