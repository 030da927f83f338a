#include "experiments/study/files.h"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "models/base/file.h"

namespace orrery::experiments {
namespace {

[[noreturn]] void fail(const std::string& what, const std::string& path, int code) {
  throw std::system_error(code, std::generic_category(), what + " " + path);
}

/// Closes after `code`, the result of writing; returns errno, 0 for success.
int closed(int file, int code) {
  if (close(file) != 0 && code == 0) code = errno;
  return code;
}

}  // namespace

std::string read_text_file(const std::string& path) {
  std::string text;
  if (const auto problem = read_file(path, text)) throw std::runtime_error(*problem);
  return text;
}

void write_text_file(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail("cannot write", path, errno);
  const int code = closed(file, write_fully(file, text));
  if (code == 0) return;
  unlink(path.c_str());
  fail("cannot write", path, code);
}

void replace_text_file(const std::string& path, std::string_view text) {
  if (const auto problem = write_file_atomically(path, text)) throw std::runtime_error(*problem);
}

void write_file(const std::string& path, std::string_view bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    const int file = open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC);
    const int code = file < 0 ? errno : closed(file, write_fully(file, bytes));
    if (code != 0) fail("cannot write", path, code);
    return;
  }
  replace_text_file(path, bytes);
}

bool is_on_network(const std::string& path) {
  // f_type of NFS, SMB (1 to 3), Lustre, GPFS, BeeGFS, Ceph, FUSE, 9P, AFS, GFS2, OCFS2, PanFS,
  // OrangeFS. [statfs(2), linux/magic.h, and the file systems' own sources]
  static constexpr std::array<unsigned long, 15> kNetwork = {
      0x6969,     0x517b,     0xff534d42, 0xfe534d42, 0x0bd00bd0,
      0x47504653, 0x19830326, 0x00c36400, 0x65735546, 0x01021997,
      0x5346414f, 0x01161970, 0x7461636f, 0xaad7aaea, 0x20030528};
  std::error_code error;
  std::filesystem::path there = std::filesystem::absolute(path, error);
  while (there.has_relative_path() && !std::filesystem::exists(there, error)) {
    there = there.parent_path();
  }
  struct statfs known {};
  if (statfs(there.c_str(), &known) != 0) return false;
  const auto type = static_cast<unsigned long>(known.f_type) & 0xffffffffUL;
  return std::find(kNetwork.begin(), kNetwork.end(), type) != kNetwork.end();
}

void append_text_file(const std::string& path, std::string_view text) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0) fail("cannot write", path, errno);
  if (const int code = closed(file, append_fully(file, text))) fail("cannot write", path, code);
}

void make_folders(const std::string& path) {
  // Another call may take away an empty folder on the way at that very moment.
  constexpr int kTries = 100;
  std::error_code error;
  for (int i = 0; i < kTries; ++i) {
    std::filesystem::create_directories(path, error);
    if (error != std::errc::no_such_file_or_directory) break;
  }
  if (error) throw std::system_error(error, "cannot make folder " + path);
}

std::vector<CsvRow> read_csv_rows(const std::string& path) {
  std::vector<CsvRow> rows;
  std::string bytes;
  if (read_file(path, bytes)) return rows;
  const std::vector<std::vector<std::string>> lines = parse_csv(bytes);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    rows.emplace_back();
    for (std::size_t c = 0; c < std::min(lines[0].size(), lines[i].size()); ++c) {
      rows.back()[lines[0][c]] = lines[i][c];
    }
  }
  return rows;
}

}  // namespace orrery::experiments
