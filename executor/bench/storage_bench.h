/// Micro-benchmark of checkpoints: the very writes and reads of the executor's checkpoints
/// (checksum, temporary name, flush to the disk, rename), in a folder.
#pragma once
#include <string>
#include <vector>

#include "executor/bench/compute_bench.h"

namespace orrery::executor {

/// Kinds checkpoint_write and checkpoint_read, of one file of the given bytes below `folder`, which
/// is removed afterwards. Reads come from the disk as far as the system drops its copy when asked
/// to (posix_fadvise). Throws std::runtime_error with what went wrong.
void time_checkpoint(const BenchCase& one, const std::string& folder, const SamplingRule& rule,
                     const std::vector<ir::Measurement>& before, BenchClock& clock,
                     const BenchSink& sink);

}  // namespace orrery::executor
