#include "traces/lines.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <tuple>

#include "traces/csv.h"

namespace orrery::traces {
namespace {

constexpr std::size_t kChunk = 1 << 16;
constexpr std::size_t kLongestLine = 4 << 20;

}  // namespace

LineReader::LineReader(const std::string& path, config::Diagnostics& diagnostics, std::int64_t most)
    : path_(path), diagnostics_(diagnostics), buffer_(kChunk), most_(most) {
  file_.reset(std::fopen(path.c_str(), "rb"));
  if (!file_) {
    fail(0, 0, fmt::format("cannot read: {}", std::strerror(errno)));
    return;
  }
  struct stat status {};
  if (fstat(fileno(file_.get()), &status) == 0 && S_ISDIR(status.st_mode)) {
    fail(0, 0, "is a folder, not a file");
    file_.reset();
  }
}

void LineReader::fail(int line, int column, std::string what) {
  failed_ = true;
  diagnostics_.add({path_, line, column}, std::move(what));
}

bool LineReader::refill() {
  if (!file_) return false;
  begin_ = 0;
  end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  if (end_ > 0) return true;
  if (std::ferror(file_.get()) != 0) {
    fail(0, 0, fmt::format("cannot read: {}", std::strerror(errno)));
  }
  file_.reset();
  return false;
}

bool LineReader::next(std::string& line) {
  line.clear();
  if (most_ > 0 && number_ >= most_) return false;
  bool any = false;
  while (begin_ < end_ || refill()) {
    any = true;
    const char* from = buffer_.data() + begin_;
    const void* found = std::memchr(from, '\n', end_ - begin_);
    const char* to = found != nullptr ? static_cast<const char*>(found) : buffer_.data() + end_;
    line.append(from, to);
    begin_ = to - buffer_.data() + (found != nullptr ? 1 : 0);
    if (line.size() > kLongestLine) {
      const auto number =
          static_cast<int>(std::min<std::int64_t>(number_ + 1, std::numeric_limits<int>::max()));
      fail(number, 1, "a line of more than 4 MiB: this is no text");
      file_.reset();
      begin_ = end_;
      return false;
    }
    if (found != nullptr) break;
  }
  if (!any) return false;
  ++number_;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  if (number_ == 1 && line.rfind("\xEF\xBB\xBF", 0) == 0) line.erase(0, 3);
  return true;
}

bool split_cells(std::string_view line, std::int64_t number, std::vector<config::CsvCell>& cells,
                 FileProblems& problems) {
  const auto problem = config::split_csv(line, cells);
  if (problem) problems.add(number, problem->column, problem->what, config::kCsvHint);
  return !problem;
}

void FileProblems::add(std::int64_t line, int column, std::string what, std::string hint) {
  if (++count_ > most_) return;
  const auto shown =
      static_cast<int>(std::min<std::int64_t>(line, std::numeric_limits<int>::max()));
  const config::Position at{path_, shown, column};
  if (last_.file.empty() || std::tie(last_.line, last_.column) < std::tie(shown, column)) {
    last_ = at;
  }
  diagnostics_.add(at, std::move(what), std::move(hint));
}

FileProblems::~FileProblems() {
  if (count_ <= most_) return;
  diagnostics_.add(last_, fmt::format("and {} more{}", count_ - most_,
                                      too_many() ? "; the rest was not read" : ""));
}

}  // namespace orrery::traces
