/// Files and traces for the tests of traces/.
#pragma once
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "models/config/diagnostics.h"
#include "traces/csv.h"
#include "traces/generate/generate.h"
#include "traces/import/import.h"
#include "traces/layout.h"
#include "traces/presence.h"
#include "traces/trace.h"

namespace orrery::traces {

/// A file that goes away with the test.
class File {
 public:
  explicit File(const std::string& text) {
    static int count = 0;
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(testing::TempDir()) /
            fmt::format("traces_{}_{}_{}.txt", test->test_suite_name(), test->name(), count++);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// "LINE:COLUMN: what (hint)" of each problem.
inline std::vector<std::string> lines_of(const config::Diagnostics& diagnostics) {
  std::vector<std::string> lines;
  for (const config::Problem& problem : diagnostics.problems()) {
    config::Problem here = problem;
    here.at.file = "";
    std::string text = config::to_string(here);
    if (problem.at.line > 0) text = text.substr(1);
    lines.push_back(text);
  }
  return lines;
}

inline std::string all(const config::Diagnostics& diagnostics) {
  std::string text;
  for (const std::string& line : lines_of(diagnostics)) text += line + "\n";
  return text;
}

/// Contradictions of a whole trace; none in a trace that a reader or generator made.
inline std::vector<Contradiction> find_contradictions(const Trace& trace) {
  const TraceLayout layout(trace.nodes);
  Presence presence(layout);
  std::vector<Contradiction> found;
  for (const ir::ClusterEvent& event : trace.events) presence.apply(event, found);
  presence.finish({trace.horizon.count}, found);
  return found;
}

inline Trace read_text(const std::string& text) {
  const File file(text);
  config::Diagnostics diagnostics;
  Trace trace = read_trace(file.path(), diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  return trace;
}

/// A file in a published format, without problems.
inline Trace import_file(const std::string& format, const std::string& path,
                         const ImportOptions& options = {}) {
  config::Diagnostics diagnostics;
  Trace trace = import_trace(format, path, options, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  EXPECT_TRUE(find_contradictions(trace).empty());
  return trace;
}

/// The generator of the library; tests run from the root of the repository.
inline TraceGenerator library_generator(const std::string& name,
                                        const std::vector<std::string>& changes = {}) {
  config::Diagnostics diagnostics;
  TraceGenerator generator =
      load_generator(name, "models/library", changes, {"test", 0, 0}, {"test", 0, 0}, diagnostics);
  EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
  return generator;
}

inline Nanoseconds days(double count) { return to_nanoseconds({count * 86400}); }

/// A file of the folder of other people's traces ($ORRERY_DATA, else ../shared), or "".
inline std::string shared_trace(const std::string& name) {
  const char* root = std::getenv("ORRERY_DATA");
  const std::filesystem::path path =
      std::filesystem::path(root == nullptr ? "../shared" : root) / "traces" / name;
  return std::filesystem::is_regular_file(path) ? path.string() : "";
}

}  // namespace orrery::traces
