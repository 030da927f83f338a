/// A strategy put on a cluster: its plan, what its pipelines can hold, what sequences cost. The
/// tables of the papers give the pipelines alone: ZeRO stage and recomputation are chosen here, the
/// least that fits in memory.
#pragma once
#include <cstdint>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/spec/topology.h"
#include "planners/kit/integers.h"
#include "planners/mixed_length/strategy.h"

namespace orrery::planners {

struct MixedLengthInput {
  const models::LengthPricer& pricer;
  const models::Topology& topology;
  std::int64_t context = 0;   ///< Tokens; no sequence is longer.
  std::int64_t multiple = 1;  ///< Lengths are multiples of it.
  const StrategySet& set;
};

/// A strategy on a cluster: its plan with one micro-batch in each pipeline, what each pipeline can
/// hold, and what a sequence costs there.
class PreparedStrategy {
 public:
  /// Chooses recomputation and ZeRO stage; Infeasible where the plan is invalid or where under
  /// none of them some pipeline holds sequences of `strategy.longest` tokens (memory).
  static std::variant<PreparedStrategy, models::Infeasible> make(const MixedLengthInput& input,
                                                                 const LengthStrategy& strategy);

  /// The same with this recomputation and ZeRO stage, whatever its pipelines hold: Infeasible only
  /// where the plan is invalid.
  static std::variant<PreparedStrategy, models::Infeasible> make_with(
      const MixedLengthInput& input, const LengthStrategy& strategy, ir::Recompute recompute,
      int zero_stage);

  std::int64_t longest() const { return longest_; }
  const ir::Plan& plan() const { return plan_; }
  int pipelines() const { return static_cast<int>(plan_.pipelines.size()); }
  /// Longest sequence that the pipeline holds with as many micro-batches in flight as it has
  /// stages, in tokens; 0: not even input.multiple.
  std::int64_t limit(int pipeline) const { return limits_[pipeline]; }

  struct Passes {
    Seconds forward;
    Seconds backward;
    Seconds both() const { return forward + backward; }
  };
  /// Forward and backward of one sequence on each stage: with recomputation and collectives inside
  /// the passes, without transfers between stages. `length` 0: no time.
  const std::vector<Passes>& cost(int pipeline, std::int64_t length) const;

  /// The plan with as many micro-batches as `lengths` has.
  ir::Plan plan_for(const models::MicroBatchLengths& lengths) const;

 private:
  bool fits(int pipeline, std::int64_t length) const;

  const models::LengthPricer* pricer_ = nullptr;
  const models::Topology* topology_ = nullptr;
  std::int64_t longest_ = 0;
  ir::Plan plan_;
  ir::Program program_;  ///< One micro-batch in each pipeline, at `longest_`.
  std::vector<std::int64_t> limits_;
  mutable std::map<std::pair<int, std::int64_t>, std::vector<Passes>> costs_;
};

}  // namespace orrery::planners
