/// What a reader of a comparison must know about its inputs: files that are not what the run was
/// given, links that were not there, profile entries that are missing. Private to the compare and
/// twin commands.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/execute.h"
#include "models/ir/program.h"
#include "tools/commands/run_inputs.h"

namespace orrery::tools {

/// About all generations: ranks that talked over loopback where the cluster has other links, that
/// were parts of one GPU, and inputs that were changed since (LoadedInputs::changed).
std::vector<std::string> notes_of_run(const LoadedInputs& inputs);

/// What to say if the plan and the other inputs that were kept with the log no longer give the
/// program that ran; "" if they do, or if no plan lies there.
std::string changed_program(const LoadedInputs& inputs, const std::optional<ir::Plan>& plan,
                            std::int64_t generation, const ir::Program& program);

/// What of the program the profile's block times say nothing about, so that the roofline prices it:
/// one line for each GPU type with the first of model, dtype, sequence length, sequence degree,
/// tensor-parallel degree and samples that no entry has, in that order; sorted. Empty for a profile
/// without block times.
std::vector<std::string> profile_gaps(const experiments::LoadedRun& run,
                                      const ir::Program& program);

}  // namespace orrery::tools
