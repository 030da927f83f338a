/// The iterations of HexiScale: how many pipelines to try, where to cut, and the plans found.
/// [HexiScale, 4.2 and 4.4]
#pragma once
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planners/hexiscale_costs.h"
#include "planners/hexiscale_pipeline.h"
#include "planners/hexiscale_settings.h"
#include "planners/kit/moving_average.h"
#include "planners/kit/partition.h"
#include "planners/plan_parts.h"
#include "planners/planner.h"

namespace orrery::planners {

/// Which D_dp and which cut the next round takes, from the costs of the rounds before.
///
/// The paper enumerates D_dp across iterations and does not say what the remaining ones do. Here
/// the candidates (at most three tenths of the rounds; spread geometrically where there are more)
/// are visited twice, after which rounds go to the best D_dp, up to two more or fewer, and the
/// second best.
///
/// Deviation: the paper chooses the cut by "the historical moving average of costs" of data
/// parallelism and pipelines, without the rule. Its own case study maximises the cut although
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

/// A plan that fits.
struct RankedPlan {
  ir::Plan plan;
  Seconds estimate;  ///< By the paper's cost model.
};

/// The whole search on one input.
class HexiscaleSearch {
 public:
  HexiscaleSearch(const PlannerInput& input, const HexiscaleSettings& settings,
                  const PlannerEntry& entry);
  PlannerResult run();

 private:
  std::optional<models::Infeasible> refuse() const;
  void round(int number, HexiscaleHistory& history);
  std::vector<DeviceList> split(int pipelines, CutObjective cut, Rng& rng) const;
  std::vector<int> share_batch(const std::vector<PipelineDraft>& drafts) const;
  std::vector<std::vector<int>> group_counts(const std::vector<DeviceList>& parts, Rng& rng) const;
  std::vector<int> expected_shares(const std::vector<DeviceList>& parts) const;
  std::vector<std::vector<PipelineDraft>> lay_out(const std::vector<DeviceList>& parts, Rng& rng);
  ir::Plan finish_layout(std::vector<PipelineDraft> drafts) const;
  std::optional<models::HexiscaleEstimate> judge(ir::Plan plan);
  ir::Plan assemble(const std::vector<PipelineDraft>& drafts,
                    const std::vector<int>& micro_batches) const;
  void keep(ir::Plan plan, Seconds estimate);
  PlannerResult finish();

  const PlannerInput& input_;
  const HexiscaleSettings& settings_;
  const PlannerEntry& entry_;
  HexiscaleCosts costs_;
  PipelineBuilder builder_;
  WeightedGraph graph_;
  int micro_batches_ = 0;
  std::vector<RankedPlan> ranking_;  ///< Best first, distinct.
  SearchReport report_;
  std::string nearest_;  ///< Why a finished plan did not fit.
};

}  // namespace orrery::planners
