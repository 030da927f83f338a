/// Parallel strategies for sequences of mixed lengths. A strategy is a list of pipelines on
/// consecutive devices, "one of TP 16, then four of TP 4", that serves sequences up to a length;
/// homogeneous strategies (DP x TP x CP x PP) are one entry.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "models/config/visitor.h"
#include "models/ir/names.h"

namespace orrery::planners {

/// Equal pipelines; layers are divided evenly over the stages, the first ones take the rest.
struct PipelineKind {
  int count = 1;
  int tensor_parallel = 1;
  int stages = 1;
  ir::SequenceParallelism sequence = ir::SequenceParallelism::none;
  int sequence_degree = 1;  ///< Ulysses and ring: groups of ranks that share a sequence.
};

/// Devices of one of the pipelines.
int devices_of(const PipelineKind& kind);

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

}  // namespace orrery::planners
