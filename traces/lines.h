/// Lines and cells of text files, with positions, in bounded memory.
#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/csv.h"
#include "models/config/diagnostics.h"
#include "traces/csv.h"

namespace orrery::traces {

/// Reads a file or pipe line by line; LF or CRLF, a byte-order mark is skipped.
class LineReader {
 public:
  /// A file that cannot be opened is a problem, and then has no lines. `most`: lines that are read;
  /// 0: all.
  LineReader(const std::string& path, config::Diagnostics& diagnostics, std::int64_t most = 0);

  /// The next line without its end. False at the end of the file and after a problem (a line of
  /// more than 4 MiB, an error of the disk).
  bool next(std::string& line);
  std::int64_t number() const { return number_; }  ///< Number of the last line, from 1.
  bool failed() const { return failed_; }          ///< It has added a problem.

 private:
  bool refill();
  void fail(int line, int column, std::string what);

  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  config::Diagnostics& diagnostics_;
  std::unique_ptr<std::FILE, Close> file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::int64_t most_ = 0;
  std::int64_t number_ = 0;
  bool failed_ = false;
};

class FileProblems;
/// Cells of line `number`. False, and a problem, where a quote does not end or text follows it.
/// Reuses `cells`.
bool split_cells(std::string_view line, std::int64_t number, std::vector<config::CsvCell>& cells,
                 FileProblems& problems);

/// How many problems of a foreign file are named: a wrong format is wrong in every line.
inline constexpr int kMostImportProblems = 10;

/// Collects the problems of one file: the first `most`, and how many more there were.
class FileProblems {
 public:
  FileProblems(std::string path, config::Diagnostics& diagnostics, int most = kMostTraceProblems)
      : path_(std::move(path)), diagnostics_(diagnostics), most_(most) {}
  ~FileProblems();
  FileProblems(const FileProblems&) = delete;
  FileProblems& operator=(const FileProblems&) = delete;

  void add(std::int64_t line, int column, std::string what, std::string hint = "");
  bool any() const { return count_ > 0; }
  /// There are too many: reading on would only take time.
  bool too_many() const { return count_ >= 1'000; }

 private:
  std::string path_;
  config::Diagnostics& diagnostics_;
  int most_;
  std::int64_t count_ = 0;
  config::Position last_;  ///< Furthest in the file of those named.
};

}  // namespace orrery::traces
