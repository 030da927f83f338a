/// What the rounds of HexiScale learn from each other: how many pipelines to try next and where to
/// cut. [HexiScale, 4.4]
#pragma once
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "models/base/rng.h"
#include "models/cost/hexiscale_model.h"
#include "planners/hexiscale/settings.h"
#include "planners/kit/moving_average.h"
#include "planners/kit/partition.h"

namespace orrery::planners {

/// Which D_dp and which cut the next round takes, from the costs of the rounds before.
///
/// The paper enumerates D_dp across iterations and does not say what the remaining ones do. Here
/// the candidates (at most three tenths of the rounds; spread geometrically where there are more)
/// are visited twice, after which rounds go to the best D_dp, up to two more or fewer, and the
/// second best.
///
/// Deviation: the paper chooses the cut by "the historical moving average of costs" of data
/// parallelism and pipelines, without the rule. Its own case study maximizes the cut although
/// pipelines cost four times what data parallelism does, so that comparing the two (compare_costs)
/// is not the rule. Here (moving_average) that comparison says which cut a D_dp starts with; then
/// the other cut is tried; then the one whose moving average of iteration times is lower.
class HexiscaleHistory {
 public:
  HexiscaleHistory(const HexiscaleSettings& settings, int rounds, int most_pipelines, int devices,
                   int layers);

  int pipelines(int round, Rng& rng);
  CutObjective cut(int pipelines) const;
  /// `estimate`: nothing when the round found no plan that fits.
  void add(int pipelines, CutObjective cut,
           const std::optional<models::HexiscaleEstimate>& estimate);

 private:
  struct Past {
    bool tried = false;
    std::optional<MovingAverage> iteration;  ///< Of the rounds that found a plan.
  };
  CutObjective by_costs() const;
  int refined(int round) const;

  const HexiscaleSettings& settings_;
  int most_;
  std::vector<int> candidates_;
  std::pair<int, int> walk_range_;
  int walk_ = 0;
  MovingAverage data_parallel_;
  MovingAverage pipeline_;
  std::map<std::pair<int, CutObjective>, Past> past_;
  std::map<int, Seconds> best_;  ///< By number of pipelines.
};

}  // namespace orrery::planners
