/// Where other people's measurements are, and results as files.
#pragma once
#include <string>
#include <string_view>

namespace orrery::experiments {

/// $ORRERY_DATA, else shared/ next to the source tree `root`, with validation/`name` below it.
std::string validation_data(const std::string& root, const std::string& name);

/// Makes the folder and writes the file in it, whole or not at all. Throws std::runtime_error.
void write_result(const std::string& folder, const std::string& name, std::string_view text);

}  // namespace orrery::experiments
