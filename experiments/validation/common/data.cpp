#include "experiments/validation/common/data.h"

#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "models/base/file.h"

namespace orrery::experiments {

std::string validation_data(const std::string& root, const std::string& name) {
  const char* data = std::getenv("ORRERY_DATA");
  const std::string base = data != nullptr && *data != '\0' ? data : root + "/../shared";
  return base + "/validation/" + name;
}

void write_result(const std::string& folder, const std::string& name, std::string_view text) {
  std::filesystem::create_directories(folder);
  const std::string path = (std::filesystem::path(folder) / name).string();
  if (const auto problem = write_file_atomically(path, text)) throw std::runtime_error(*problem);
}

}  // namespace orrery::experiments
