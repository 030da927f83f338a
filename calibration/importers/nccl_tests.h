/// Output of nccl-tests (github.com/NVIDIA/nccl-tests) as a profile of links and collectives.
#pragma once
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "models/ir/measurement.h"
#include "models/ir/profile.h"

namespace orrery::calibration {

/// The rows of one file (out of place): kind `collective`, the tensor's size, as many ranks as are
/// listed for its run ("#  Rank  0 ..." begins another one), the test's name from the lines before
/// it ("Collective test starting: all_reduce_perf", since 2.13), else from the file's name. Tests
/// without a counterpart (reduce, gather, scatter, sendrecv, hypercube) are problems.
ir::MeasurementSet read_nccl_tests(const std::string& path, const std::string& link_class,
                                   config::Diagnostics& diagnostics);

/// All files as a profile: the times of the first one's first test, divided by the ring's steps,
/// are times of messages of a p-th of the tensor, fitted as LinkSegments; every test on a number of
/// ranks then gives a CollectiveFactor over the ring on these links, the first one's being about 1.
/// What is linear in neither (trees, NVLink SHARP) shows in the errors. nccl-tests prints averages
/// of many iterations: each row is one sample.
ir::Profile import_nccl_tests(const std::vector<std::string>& paths, const std::string& link_class,
                              config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
