#include "traces/generate/generate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "models/config/document.h"
#include "tests/traces/support.h"
#include "traces/generate/random.h"
#include "traces/generate/spot.h"
#include "traces/presence.h"
#include "traces/statistics.h"

namespace orrery::traces::generate_test {
namespace {

using ir::EventKind;

/// Failures only: what Table 5 says.
TraceGenerator llama3(std::vector<std::string> changes = {}) {
  return library_generator("llama3", changes);
}
std::map<std::string, int> failures_by_cause(const Trace& trace) {
  std::map<std::string, int> counts;
  for (const ir::ClusterEvent& event : trace.events) {
    if (event.kind == EventKind::fail) ++counts[event.cause];
  }
  return counts;
}
int count(const Trace& trace, EventKind kind) {
  int n = 0;
  for (const ir::ClusterEvent& event : trace.events) n += event.kind == kind ? 1 : 0;
  return n;
}

const GeneratorNodes& sixteen_thousand() {
  static const GeneratorNodes kNodes = equal_nodes(2048, 8, "H100-80GB");
  return kNodes;
}

TEST(GenerateFailures, MeanOverSeedsIsThePublishedCount) {
  constexpr int kSeeds = 200;
  const TraceGenerator generator = llama3();
  double sum = 0;
  double planned = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const Trace trace =
        generate(generator, sixteen_thousand(), days(54), static_cast<std::uint64_t>(seed));
    sum += count(trace, EventKind::fail);
    planned += count(trace, EventKind::notice);
  }
  // Poisson: the mean over seeds has variance 419 / seeds. Three standard errors.
  EXPECT_NEAR(sum / kSeeds, 419, 3 * std::sqrt(419.0 / kSeeds));
  EXPECT_NEAR(planned / kSeeds, 47, 3 * std::sqrt(47.0 / kSeeds));
}

TEST(GenerateFailures, ConditionedDrawsExactlyTheTable) {
  const TraceGenerator generator = llama3({"failures.conditioned=true"});
  for (const std::uint64_t seed : {1u, 2u}) {
    const Trace trace = generate(generator, sixteen_thousand(), days(54), seed);
    const auto counts = failures_by_cause(trace);
    int total = 0;
    for (const FailureCause& cause : generator.failures->causes) {
      EXPECT_EQ(counts.at(cause.cause), static_cast<int>(cause.count)) << cause.cause;
      total += static_cast<int>(cause.count);
    }
    EXPECT_EQ(total, 419);
    EXPECT_EQ(count(trace, EventKind::fail), 419);
    EXPECT_EQ(count(trace, EventKind::notice), 47);
  }
}

TEST(GenerateFailures, ConditionedCountsScaleWithGpusAndTime) {
  const TraceGenerator generator = llama3({"failures.conditioned=true"});
  const Trace trace = generate(generator, equal_nodes(1024, 8, ""), days(27), 1);
  EXPECT_EQ(count(trace, EventKind::fail), 105);  // 419 / 4 = 104.75
}

TEST(GenerateFailures, SeedsAreReproducibleAndDiffer) {
  const TraceGenerator generator = llama3();
  const GeneratorNodes nodes = equal_nodes(64, 8, "H100-80GB");
  const std::string one = write_trace(generate(generator, nodes, days(54), 1));
  EXPECT_EQ(one, write_trace(generate(generator, nodes, days(54), 1)));
  EXPECT_NE(one, write_trace(generate(generator, nodes, days(54), 2)));
  EXPECT_EQ(one, write_trace(read_text(one)));
}

TEST(GenerateFailures, AddingACauseMovesNoOther) {
  TraceGenerator generator = llama3();
  const auto times_of = [&](const std::string& cause) {
    std::vector<std::int64_t> times;
    const Trace trace = generate(generator, sixteen_thousand(), days(54), 7);
    for (const ir::ClusterEvent& event : trace.events) {
      if (event.cause == cause && event.kind == EventKind::fail) {
        times.push_back(event.time.nanoseconds);
      }
    }
    return times;
  };
  const auto before = times_of("GPU HBM3 Memory");
  FailureCause cause = generator.failures->causes.front();
  cause.cause = "cosmic rays";
  generator.failures->causes.insert(generator.failures->causes.begin(), cause);
  EXPECT_EQ(times_of("GPU HBM3 Memory"), before);
  EXPECT_GT(before.size(), 40u);
}

TEST(GenerateFailures, WeibullGapsKeepTheMeanCountAndClump) {
  for (const double shape : {0.6, 1.0, 2.0}) {
    constexpr int kDraws = 4000;
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < kDraws; ++i) {
      const double n = static_cast<double>(draw_renewals(1.0 / 3600, shape, to_nanoseconds({36000}),
                                                         Rng(static_cast<std::uint64_t>(i)))
                                               .size());
      sum += n;
      squares += n * n;
    }
    const double mean = sum / kDraws;
    const double variance = squares / kDraws - mean * mean;
    EXPECT_NEAR(mean, 10, 4 * std::sqrt(variance / kDraws)) << shape;
    if (shape < 1) {
      EXPECT_GT(variance, 15);
    }
    if (shape == 1) {
      EXPECT_NEAR(variance, 10, 1);
    }
    if (shape > 1) {
      EXPECT_LT(variance, 5);
    }
  }
}

TEST(GenerateFailures, LemonsFailMoreOften) {
  const TraceGenerator generator =
      llama3({"failures.lemons={share: 0.1, rate: 9}", "failures.rate=10",
              "failures.slow.per_1000_gpu_days=0", "failures.maintenance.count=0"});
  const GeneratorNodes nodes = equal_nodes(200, 8, "");
  const Trace trace = generate(generator, nodes, days(540), 3);
  std::map<int, int> hits;
  int total = 0;
  for (const ir::ClusterEvent& event : trace.events) {
    if (event.kind != EventKind::fail || event.scope.kind != ir::EventScope::Kind::devices)
      continue;
    ++hits[event.scope.devices.front().value / 8];
    ++total;
  }
  // Nodes with far more than the mean take about half of the failures (0.1 * 9 / (0.1 * 9 + 0.9)).
  int lemons = 0;
  int of_lemons = 0;
  for (const auto& [node, n] : hits) {
    if (n < 2.5 * total / 200) continue;
    ++lemons;
    of_lemons += n;
  }
  EXPECT_NEAR(lemons, 20, 12);
  EXPECT_NEAR(of_lemons / static_cast<double>(total), lemons * 9.0 / (lemons * 9 + 200 - lemons),
              0.06);
}

TEST(GenerateFailures, ASwitchTakesDownNeighborsOfOneLeaf) {
  const TraceGenerator generator = llama3(
      {"failures.causes=[{cause: switch, count: 100, scope: leaf, nodes: 3, repair: {mean: 1 h}}]",
       "failures.gpus=80"});
  GeneratorNodes nodes = equal_nodes(10, 8, "");
  nodes.leaf = {0, 0, 0, 0, 0, 1, 1, 1, 1, 1};
  const Trace trace = generate(generator, nodes, days(54), 5);
  std::map<std::string, int> blocks;
  for (const ir::ClusterEvent& event : trace.events) {
    if (event.kind != EventKind::fail || event.scope.kind != ir::EventScope::Kind::devices)
      continue;
    const std::size_t size = event.scope.devices.size();
    ++blocks[fmt::format("{}x{}", event.scope.devices.front().value / 8, size / 8)];
  }
  // Blocks 0-2, 3-4, 5-7, 8-9, and less when a neighbor is down already.
  EXPECT_GT(blocks["0x3"], 10);
  EXPECT_GT(blocks["3x2"], 10);
  EXPECT_GT(blocks["5x3"], 10);
  EXPECT_GT(blocks["8x2"], 10);
  EXPECT_EQ(blocks.count("4x3"), 0u);
}

TEST(GenerateFailures, TimeOfDaySlowsTheJob) {
  const Trace trace = generate(llama3({"failures.rate=0", "failures.slow.per_1000_gpu_days=0"}),
                               equal_nodes(2, 8, ""), days(2), 1);
  double least = 1;
  for (const ir::ClusterEvent& event : trace.events) {
    ASSERT_EQ(event.kind, EventKind::slow);
    EXPECT_EQ(event.scope.kind, ir::EventScope::Kind::job);
    least = std::min(least, event.factor);
  }
  EXPECT_NEAR(least, 0.985, 1e-9);  // The step from 12 to 16 h is centerd on the warmest hour.
  EXPECT_GE(trace.events.size(), 10u);
  EXPECT_LE(trace.events.size(), 12u);
}

TEST(GenerateSpot, RatesAreThoseOfTheSettingsWhateverTheBursts) {
  for (const double burst : {1.0, 3.0}) {
    TraceGenerator generator = library_generator("bamboo_p3");
    generator.spot[0].burst = burst;
    generator.spot[0].leaves_per_hour = 0.5;
    generator.spot[0].away = {3600};
    const Trace trace = generate(generator, equal_nodes(200, 1, ""), days(20), 11);
    const TraceStatistics s = statistics_of(trace);
    EXPECT_NEAR(s.all.leaves_per_node_hour, 0.5, 0.02) << burst;
    EXPECT_NEAR(s.all.away_hours, 1, 0.04) << burst;
    EXPECT_NEAR(s.all.mean_burst, burst, 0.05 * burst);
    EXPECT_NEAR(s.all.mean_nodes, 1 / 1.5, 0.02) << burst;
    EXPECT_TRUE(find_contradictions(trace).empty());
  }
}

TEST(GenerateSpot, NodesThatNeverComeAreAbsent) {
  TraceGenerator generator = library_generator("bamboo_p3");
  generator.spot[0].leaves_per_hour = 1e-6;
  generator.spot[0].away = {1e9};
  generator.spot[0].start = 0.25;
  const Trace trace = generate(generator, equal_nodes(200, 1, ""), days(1), 3);
  EXPECT_NEAR(statistics_of(trace).all.mean_nodes, 0.25, 0.05);
  EXPECT_TRUE(find_contradictions(trace).empty());
}

TEST(GenerateSpot, SmallPoolsKeepTheirHazardAndEachTypeItsOwnBursts) {
  TraceGenerator generator = library_generator("bamboo_p3");
  generator.spot[0].burst = 4;
  generator.spot[0].leaves_per_hour = 0.5;
  generator.spot[0].away = {3600};
  GeneratorNodes nodes = equal_nodes(5, 1, "A");
  for (TraceNode node : equal_nodes(3, 1, "B").nodes) {
    node.name = "b" + node.name;
    nodes.nodes.push_back(node);
    nodes.leaf.push_back(0);
  }
  const TraceStatistics s = statistics_of(generate(generator, nodes, days(400), 2));
  ASSERT_EQ(s.types.size(), 2u);
  for (const Availability& type : s.types) {
    EXPECT_NEAR(type.leaves_per_node_hour, 0.5, 0.025) << type.gpu_type;
    EXPECT_NEAR(type.away_hours, 1, 0.05) << type.gpu_type;
  }
  EXPECT_EQ(s.all.bursts, s.types[0].bursts + s.types[1].bursts);
}

TEST(GenerateSpot, HazardFollowsTheHour) {
  SpotType type;
  type.gpu_type = "*";
  type.leaves_per_hour = 0.2;
  type.away = {3600};
  type.by_hour.assign(24, 0);
  type.by_hour[13] = 24;
  std::vector<NodeId> nodes;
  for (int i = 0; i < 50; ++i) nodes.push_back({i});
  const SpotNodes drawn = draw_spot(type, nodes, days(10), Rng(3));
  int leaves = 0;
  for (const SpotChange& change : drawn.changes) {
    if (change.comes) continue;
    ++leaves;
    EXPECT_EQ(change.at.nanoseconds / 3'600'000'000'000 % 24, 13);
  }
  EXPECT_GT(leaves, 100);
}

TEST(GenerateSpot, PricesRevertToTheirMean) {
  SpotType type;
  type.price = DollarsPerSecond{2.0 / 3600};
  EXPECT_EQ(draw_prices(type, days(30), Rng(1)).size(), 1u);
  type.price_sigma = 0.3;
  type.price_reversion = {7200};
  const auto prices = draw_prices(type, days(400), Rng(1));
  ASSERT_EQ(prices.size(), 9600u);
  double sum = 0;
  double logs = 0;
  for (const SpotPrice& price : prices) {
    sum += price.price.value * 3600;
    logs += std::pow(std::log(price.price.value * 1800) + 0.045, 2);
  }
  EXPECT_NEAR(sum / 9600, 2, 0.06);
  EXPECT_NEAR(std::sqrt(logs / 9600), 0.3, 0.02);
}

TEST(Generate, EventsNeverContradictPresence) {
  // Everything at once, far more often than in life.
  TraceGenerator generator =
      llama3({"failures.rate=400", "failures.slow.per_1000_gpu_days=500",
              "failures.maintenance.count=400", "failures.lemons={share: 0.2, rate: 5}"});
  generator.spot = library_generator("bamboo_p3").spot;
  generator.spot[0].notice = {900};
  generator.spot[0].leaves_per_hour = 0.2;
  generator.spot[0].price = DollarsPerSecond{1.0 / 3600};
  generator.spot[0].price_sigma = 0.2;
  generator.failures->links.links = {"l0", "l1"};
  generator.failures->links.per_link_day = 5;
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    GeneratorNodes nodes = equal_nodes(12, 1 + static_cast<int>(seed % 4) * 2, "A");
    const Trace trace = generate(generator, nodes, days(20), seed);
    EXPECT_GT(count(trace, EventKind::fail), 20);
    EXPECT_GT(count(trace, EventKind::leave), 100);
    const auto found = find_contradictions(trace);
    ASSERT_TRUE(found.empty()) << seed << ": event " << found.front().sequence << ": "
                               << found.front().what << "\n"
                               << write_trace(trace).substr(0, 2000);
    EXPECT_EQ(write_trace(read_text(write_trace(trace))), write_trace(trace));
  }
}

TEST(Generate, LargestRemaindersKeepTheSum) {
  EXPECT_EQ(round_counts({0.5, 0.25, 0.25}), (std::vector<std::int64_t>{1, 0, 0}));
  EXPECT_EQ(round_counts({1.4, 1.4, 1.4}), (std::vector<std::int64_t>{2, 1, 1}));
  EXPECT_EQ(round_counts({2, 3}), (std::vector<std::int64_t>{2, 3}));
}

TEST(Generate, DurationsHaveTheirMean) {
  for (const DurationShape shape :
       {DurationShape::fixed, DurationShape::exponential, DurationShape::lognormal}) {
    Rng rng(5);
    double sum = 0;
    for (int i = 0; i < 20000; ++i)
      sum += to_seconds(draw_duration({{100}, shape, 0.5}, rng)).value;
    EXPECT_NEAR(sum / 20000, 100, 3) << static_cast<int>(shape);
  }
}

TEST(GeneratorFile, ProblemsHavePlacesAndNames) {
  config::Diagnostics diagnostics;
  load_generator("lama3", "models/library", {}, {"--x", 0, 0}, {"--set", 0, 0}, diagnostics);
  EXPECT_EQ(all(diagnostics), "no trace generator 'lama3' (did you mean 'llama3'?)\n");
  const File file(
      "schema: orrery/trace_generator/1\nname: x\nfailures:\n  rate: -1\n  causes:\n"
      "    - {cause: a, count: 1, scope: gpu}\n    - {cause: a, count: 1, scope: rack}\n");
  config::Diagnostics bad;
  load_generator(file.path(), "models/library", {"failures.period"}, {}, {"--set", 0, 0}, bad);
  EXPECT_EQ(all(bad).substr(0, 40), "'failures.period' is not KEY=VALUE (for ");
  config::Diagnostics inside;
  load_generator(file.path(), "models/library", {}, {}, {}, inside);
  const std::string text = all(inside);
  EXPECT_NE(text.find("4:9: must be from 0 to 1000000, is -1"), std::string::npos) << text;
  EXPECT_NE(text.find("hardware needs a time of repair"), std::string::npos) << text;
  EXPECT_NE(text.find("'rack'"), std::string::npos) << text;
}

TEST(GeneratorFile, SettingsThatNoTimeOrCountCanHoldAreProblemsAtTheirPlace) {
  const auto problem = [](const std::string& section) {
    config::Diagnostics problems;
    config::load_text<TraceGenerator>("schema: orrery/trace_generator/1\nname: x\n" + section,
                                      "generator", problems);
    return all(problems);
  };
  const std::string cause = "failures:\n  causes:\n    - {cause: a, scope: job, count: ";
  EXPECT_EQ(problem(cause + "1}\n"), "");
  EXPECT_EQ(problem(cause + "1e18}\n"), "5:37: must be from 0 to 1e+09, is 1e+18\n");
  const std::string spot = "spot:\n  - gpu_type: a\n    leaves_per_hour: 1\n    away: 5 h\n    ";
  EXPECT_EQ(problem(spot + "burst: 2\n"), "");
  EXPECT_EQ(problem(spot + "burst: 1e308\n"), "7:12: must be from 1 to 1000000, is 1e+308\n");
  EXPECT_EQ(problem(spot + "join_burst: 1e308\n").substr(0, 6), "7:17: ");
  EXPECT_EQ(problem(spot + "notice: 1e15 min\n").substr(0, 6), "7:13: ");
  EXPECT_EQ(problem(spot + "price: 1e300 $/h\n").substr(0, 6), "7:12: ");
  EXPECT_EQ(problem(spot + "price_step: 1e300 s\n").substr(0, 6), "7:17: ");
  EXPECT_EQ(problem(spot + "price_reversion: 1e-300 s\n").substr(0, 6), "7:22: ");
  EXPECT_EQ(problem(spot + "by_hour: [1e300]\n").substr(0, 6), "7:14: ");
  EXPECT_EQ(problem("failures:\n  period: 5e-324 day\n").substr(0, 5), "4:11:");
  EXPECT_EQ(problem("failures:\n  rate: 1e300\n").substr(0, 5), "4:9: ");
  EXPECT_EQ(problem("failures:\n  maintenance: {notice: 1e15 min}\n").substr(0, 5), "4:25:");
  EXPECT_EQ(problem("failures:\n  slow: {duration: {mean: 1e15 min}}\n").substr(0, 5), "4:27:");
}

TEST(Generate, MoreEventsThanAreKeptAreAProblemBeforeTheyAreDrawn) {
  const GeneratorNodes nodes = equal_nodes(1024, 8, "A");
  const auto problems = [&](const char* name, const std::vector<std::string>& changes) {
    return find_problems(library_generator(name, changes), nodes, days(54));
  };
  for (const char* name : {"llama3", "bamboo_p3", "spot"}) {
    EXPECT_EQ(problems(name, {}), std::vector<std::string>{}) << name;
  }
  for (const char* many : {"rate=1e5", "period=1 s", "maintenance.count=1e9", "daily.step=60 s",
                           "slow.per_1000_gpu_days=1e6"}) {
    const std::string change = std::string("failures.") + many;
    const bool steps = change.find("daily") != std::string::npos;
    EXPECT_EQ(problems("llama3", {change}).size(), steps ? 0u : 1u) << change;
  }
}

TEST(Generate, TheBoundOfEventsHoldsAndIsNotFarAway) {
  for (const char* name : {"llama3", "bamboo_p3", "spot"}) {
    const TraceGenerator generator = library_generator(name);
    int low = 1, high = 1 << 18;
    while (low + 1 < high) {
      const int middle = (low + high) / 2;
      const bool fits = find_problems(generator, equal_nodes(middle, 8, "A"), days(5400)).empty();
      (fits ? low : high) = middle;
    }
    // The bound is proportional to the time: a hundredth has a hundredth of the events.
    ASSERT_LT(high, 1 << 18) << name;
    const Trace trace = generate(generator, equal_nodes(high, 8, "A"), days(54), 1);
    EXPECT_LT(static_cast<double>(trace.events.size()), kMostEvents / 100 * 1.02) << name;
    EXPECT_GT(static_cast<double>(trace.events.size()), kMostEvents / 100 * 0.3) << name;
  }
}

TEST(GeneratorFile, EverySettingOfTheLibraryComesBackFromItsDump) {
  for (const char* name : {"llama3", "bamboo_p3", "spot"}) {
    const TraceGenerator generator = library_generator(name);
    config::Diagnostics diagnostics;
    const auto again =
        config::load_text<TraceGenerator>(config::dump(generator), "dump", diagnostics);
    EXPECT_TRUE(diagnostics.empty()) << all(diagnostics);
    EXPECT_EQ(config::dump(again), config::dump(generator));
    EXPECT_FALSE(generator.source.empty());
  }
}

}  // namespace
}  // namespace orrery::traces::generate_test
