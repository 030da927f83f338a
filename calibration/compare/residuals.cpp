#include "calibration/compare/residuals.h"

#include <fmt/format.h>

#include "models/base/median.h"
#include "models/ir/op_traits.h"

namespace orrery::calibration {
namespace {

double median_or_one(const std::vector<double>& values) {
  return values.empty() ? 1 : median(values);
}

double factor_of(ir::Pass pass, const PassFactors& factors) {
  switch (ir::traits(pass).direction) {
    case ir::Direction::forward:
      return factors.forward;
    case ir::Direction::backward:
      return factors.backward;
    case ir::Direction::none:
      break;
  }
  return factors.optimizer;
}

void note(ir::Provenance& provenance, double factor) {
  if (factor != 1) provenance.source += fmt::format(" x {:.4g} as in whole runs", factor);
}

}  // namespace

PassFactors fit_factors(const std::vector<JoinedRun>& runs) {
  std::vector<double> forward;
  std::vector<double> backward;
  std::vector<double> optimizer;
  for (const JoinedRun& run : runs) {
    for (const JoinedOp& joined : run.ops) {
      if (!(joined.own.predicted > 0) || !(joined.own.measured > 0)) continue;
      const double ratio = joined.own.measured / joined.own.predicted;
      const ir::OpKind kind = run.program->op(joined.op).kind;
      if (kind == ir::OpKind::forward) forward.push_back(ratio);
      if (ir::is_backward(kind)) backward.push_back(ratio);
      if (kind == ir::OpKind::optimizer_step) optimizer.push_back(ratio);
    }
  }
  PassFactors out;
  out.forward_ops = static_cast<std::int64_t>(forward.size());
  out.backward_ops = static_cast<std::int64_t>(backward.size());
  out.optimizer_ops = static_cast<std::int64_t>(optimizer.size());
  out.forward = median_or_one(forward);
  out.backward = median_or_one(backward);
  out.optimizer = median_or_one(optimizer);
  return out;
}

ir::Profile scaled(ir::Profile profile, const PassFactors& factors) {
  for (ir::BlockTime& entry : profile.block_times) {
    const double factor = factor_of(entry.pass, factors);
    entry.time *= factor;
    note(entry.provenance, factor);
  }
  for (ir::PassOverhead& entry : profile.pass_overheads) {
    const double factor = factor_of(entry.pass, factors);
    entry.time *= factor;
    note(entry.provenance, factor);
  }
  for (ir::OptimizerTime& entry : profile.optimizers) {
    entry.fixed *= factors.optimizer;
    entry.per_parameter *= factors.optimizer;
    note(entry.provenance, factors.optimizer);
  }
  return profile;
}

}  // namespace orrery::calibration
