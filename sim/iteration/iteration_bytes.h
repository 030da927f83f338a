/// An IterationResult as bytes, for the way back from a forked copy. Private to sim/iteration.
#pragma once
#include <string>
#include <string_view>

#include "sim/iteration/iteration.h"

namespace orrery::sim {

/// All of it but spans and memory samples, which must be empty.
std::string to_bytes(const IterationResult& result);
IterationResult iteration_from_bytes(std::string_view bytes);

}  // namespace orrery::sim
