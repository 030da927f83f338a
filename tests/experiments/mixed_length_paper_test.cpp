/// The published experiment: what the paper says in words about it, on fewer steps.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "experiments/runner/files.h"
#include "experiments/runner/mixed_length.h"
#include "models/config/document.h"
#include "sim/flow/fork.h"

namespace orrery::experiments {
namespace {

/// steps.csv of the experiment, from a process of its own.
std::string published(int steps) {
  const sim::ForkResult done = sim::run_forked([&] {
    config::Diagnostics diagnostics;
    const std::string root = models::default_library_root();
    const std::string folder = root + "/../../experiments/hetu/mixed_length";
    const auto file =
        config::load_file<MixedLengthFile>(folder + "/mixed_length.yaml", diagnostics);
    const models::Library library = models::load_library(root, diagnostics);
    const MixedLengthResult result = run_mixed_length(file, folder, steps, library, diagnostics);
    diagnostics.raise();
    return steps_csv(result.rows);
  });
  if (const auto* failure = std::get_if<sim::ChildFailure>(&done)) {
    ADD_FAILURE() << failure->message;
    return "";
  }
  return std::get<std::string>(done);
}

TEST(MixedLengthPaper, HetuAEqualsHotspaAndHetuBLeads) {
  constexpr int kSteps = 40;
  const auto rows = parse_csv(published(kSteps));
  ASSERT_EQ(rows.size(), 1U + 2 * 2 * 5 * kSteps);
  // Rows of a system without its name, and the mean of its step times.
  std::map<std::tuple<std::string, std::string, std::string>, std::vector<std::string>> all;
  std::map<std::tuple<std::string, std::string, std::string>, double> mean;
  for (std::size_t r = 1; r < rows.size(); ++r) {
    std::vector<std::string> rest = rows[r];
    rest[2] = "";
    const std::tuple key(rows[r][0], rows[r][1], rows[r][2]);
    all[key].push_back(csv_line(rest));
    mean[key] += std::stod(rows[r][4]) / kSteps;
  }
  for (const std::string lengths : {"commoncrawl_like", "github_like"}) {
    for (const std::string context : {"16384", "32768"}) {
      const auto of = [&](const char* system) { return mean.at({lengths, context, system}); };
      EXPECT_EQ((all[{lengths, context, "HotSPa"}]), (all[{lengths, context, "Hetu-A"}]));
      EXPECT_LT(of("HotSPa"), of("Megatron")) << lengths << " " << context;
      EXPECT_LT(of("HotSPa"), of("DeepSpeed")) << lengths << " " << context;
      EXPECT_LT(of("Hetu-B"), of("HotSPa")) << lengths << " " << context;
    }
  }
}

TEST(MixedLengthPaper, SameSeedSameBytes) { EXPECT_EQ(published(3), published(3)); }

}  // namespace
}  // namespace orrery::experiments
