/// Files of results: whole or not at all. Every failure throws std::runtime_error that names the
/// file; where a write fails, a std::system_error with errno.
#pragma once
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/csv.h"

namespace orrery::experiments {

std::string read_text_file(const std::string& path);
/// Not atomic: for files of a folder that is renamed when it is complete.
void write_text_file(const std::string& path, std::string_view text);
/// Readers see the old file or the new one (models/base/file.h).
void replace_text_file(const std::string& path, std::string_view text);
/// A file that a user names: as replace_text_file(), but what is no regular file (/dev/stdout) is
/// written in place.
void write_file(const std::string& path, std::string_view bytes);
/// Appends the whole text in one write, or leaves the file as it was.
void append_text_file(const std::string& path, std::string_view text);
void make_folders(const std::string& path);
/// Whether the file or folder, or what is to become one, lies on a network file system: other hosts
/// may use it, and see what changes there only after a while.
bool is_on_network(const std::string& path);

using config::csv_line;
using config::parse_csv;
/// Cells by column.
using CsvRow = std::map<std::string, std::string>;
/// Rows of a CSV file below its first line; none if there is no file.
std::vector<CsvRow> read_csv_rows(const std::string& path);

}  // namespace orrery::experiments
