/// What killed processes leave beside results.
#pragma once
#include <filesystem>

namespace orrery::experiments {

/// A temporary file of write_file_atomically(), "<name>.tmp.<pid>.<n>", whose process is gone, here
/// or on the host that it was on: nobody has written it for a minute.
bool is_stale_temporary(const std::filesystem::path& path);

}  // namespace orrery::experiments
