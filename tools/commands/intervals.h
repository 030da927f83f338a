/// Means with their intervals as cells of tables.
#pragma once
#include <string>

#include "experiments/study/replay_ranking.h"

namespace orrery::tools {

/// "92.13 ±0.40"; "92.13 (91.80 to 92.50)" where what is possible bounds it, and of few values,
/// from the least to the most; the mean alone where there is one value; "-" where there is none.
std::string interval_cell(const experiments::Interval& interval, double scale, int digits);

}  // namespace orrery::tools
