/// Two run logs of one program side by side: what was predicted against what was measured, for the
/// iteration, its components, its transfers, memory, and the ops that are furthest off.
///
/// The predicted log has one iteration (of a staggered program three, of which the middle one
/// counts), the measured one several, of which the first are warm-up.
/// Errors are predicted / measured - 1: positive where the prediction is too long.
#pragma once
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "calibration/compare/steps.h"
#include "models/base/ids.h"
#include "models/base/units.h"
#include "models/config/visitor.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::calibration {

struct CompareOptions {
  /// First steps that do not count: caches, allocators, connections. At least one step counts.
  int warm_up = 2;
  int worst = 10;  ///< Rows of Comparison::worst at most.
};

/// One quantity, in seconds or bytes.
struct PredictedMeasured {
  double predicted = 0;
  double measured = 0;
  /// predicted / measured - 1; 0 if both are 0, infinite if only the measured one is.
  double error() const;
};

/// Seconds, means over ranks.
struct ComponentRow {
  std::string name;  ///< forward, backward, tensor_parallel, pipeline, data_parallel, optimizer,
                     ///< bubble.
  PredictedMeasured seconds;
  double of_iteration =
      0;  ///< (predicted - measured) / measured iteration; they add up to its error.
};

/// Largest number of bytes that a rank held.
struct MemoryRow {
  RankId rank;
  DeviceId device;
  PredictedMeasured bytes;
};

/// Ops of one rank that differ in the micro-batch only. A transfer is listed with its receiver,
/// a collective with its first member.
struct OpRow {
  RankId rank;
  std::string what;  ///< "forward of blocks 0-2", "activations from rank 1".
  std::int64_t ops = 0;
  PredictedMeasured seconds;  ///< Sum over the ops.
  double share = 0;           ///< Share of the sum of |predicted - measured| over all rows.
};

/// One op of the join: medians over the steps that count.
struct JoinedOp {
  OpId op;
  PredictedMeasured own;    ///< Without inner collectives; all of a transfer.
  PredictedMeasured inner;  ///< Inner collectives.
};

struct Comparison {
  std::int64_t steps = 0;  ///< That count: not those that follow a checkpoint, if others are left.
  double held = 0;         ///< Measured seconds between steps, in which ranks wrote checkpoints.
  /// Measured: mean of the middle half of the steps by duration (the interquartile mean: a step
  /// that something else disturbed does not count).
  PredictedMeasured iteration;
  double shortest_step = 0;  ///< Measured, seconds.
  double longest_step = 0;
  std::vector<ComponentRow> components;  ///< Over the same steps: they add up to the iteration.
  /// Seconds of all transfers and collectives (point-to-point once, collectives once, inner
  /// collectives of each op), summed over ranks.
  PredictedMeasured transfers;
  double transfer_error = 0;      ///< Mean of |error| over transfers, weighted by measured time.
  double op_bias = 0;             ///< (sum predicted - sum measured) / sum measured over all ops.
  std::vector<MemoryRow> memory;  ///< Ranks of which both logs have samples.
  std::vector<OpRow> worst;       ///< By share, largest first.
};

/// The iteration, its components, and all transfers.
std::vector<ComponentRow> times_of(const Comparison& comparison);

void describe(config::Visitor& v, ComponentRow& row);
void describe(config::Visitor& v, MemoryRow& row);
void describe(config::Visitor& v, OpRow& row);

/// Why two logs cannot be compared, in words.
using CompareProblem = std::string;

/// The join itself; one entry for each op of the program.
std::variant<std::vector<JoinedOp>, CompareProblem> join_ops(const ir::Program& program,
                                                             const ir::RunLog& predicted,
                                                             const ir::RunLog& measured,
                                                             const CompareOptions& options = {});

std::variant<Comparison, CompareProblem> compare(const ir::Program& program,
                                                 const ir::RunLog& predicted,
                                                 const ir::RunLog& measured,
                                                 const CompareOptions& options = {});

}  // namespace orrery::calibration
