/// The data of a run. Private to executor/launcher.
#pragma once
#include <memory>

#include "executor/engine/data.h"
#include "executor/launcher/settings.h"
#include "models/ir/program.h"

namespace orrery::executor {

/// The tokens that the settings name: those of a text file, or synthetic ones. Throws
/// std::runtime_error with what is wrong with the file.
std::unique_ptr<TokenSource> make_tokens(const RunSettings& settings,
                                         const ir::ProgramHeader& header);

}  // namespace orrery::executor
