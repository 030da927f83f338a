/// Checks of every kernel of a back end against the fp64 back end of the CPU, in each precision,
/// with inputs that the precision holds exactly. Executables that link kernel_checks.cpp say which
/// back end they test.
#pragma once
#include <memory>

#include "executor/compute/backend.h"

namespace orrery::executor {

/// The back end under test; defined by each executable.
std::unique_ptr<Backend> make_tested_backend(Precision precision);

}  // namespace orrery::executor
