#include "experiments/study/run_files.h"

#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>

#include "experiments/study/files.h"
#include "models/base/bytes.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPacked = std::size_t{4} << 20;

}  // namespace

std::string files_key(const Task& task) { return "files of run " + task.hash; }

std::optional<std::string> packed_files(const std::string& folder, const RunSeconds& seconds) {
  std::map<std::string, std::string> files;  // By name: the same bytes for the same files.
  std::size_t size = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, error)) {
    if (!entry.is_regular_file(error)) return std::nullopt;
    size += entry.file_size(error);
    if (error || size > kMostPacked) return std::nullopt;
    files[entry.path().filename()] = read_text_file(entry.path());
  }
  if (error || files.empty()) return std::nullopt;
  ByteWriter out;
  out.put(seconds.planning);
  out.put(seconds.evaluation);
  out.put(static_cast<std::uint64_t>(files.size()));
  for (const auto& [name, text] : files) {
    out.put(std::string_view(name));
    out.put(std::string_view(text));
  }
  return out.bytes();
}

std::optional<RunSeconds> unpack_files(const std::string& bytes, const std::string& folder) {
  ByteReader in(bytes);
  RunSeconds seconds;
  seconds.planning = in.get<double>();
  seconds.evaluation = in.get<double>();
  std::map<std::string, std::string> files;
  for (std::size_t left = in.count(); left > 0; --left) {
    const std::string name = in.text();
    // What is written stays in the folder.
    const bool plain = !name.empty() && name.front() != '.' && fs::path(name).filename() == name;
    if (!plain) return std::nullopt;
    files[name] = in.text();
  }
  if (!in.complete() || files.empty()) return std::nullopt;
  make_folders(folder);
  for (const auto& [name, text] : files) write_text_file(fmt::format("{}/{}", folder, name), text);
  return seconds;
}

}  // namespace orrery::experiments
