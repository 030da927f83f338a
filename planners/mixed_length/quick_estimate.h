/// How long a strategy takes for sequences, without preparing it: each of its kinds of pipelines is
/// priced once, in a cluster that it fills alone. A search prepares the strategies with the best
/// estimates.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "planners/mixed_length/assign.h"
#include "planners/mixed_length/prepared_strategy.h"

namespace orrery::planners {

class QuickEstimate {
 public:
  /// Keeps a reference.
  explicit QuickEstimate(const MixedLengthInput& input) : input_(input) {}

  /// Longest first, each sequence to the pipeline that then ends first among those that hold it;
  /// the slowest pipeline's time. `lengths` descend from at most `longest`. Nothing where under no
  /// recomputation and ZeRO stage some pipeline holds `longest` tokens and each holds any.
  std::optional<Seconds> operator()(const std::vector<PipelineKind>& pipelines,
                                    std::int64_t longest, const std::vector<std::int64_t>& lengths);

 private:
  struct Kind {
    std::optional<PreparedStrategy> strategy;    ///< None where the plan is invalid.
    std::map<std::int64_t, SequenceTime> times;  ///< By length.

    const SequenceTime& at(std::int64_t length);
  };

  Kind& of(const PipelineKind& kind, ir::Recompute recompute, int zero);
  static bool holds(const std::vector<Kind*>& kinds, std::int64_t longest);
  static Seconds spread(const std::vector<PipelineKind>& pipelines, const std::vector<Kind*>& kinds,
                        const std::vector<std::int64_t>& lengths);

  const MixedLengthInput& input_;
  std::map<std::tuple<int, int, ir::SequenceParallelism, int, ir::Recompute, int>, Kind> kinds_;
};

}  // namespace orrery::planners
