#pragma once
#include <string>

namespace orrery::experiments {

/// Version of this program and hash of the sources that decide results: part of every run's
/// identity, so that results of another version are not taken for its own.
std::string program_version();

}  // namespace orrery::experiments
