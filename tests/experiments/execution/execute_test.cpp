// Are shares of a GPU what the hardware can give, and are wrong ones named? Is what this build
// lacks named before ranks start?
#include "experiments/execution/execute.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "executor/compute/cpu_gemm.h"
#include "executor/cuda/backend.h"
#include "experiments/execution/machines.h"
#include "models/base/text.h"
#include "models/config/document.h"

namespace orrery::experiments::execute_test {
namespace {

executor::CudaDeviceInfo gpu(int multiprocessors, int major) {
  executor::CudaDeviceInfo info;
  info.multiprocessors = multiprocessors;
  info.major = major;
  return info;
}

ir::Program program_on(const std::vector<int>& devices) {
  ir::Program program;
  for (const int device : devices) {
    ir::Rank rank;
    rank.device = {device};
    program.ranks.push_back(rank);
  }
  return program;
}

ExecuteSettings settings_with(const std::string& shares, config::Diagnostics& diagnostics) {
  std::vector<config::Value> items;
  for (const std::string& item : split(shares, ',')) items.push_back(config::Value::scalar(item));
  config::Value given = config::Value::map({});
  given.append("backend", config::Value::scalar("cuda"));
  given.append("shares", config::Value::list(std::move(items)));
  ExecuteSettings settings;
  config::describe_value(given, settings, diagnostics);
  return settings;
}

/// Problems of the settings and of the program's devices, on a cluster of four, one a line.
std::string problems_of(const std::string& shares, const std::vector<int>& devices) {
  config::Diagnostics diagnostics;
  const ExecuteSettings settings = settings_with(shares, diagnostics);
  if (diagnostics.empty()) shares_of(settings, program_on(devices), 4, diagnostics);
  std::string text;
  for (const config::Problem& problem : diagnostics.problems()) text += problem.what + "\n";
  return text;
}

TEST(GpuShares, AreWholeGroupsOfMultiprocessors) {
  const executor::CudaDeviceInfo h100 = gpu(132, 9);
  EXPECT_EQ(executor::multiprocessors_of_share(h100, 50), 64);
  EXPECT_EQ(executor::multiprocessors_of_share(h100, 25), 32);
  EXPECT_EQ(executor::multiprocessors_of_share(h100, 100), 128);
  EXPECT_EQ(executor::multiprocessors_of_share(h100, 1), 8) << "the least that a context can have";
  EXPECT_EQ(executor::multiprocessors_of_share(gpu(108, 8), 50), 52);
  EXPECT_EQ(executor::multiprocessors_of_share(gpu(40, 7), 10), 4);
}

TEST(GpuShares, OfHundredPercentTogetherFitTheCard) {
  for (const auto& card : {gpu(132, 9), gpu(114, 9), gpu(148, 10), gpu(108, 8), gpu(80, 7)}) {
    for (int first = 10; first <= 80; ++first) {
      for (int second = 10; first + second <= 90; ++second) {
        int sum = 0;
        for (const int percent : {first, second, 100 - first - second}) {
          sum += executor::multiprocessors_of_share(card, percent);
        }
        EXPECT_LE(sum, card.multiprocessors) << first << " and " << second << " percent";
      }
    }
  }
}

TEST(GpuShares, ANumberAloneIsTheShareOfEveryDeviceOfThePlan) {
  config::Diagnostics diagnostics;
  const ExecuteSettings settings = settings_with("30", diagnostics);
  EXPECT_TRUE(settings.on_threads());
  EXPECT_EQ(shares_of(settings, program_on({0, 1, 3}), 4, diagnostics),
            (std::map<std::int32_t, std::int64_t>{{0, 30}, {1, 30}, {3, 30}}));
  EXPECT_TRUE(diagnostics.empty());
}

TEST(GpuShares, WrongOnesAreNamed) {
  EXPECT_EQ(problems_of("0=50,1=25,2=25", {0, 1, 2}), "");
  EXPECT_EQ(problems_of("0=50,1=60", {0, 1}), "2 devices have 110 % of the card together\n");
  EXPECT_EQ(problems_of("40", {0, 1, 2}), "3 devices have 120 % of the card together\n");
  EXPECT_EQ(problems_of("0=50,1=25", {0, 1, 2}), "the plan needs device 2, which has no share\n");
  EXPECT_EQ(problems_of("0=50,7=25", {0}), "device 7 of 4\n");
  EXPECT_EQ(problems_of("0=50,0=25", {0}), "device 0 is named twice\n");
  EXPECT_EQ(problems_of("0=101", {0}), "101 % of a card, which has at most 100\n");
  EXPECT_EQ(problems_of("0=0", {0}), "must be at least 1, is 0\n");
  EXPECT_EQ(problems_of("0=50,25", {0}), "'25' is not DEVICE=PERCENT\n");
  EXPECT_EQ(problems_of(",", {0}), "names no share\n");
}

TEST(GpuShares, AreTypesOfTheirOwn) {
  EXPECT_EQ(executor::type_of_share("H100-80GB", 50), "H100-80GB 50%");
}

TEST(MatrixLibrary, ThatTheBuildLacksIsAProblemOfTheSettingUnlessRanksAreElsewhere) {
  const auto problems = [](CpuLibrary library, bool elsewhere) {
    config::Diagnostics found;
    compute_settings(BackendKind::cpu, library, executor::Precision::fp32, TransportKind::tcp,
                     elsewhere, found);
    std::vector<std::string> places;
    for (const config::Problem& problem : found.problems()) places.push_back(problem.at.file);
    return places;
  };
  using Places = std::vector<std::string>;
  EXPECT_EQ(problems(CpuLibrary::openblas, false),
            executor::has_openblas() ? Places{} : Places{"--library"});
  EXPECT_EQ(problems(CpuLibrary::openblas, true), Places{});
  EXPECT_EQ(problems(CpuLibrary::eigen, false), Places{});
}

}  // namespace
}  // namespace orrery::experiments::execute_test
