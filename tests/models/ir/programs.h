/// Programs and logs for tests of models/ir.
#pragma once
#include "models/base/rng.h"
#include "models/ir/program.h"
#include "models/ir/run_log.h"

namespace orrery::ir {

/// A program without defects: equal pipelines of one device per stage, GPipe order, activations and
/// gradients sent from stage to stage, one gradient all-reduce per stage, optimizer steps. Device
/// ids are rank numbers: pipeline * stages + stage.
Program pipelined_program(int pipelines, int stages, int micro_batches);

/// Two ranks that run one forward op with an inner collective as an op group.
Program op_group_program();

/// Any values at all, well-formed or not: what a wire format must keep.
Program random_program(Rng& rng);
RunLog random_log(Rng& rng);

/// A log of `program` in which every op runs for one microsecond after the other of its rank, a
/// transfer from the start of its send to the end of its recv, with two memory samples per rank.
RunLog plain_log(const Program& program);

/// The first part in which two programs differ, or an empty string.
const char* difference(const Program& a, const Program& b);
const char* difference(const RunLog& a, const RunLog& b);

}  // namespace orrery::ir
