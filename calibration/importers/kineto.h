/// Traces of the PyTorch profiler (Kineto: Chrome's JSON) of all ranks as a recorded run.
#pragma once
#include <string>

#include "calibration/importers/recorded_run.h"
#include "models/config/diagnostics.h"

namespace orrery::calibration {

/// Reads all *.json of the folder, one for each rank; its number is distributedInfo.rank, or the
/// last number of the file name where no file has that. What happens on a GPU (kernel, gpu_memcpy,
/// gpu_memset) is an op of its stream. What an op waits for:
/// - the op before it in its stream, and its launch: launches of all threads of a rank keep their
///   order and the host's time between them;
/// - NCCL's kernels: the kernel that the host launched last before them, as c10d makes them wait
///   for the stream that they are called from;
/// - a kernel launched right after cudaStreamWaitEvent: the collective that had ended by then and
///   was launched last; and one that starts later than all of that explains: what ended last before
///   it, in another stream;
/// - the host in a synchronizing call: the op that ended last in it.
/// Sizes and groups of collectives are those that PyTorch 2.2 and later writes with NCCL's kernels.
/// Collectives without them, and sends and receives without their peers, are problems.
RecordedRun read_kineto(const std::string& folder, config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
