/// Measurements of one GPU type as an estimate for another: only when a user asks, and every number
/// says where it comes from.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "models/ir/profile.h"
#include "models/spec/cluster.h"

namespace orrery::models {

/// The profile with an entry for `to` for each one of `from` that `to` has none of its own of:
/// - passes over blocks: time x (peak x efficiency of `from`) / (peak x efficiency of `to`), with
///   declared peaks and efficiencies, of `from` in the entry's dtype and of `to` in the one that it
///   computes instead (supported_dtype); none where it has none;
/// - optimizer steps: what grows with the parameters x the ratio of memory bandwidth x memory
///   efficiency; the fixed part is unchanged;
/// - efficiency curves: shares of peak x efficiency of `to` / efficiency of `from`;
/// - overheads of ops and of memory, losses to overlap: unchanged, being the host's and the
///   libraries'.
/// Sources become "scaled from FROM: ...", and errors of the fit are dropped: nobody measured them
/// on `to`. Links, storage and Metis's layers belong to no GPU type or are left alone; so are
/// kernels, whose shapes would not scale. Deviation: real kernels reach other shares of peak on
/// other GPUs; the paper-and-pencil ratio is what Metis's and Sailor's authors avoid by profiling
/// every type.
ir::Profile scale_profile(const ir::Profile& profile, const GpuType& from, const GpuType& to);

/// What a reader of prices must know: ", scaled from A100" where the number was scaled,
/// ", calibrate --quick: not for use" where it was measured only to try that out; else "".
std::string scaled_note(const ir::Provenance& provenance);

}  // namespace orrery::models
