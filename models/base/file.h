/// Whole files in and out: results are written so that a reader sees either the old file or the
/// new one, never half of it, even when the disk fills up or the process is killed.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace orrery {

/// Writes `bytes` to a temporary file next to `path`, flushes it to the disk and renames it to
/// `path`. Empty when it worked; else the problem in words ("cannot write runs.csv: No space left
/// on device"), with `path` as it was before and no temporary file left. `mode`: permissions of the
/// file, less the umask.
std::optional<std::string> write_file_atomically(const std::string& path, std::string_view bytes,
                                                 unsigned mode = 0666);

/// Writes all of `bytes`, going on after interruptions and short counts. Returns 0 or the error.
int write_fully(int fd, std::string_view bytes);

/// The same at the end of an open file, all or nothing: a failure leaves no half of it.
int append_fully(int fd, std::string_view bytes);

/// Reads all of `path` into `bytes`. Empty when it worked; else the problem in words.
std::optional<std::string> read_file(const std::string& path, std::string& bytes);

}  // namespace orrery
