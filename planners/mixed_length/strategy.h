/// Parallel strategies for sequences of mixed lengths, and the plans that follow from them. A
/// strategy is a list of pipelines on consecutive devices, "one of TP 16, then four of TP 4", that
/// serves sequences up to a length; homogeneous strategies (DP x TP x CP x PP) are one entry. The
/// tables of the papers say no more: ZeRO stage and recomputation are chosen here, the least that
/// fits in memory.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/config/visitor.h"
#include "models/interfaces/evaluator.h"
#include "models/ir/names.h"
#include "models/ir/plan.h"
#include "models/ir/program.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/spec/topology.h"

namespace orrery::planners {

/// Equal pipelines; layers are divided evenly over the stages, the first ones take the rest.
struct PipelineKind {
  int count = 1;
  int tensor_parallel = 1;
  int stages = 1;
  ir::SequenceParallelism sequence = ir::SequenceParallelism::none;
  int sequence_degree = 1;  ///< Ulysses and ring: groups of ranks that share a sequence.
};

struct LengthStrategy {
  /// Longest sequence that it serves, in tokens.
  std::int64_t longest = 0;
  std::vector<PipelineKind> pipelines;
};

/// How strategies are searched (search.h).
struct StrategySearch {
  /// Ends of intervals of lengths, ascending, multiples of the lengths' unit; the context is added.
  /// Empty: the context halved four times.
  std::vector<std::int64_t> borders;
  int max_strategies = 3;
  int max_kinds = 2;            ///< Of pipelines in a strategy; homogeneous planners use one.
  int max_tensor_parallel = 0;  ///< 0: all devices.
  int max_stages = 8;
  int sample_steps = 16;  ///< Drawn from the same lengths as the steps that are run, not those.
  int balanced = 12;      ///< Candidates of each interval whose sequences are balanced in full.
  int finalists = 4;      ///< Sets of strategies that are simulated.
};

/// What a step planner may use. YAML: part of an experiment file.
struct StrategySet {
  std::vector<LengthStrategy> strategies;  ///< Ascending by `longest`; empty: they are searched.
  /// Tried in this order; of each all ZeRO stages.
  std::vector<ir::Recompute> recompute = {ir::Recompute::none, ir::Recompute::selective,
                                          ir::Recompute::full};
  std::vector<int> zero_stages = {1};  ///< Tried in this order.
  StrategySearch search = {};
  bool searched() const { return strategies.empty(); }
};

void describe(config::Visitor& v, PipelineKind& kind);
void describe(config::Visitor& v, LengthStrategy& strategy);
void describe(config::Visitor& v, StrategySearch& search);
/// `strategies` is a list, or the word `search`.
void describe(config::Visitor& v, StrategySet& set);

/// "1 x TP16, 4 x TP4 PP2", with "ulysses 8" and the like where a sequence is split otherwise than
/// by Megatron.
std::string in_words(const std::vector<PipelineKind>& pipelines);

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
  std::int64_t limit(int pipeline) const { return limits_[static_cast<std::size_t>(pipeline)]; }

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
