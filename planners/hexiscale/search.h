/// The iterations of HexiScale and the plans found. [HexiScale, 4.2 and 4.4]
#pragma once
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "models/base/rng.h"
#include "planners/hexiscale/costs.h"
#include "planners/hexiscale/history.h"
#include "planners/hexiscale/pipeline.h"
#include "planners/hexiscale/settings.h"
#include "planners/kit/partition.h"
#include "planners/kit/plan_parts.h"
#include "planners/planner.h"

namespace orrery::planners {

/// A plan that fits.
struct RankedPlan {
  ir::Plan plan;
  Seconds estimate;  ///< By the paper's cost model.
};

/// The whole search on one input: rounds of the search that the settings describe and, besides,
/// of the same search with one tensor-parallel degree for all stages, for each power of two that
/// model, job and machines allow. Each has its own history and its own finalists, and is what it
/// would be alone; the evaluator sees their finalists in turns.
///
/// Deviation: the paper searches once and its estimate decides. The estimate sees neither
/// contention nor embedding and head, and among the best by it may be none with equal degrees
/// though those are in the space. The other searches need degrees that are free
/// (tensor_parallel 0, all candidates) and an evaluator that is asked (evaluate_top above 1);
/// without, this is the paper's.
class HexiscaleSearch {
 public:
  HexiscaleSearch(const PlannerInput& input, const HexiscaleSettings& settings,
                  const PlannerEntry& entry);
  PlannerResult run();

 private:
  /// One of the searches. Not to be moved: its parts refer to its settings.
  struct Line {
    Line(const PlannerInput& input, const HexiscaleCosts& costs, const HexiscaleSettings& all,
         int degree, int rounds, int most_pipelines);
    HexiscaleSettings settings;
    PipelineBuilder builder;
    HexiscaleHistory history;
    std::vector<RankedPlan> ranking;  ///< Best first, distinct.
  };
  /// A partition of the devices and the generator after it, for searches that ask for the same.
  struct Split {
    int pipelines = 1;
    CutObjective cut = CutObjective::kMinimize;
    std::vector<DeviceList> parts;
    Rng after;
  };

  std::optional<models::Infeasible> refuse() const;
  void begin(int rounds);
  void round(int number, Line& line, std::vector<Split>& splits);
  const Split& split(int pipelines, CutObjective cut, Rng rng, std::vector<Split>& known) const;
  std::vector<int> share_batch(const std::vector<PipelineDraft>& drafts) const;
  std::vector<std::vector<int>> group_counts(const Line& line, const std::vector<DeviceList>& parts,
                                             Rng& rng) const;
  std::vector<int> expected_shares(const std::vector<DeviceList>& parts) const;
  std::vector<std::vector<PipelineDraft>> lay_out(const Line& line,
                                                  const std::vector<DeviceList>& parts, Rng& rng);
  ir::Plan finish_layout(const Line& line, std::vector<PipelineDraft> drafts) const;
  std::optional<models::HexiscaleEstimate> judge(Line& line, ir::Plan plan);
  ir::Plan assemble(const std::vector<PipelineDraft>& drafts,
                    const std::vector<int>& micro_batches) const;
  void keep(Line& line, ir::Plan plan, Seconds estimate) const;
  PlannerResult finish();

  const PlannerInput& input_;
  const HexiscaleSettings& settings_;
  const PlannerEntry& entry_;
  HexiscaleCosts costs_;
  WeightedGraph graph_;
  int micro_batches_ = 0;
  std::deque<Line> lines_;  ///< First the one that the settings describe.
  SearchReport report_;
  std::string nearest_;  ///< Why a finished plan did not fit.
};

}  // namespace orrery::planners
