// The steps of uneven rings: closed form against the recurrence, and the cases that one can say.
#include "models/cost/ring_steps.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <vector>

namespace orrery::models::ring_steps_test {
namespace {

/// The recurrence, step by step.
double simulated(const std::vector<RingEdge>& edges, int steps) {
  const std::size_t members = edges.size();
  std::vector<double> start(members, 0);
  for (int step = 1; step < steps; ++step) {
    std::vector<double> next(members);
    for (std::size_t i = 0; i < members; ++i) {
      const std::size_t before = (i + members - 1) % members;
      next[i] =
          std::max(start[i] + edges[i].transmission.value,
                   start[before] + edges[before].transmission.value + edges[before].latency.value);
    }
    start = next;
  }
  double end = 0;
  for (std::size_t i = 0; i < members; ++i) {
    end = std::max(end, start[i] + edges[i].transmission.value + edges[i].latency.value);
  }
  return end;
}

RC_GTEST_PROP(RingDuration, IsTheRecurrence, ()) {
  const int members = *rc::gen::inRange(2, 12);
  const int kinds = *rc::gen::inRange(1, 6);
  std::vector<RingEdge> edges;
  for (int i = 0; i < members; ++i) {
    edges.push_back(
        {Seconds{1e-3 * *rc::gen::inRange(1, 1 + kinds)}, Seconds{1e-3 * *rc::gen::inRange(0, 8)}});
  }
  for (const int steps : {1, members - 1, 2 * (members - 1)}) {
    const double expected = simulated(edges, steps);
    RC_ASSERT(std::abs(ring_duration(edges, steps).value - expected) <= 1e-12);
    Seconds narrowest;
    for (const RingEdge& edge : edges) narrowest = std::max(narrowest, edge.transmission);
    const Seconds sum = steps * narrowest + ring_latency(edges, steps);
    RC_ASSERT(std::abs(sum.value - expected) <= 1e-12);
  }
}

TEST(RingDuration, PaysAFarEdgeOnceInARound) {
  const std::vector<RingEdge> edges = {{Seconds{}, Seconds{2e-3}},
                                       {Seconds{}, Seconds{4e-4}},
                                       {Seconds{}, Seconds{4e-4}},
                                       {Seconds{}, Seconds{4e-4}}};
  EXPECT_NEAR(ring_duration(edges, 3).value, 2e-3 + 2 * 4e-4, 1e-15);
  EXPECT_NEAR(ring_duration(edges, 6).value, 2 * 2e-3 + 4 * 4e-4, 1e-15);
}

TEST(RingDuration, PaysANarrowEdgeInEveryStep) {
  const std::vector<RingEdge> edges = {
      {Seconds{1.0}, Seconds{}}, {Seconds{0.1}, Seconds{}}, {Seconds{0.1}, Seconds{}}};
  EXPECT_NEAR(ring_duration(edges, 4).value, 4.0, 1e-12);
}

TEST(RingDuration, IsNothingWithoutSteps) {
  const std::vector<RingEdge> edges(3, {Seconds{1}, Seconds{1}});
  EXPECT_EQ(ring_duration(edges, 0), Seconds{});
  EXPECT_EQ(ring_duration({}, 4), Seconds{});
}

}  // namespace
}  // namespace orrery::models::ring_steps_test
