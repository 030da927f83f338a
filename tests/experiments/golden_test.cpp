/// Did anything change? Every tests/golden/<case>/manifest.yaml is swept and its rows compared with
/// expected.csv next to it; ORRERY_UPDATE_GOLDEN=1 rewrites that file instead.
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "experiments/study/run_study.h"
#include "tests/experiments/support.h"

namespace orrery::experiments::golden_test {
namespace {

/// Columns that change with every version or edit of the manifest, not with results.
const std::set<std::string> kLeftOut = {"run", "version", "manifest_hash"};

std::string rows_without(const std::string& csv) {
  const auto rows = parse_csv(csv);
  std::string text;
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (!kLeftOut.contains(rows[0][c])) cells.push_back(row[c]);
    }
    text += csv_line(cells);
  }
  return text;
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const std::string& name : support::names_in("tests/golden")) {
    if (support::fs::exists("tests/golden/" + name + "/manifest.yaml")) names.push_back(name);
  }
  return names;
}

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, RowsAreAsExpected) {
  const std::string folder = "tests/golden/" + GetParam();
  config::Diagnostics diagnostics;
  const Study study = load_study(folder + "/manifest.yaml", diagnostics);
  diagnostics.raise();
  const support::TempFolder results;
  RunnerOptions options;
  options.results_root = results.path();
  const StudyResult result = run_study(study, support::library(), options, {});
  EXPECT_TRUE(result.problems.empty()) << result.problems.front();
  const std::string rows = rows_without(read_text_file(result.runs_csv));
  const char* update = std::getenv("ORRERY_UPDATE_GOLDEN");
  if (update != nullptr && *update != '\0') write_text_file(folder + "/expected.csv", rows);
  EXPECT_EQ(read_text_file(folder + "/expected.csv"), rows)
      << "if this is meant: tools/scripts/golden.sh --update, and look at the diff";
}

INSTANTIATE_TEST_SUITE_P(Cases, Golden, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace orrery::experiments::golden_test
