/// What micro-benchmarks leave open: how much longer compute ops of whole runs take than the
/// profile says, because ranks share caches and memory with each other and with the network's
/// threads. Few factors, fitted on some runs, applied to the profile before others are predicted.
#pragma once
#include <cstdint>
#include <vector>

#include "calibration/compare/compare.h"
#include "models/ir/profile.h"
#include "models/ir/program.h"

namespace orrery::calibration {

/// Median over ops of measured / predicted own time (without inner collectives); 1 where there is
/// no op of the kind. Ops of which either time is 0 do not count.
struct PassFactors {
  double forward = 1;
  double backward = 1;  ///< Whole, and in its two halves.
  double optimizer = 1;
  std::int64_t forward_ops = 0;
  std::int64_t backward_ops = 0;
  std::int64_t optimizer_ops = 0;
};

/// One run: its program and the join of its logs.
struct JoinedRun {
  const ir::Program* program = nullptr;
  std::vector<JoinedOp> ops;
};

/// Every op of every run counts once. Medians, so that ops which something disturbed do not matter.
PassFactors fit_factors(const std::vector<JoinedRun>& runs);

/// The profile with all times of a pass multiplied by its factor: blocks, overheads of passes,
/// optimizer. Provenance says so.
ir::Profile scaled(ir::Profile profile, const PassFactors& factors);

}  // namespace orrery::calibration
