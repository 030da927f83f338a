// Is the expected rate of interruptions that of what is drawn, and of GPUs in use only?
#include "traces/rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/traces/support.h"
#include "traces/generate/generate.h"

namespace orrery::traces::rate_test {
namespace {

constexpr double kDay = 86'400;

TEST(TraceRate, OfLlama3IsItsTableWithoutPlannedMaintenance) {
  const GeneratorNodes nodes = equal_nodes(2048, 8, "H100-80GB");
  const double rate = expected_interruptions_per_second(library_generator("llama3", {}), nodes, 1);
  EXPECT_NEAR(rate * 54 * kDay, 419, 1e-6);
  // Spare nodes fail, too; with half of the GPUs in use, each job failure and half of the others
  // interrupt, and three quarters of those that hit two nodes: 63 + (419 - 63 - 35) / 2 + 35 x 3/4.
  const double half =
      expected_interruptions_per_second(library_generator("llama3", {}), nodes, 0.5);
  EXPECT_NEAR(half * 54 * kDay, 63 + (419.0 - 63 - 35) / 2 + 35 * 0.75, 1e-6);
}

TEST(TraceRate, ExpectedIsTheMeanOverSeeds) {
  struct Case {
    const char* name;
    int nodes;
    int days;
  };
  for (const Case& each :
       {Case{"llama3", 2048, 14}, Case{"spot", 33, 30}, Case{"bamboo_p3", 32, 5}}) {
    constexpr int kSeeds = 30;
    const TraceGenerator generator = library_generator(each.name, {});
    const GeneratorNodes nodes = equal_nodes(each.nodes, 8, "H100-80GB");
    const double expected = expected_interruptions_per_second(generator, nodes, 1);
    double sum = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      sum += mean_interruptions_per_second(generate(generator, nodes, days(each.days), seed), 1);
    }
    const double count = expected * kSeeds * each.days * kDay;
    // Three standard errors of a Poisson count, and one percent for the mean number of spot nodes.
    EXPECT_NEAR(sum / kSeeds / expected, 1, 3 / std::sqrt(count) + 0.01) << each.name;
  }
}

TEST(TraceRate, OfATraceCountsInstantsOfFailuresAndDepartures) {
  Trace trace;
  trace.horizon = days(1);
  trace.nodes = equal_nodes(4, 2, "A").nodes;
  const auto add = [&](ir::EventKind kind, double hour, int node, const std::string& cause) {
    ir::ClusterEvent event;
    event.time = Instant{} + to_nanoseconds(Seconds{hour * 3600});
    event.kind = kind;
    event.cause = cause;
    event.scope.kind = node < 0 ? ir::EventScope::Kind::job : ir::EventScope::Kind::node;
    event.scope.node = {node};
    trace.events.push_back(event);
  };
  add(ir::EventKind::leave, 0, 3, "absent at the start");
  add(ir::EventKind::notice, 1, 0, "spot");
  add(ir::EventKind::leave, 2, 0, "spot");
  add(ir::EventKind::leave, 2, 1, "spot");
  add(ir::EventKind::join, 3, 0, "spot");
  add(ir::EventKind::leave, 4, 2, kPlannedMaintenance);
  add(ir::EventKind::fail, 5, -1, "bug");
  add(ir::EventKind::fail, 30, 0, "after the horizon");
  EXPECT_NEAR(mean_interruptions_per_second(trace, 1) * kDay, 2, 1e-9);
  EXPECT_NEAR(mean_interruptions_per_second(trace, 0.5) * kDay, 1 + 0.75, 1e-9)
      << "two nodes, each in use or not";
  trace.horizon = {};
  EXPECT_EQ(mean_interruptions_per_second(trace, 1), 0);
}

}  // namespace
}  // namespace orrery::traces::rate_test
