/// Programs with made-up spans: a log whose every instant a test decides.
#pragma once
#include <cstdint>
#include <functional>

#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::calibration {

/// Two ranks, two pipeline stages, 1F1B with `micro_batches`, tensor-parallel degree of nobody:
/// forward, backward, sends and recvs, an all-reduce of both ranks' gradients, optimizer steps.
ir::Program two_stage_program(int micro_batches);

/// One iteration in which ops follow their dependencies and streams, each as long as `length` says
/// (by op, nanoseconds); of ops that meet the longer one counts. A quarter of a pass is inner time.
ir::RunLog timed(const ir::Program& program, const std::function<std::int64_t(OpId)>& length);

/// The iteration of `log` `count` times, one after the other, as an executor logs it.
ir::RunLog repeated(const ir::Program& program, const ir::RunLog& log, int count);

/// All instants and inner times multiplied.
ir::RunLog stretched(ir::RunLog log, std::int64_t numerator, std::int64_t denominator);

}  // namespace orrery::calibration
