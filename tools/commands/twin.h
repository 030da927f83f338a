/// The tables of a twin. Private to the twin command and its tests.
#pragma once
#include <string>

#include "experiments/execution/twin_results.h"

namespace orrery::tools {

std::string twin_text(const experiments::TwinSummary& summary);

}  // namespace orrery::tools
