/// The `# key: value` lines of a trace file. Private to traces/.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "traces/lines.h"
#include "traces/trace.h"

namespace orrery::traces {

class HeaderReader {
 public:
  HeaderReader(Trace& trace, FileProblems& problems) : trace_(trace), problems_(problems) {}

  /// A line that starts with #.
  void read(std::string_view line, std::int64_t number);
  bool has_schema() const { return schema_; }
  bool has_horizon() const { return horizon_; }

 private:
  void read_key(const std::string& key, const std::string& value, std::int64_t line, int column);
  void read_nodes(std::string_view value, std::int64_t line, int column);

  Trace& trace_;
  FileProblems& problems_;
  std::set<std::string> known_;
  std::size_t devices_ = 0;
  bool schema_ = false;
  bool horizon_ = false;
};

}  // namespace orrery::traces
