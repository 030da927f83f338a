/// Problems of the user's files: each with file, line and column, all collected before one
/// ConfigError is thrown.
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace orrery::config {

/// A position in a file. Lines and columns count from 1, columns in bytes; 0 means unknown.
struct Position {
  std::string file;
  int line = 0;
  int column = 0;
};

/// "file:line:col"; unknown parts are left out, and "" is left of a position without a file.
std::string to_string(const Position& at);

/// One thing that is wrong in a file, and what to do about it ("" when there is no advice).
struct Problem {
  Position at;
  std::string what;
  std::string hint;
};

/// "file:line:col: what (hint)".
std::string to_string(const Problem& problem);

/// All problems of the files of one command; what() has one line for each (the first hundred).
/// Caught once, in tools/main.cpp, exit status 2.
struct ConfigError : std::runtime_error {
  explicit ConfigError(std::vector<Problem> found);
  std::vector<Problem> problems;
};

/// Collects problems while files are read.
class Diagnostics {
 public:
  void add(Position at, std::string what, std::string hint = "");
  bool empty() const { return problems_.empty(); }
  /// In the order in which they were found.
  const std::vector<Problem>& problems() const { return problems_; }
  /// Throws ConfigError if there is any problem. Its problems are ordered by file (in order of
  /// first appearance), line and column.
  void raise() const;

 private:
  std::vector<Problem> problems_;
};

/// The candidate that `word` was probably meant to be, or "": at most 2 edits away or a third of
/// its length (insert, delete, replace, swap neighbors; case is ignored), or one is a prefix of
/// the other. The first of equally near candidates wins.
std::string closest(std::string_view word, const std::vector<std::string>& candidates);

/// "did you mean 'x'?" if a candidate is near, else "<label>: a, b, c" with all candidates.
std::string suggest(std::string_view word, const std::vector<std::string>& candidates,
                    std::string_view label);

}  // namespace orrery::config
