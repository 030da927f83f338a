#include "sim/iteration/breakdown.h"

#include "models/base/time.h"

namespace orrery::sim {

models::Breakdown mean_breakdown(const ir::Program& program, std::span<const RankBreakdown> ranks) {
  models::Breakdown mean;
  double devices = 0;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto weight = static_cast<double>(program.ranks[r].devices.size());
    devices += weight;
    mean.compute += weight * to_seconds(ranks[r].compute);
    mean.tensor_parallel += weight * to_seconds(ranks[r].tensor_parallel);
    mean.pipeline += weight * to_seconds(ranks[r].pipeline);
    mean.data_parallel += weight * to_seconds(ranks[r].data_parallel);
    mean.optimizer += weight * to_seconds(ranks[r].optimizer);
    mean.bubble += weight * to_seconds(ranks[r].bubble);
  }
  if (devices == 0) return mean;
  for (Seconds* part : {&mean.compute, &mean.tensor_parallel, &mean.pipeline, &mean.data_parallel,
                        &mean.optimizer, &mean.bubble}) {
    *part *= 1 / devices;
  }
  return mean;
}

}  // namespace orrery::sim
