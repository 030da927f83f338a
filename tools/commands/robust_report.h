/// What `plan --robust` and `advise` print.
#pragma once
#include <string>

#include "experiments/study/robust_plan.h"

namespace orrery::tools {

/// What was chosen with its figures, what other choices cost, and the candidates.
std::string robust_text(const experiments::RobustResult& result);

/// The choice as advice: a sentence for each thing to set, with its reason.
std::string advice_text(const experiments::RobustResult& result);

}  // namespace orrery::tools
