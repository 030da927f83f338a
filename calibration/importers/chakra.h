/// Chakra execution traces of all ranks as a recorded run (github.com/mlcommons/chakra).
#pragma once
#include <string>

#include "calibration/importers/recorded_run.h"
#include "models/config/diagnostics.h"

namespace orrery::calibration {

/// Reads NAME.<rank>.et, one for each rank from 0, and comm_groups.json (the ranks of process
/// groups, as ASTRA-sim takes them) if the folder has one; groups may also be told by a
/// process_group:init node. A collective without pg_name is one of all ranks.
/// - COMP_NODE: a kernel, of stream 0 where the trace names none; with is_cpu_op host time.
/// - COMM_COLL_NODE, COMM_SEND_NODE, COMM_RECV_NODE: comm_type and comm_size (bytes that a rank
///   puts in), comm_src, comm_dst and comm_tag. A reduction to one rank is priced as a broadcast
///   from it, a barrier as an all-reduce of four bytes.
/// - METADATA_NODE and INVALID_NODE, and what has no time: only their dependencies count.
/// - Memory, storage, batch and checkpoint nodes, gathers and scatters to one rank are problems.
/// Both kinds of dependencies are waited for. A run is timed if its nodes have start times.
/// Durations are whole microseconds, or nanoseconds in files of orrery export.
RecordedRun read_chakra(const std::string& folder, config::Diagnostics& diagnostics);

/// Files of a folder named *.<rank><extension>, by rank; a folder with none, or with gaps among its
/// ranks, is a problem. Shared with kineto.h.
std::vector<std::string> rank_files(const std::string& folder, const std::string& extension,
                                    config::Diagnostics& diagnostics);

}  // namespace orrery::calibration
