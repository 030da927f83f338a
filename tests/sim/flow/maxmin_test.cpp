// Random flows against a slow reference: progressive filling at every start and end of a flow.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "tests/sim/flow/support.h"

namespace orrery::sim::maxmin_test {
namespace {

struct RandomFlow {
  int source, destination;
  double bytes, start;
};

/// Max-min rates [Bertsekas and Gallager, Data Networks, 6.5.2]: the link with the smallest fair
/// share fixes its flows; repeat with what is left.
std::vector<double> max_min(const std::vector<RandomFlow>& flows, const std::vector<bool>& active,
                            const std::vector<BytesPerSecond>& links) {
  std::vector<double> rate(flows.size(), 0), left;
  for (const BytesPerSecond link : links) left.push_back(link.value);
  std::vector<bool> fixed(flows.size());
  for (std::size_t i = 0; i < flows.size(); ++i) fixed[i] = !active[i];
  const auto uses = [&](std::size_t flow, std::size_t link) {
    return up(flows[flow].source).index() == link || down(flows[flow].destination).index() == link;
  };
  for (;;) {
    double best = std::numeric_limits<double>::infinity();
    std::size_t tightest = 0;
    for (std::size_t link = 0; link < links.size(); ++link) {
      int users = 0;
      for (std::size_t i = 0; i < flows.size(); ++i) users += !fixed[i] && uses(i, link);
      if (users > 0 && left[link] / users < best) {
        best = left[link] / users;
        tightest = link;
      }
    }
    if (std::isinf(best)) return rate;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (fixed[i] || !uses(i, tightest)) continue;
      fixed[i] = true;
      rate[i] = best;
      left[up(flows[i].source).index()] -= best;
      left[down(flows[i].destination).index()] -= best;
    }
  }
}

std::vector<double> reference_ends(const std::vector<RandomFlow>& flows,
                                   const std::vector<BytesPerSecond>& links) {
  std::vector<double> remaining, ends(flows.size(), -1);
  for (const RandomFlow& flow : flows) remaining.push_back(flow.bytes);
  double now = 0;
  for (;;) {
    std::vector<bool> active(flows.size());
    double next = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < flows.size(); ++i) {
      active[i] = ends[i] < 0 && flows[i].start <= now;
      if (flows[i].start > now) next = std::min(next, flows[i].start);
    }
    const std::vector<double> rate = max_min(flows, active, links);
    for (std::size_t i = 0; i < flows.size(); ++i)
      if (active[i]) next = std::min(next, now + remaining[i] / rate[i]);
    if (std::isinf(next)) return ends;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      if (!active[i]) continue;
      remaining[i] -= rate[i] * (next - now);
      if (remaining[i] <= 1e-9 * flows[i].bytes) ends[i] = next;
    }
    now = next;
  }
}

RC_GTEST_PROP(MaxMin, EndsEqualTheProgressiveFillingReference, ()) {
  const int hosts = *rc::gen::inRange(2, 6);
  std::vector<BytesPerSecond> links;
  for (int i = 0; i < 2 * hosts; ++i) links.push_back({*rc::gen::inRange(1, 20) * 1e9});
  const int count = *rc::gen::inRange(1, 16);
  std::vector<RandomFlow> flows;
  for (int i = 0; i < count; ++i) {
    const int source = *rc::gen::inRange(0, hosts);
    const int destination = (source + *rc::gen::inRange(1, hosts)) % hosts;
    flows.push_back(
        {source, destination, *rc::gen::inRange(1, 1000) * 1e7, *rc::gen::inRange(0, 30) * 0.1});
  }
  const auto ends =
      simulate(star(links, [](int, int) { return Seconds{}; }), [&](FlowEngine& engine) {
        std::vector<TaskId> tasks;
        for (const RandomFlow& flow : flows) {
          const TaskId start = engine.add_delay(Seconds{flow.start});
          tasks.push_back(engine.add_flow(flow.source, flow.destination, Bytes{flow.bytes}));
          engine.add_dependency(start, tasks.back());
        }
        engine.run();
        std::vector<double> result;
        for (const TaskId task : tasks) result.push_back(engine.end_time(task).value);
        return result;
      });
  const std::vector<double> expected = reference_ends(flows, links);
  RC_ASSERT(ends.size() == expected.size());
  for (std::size_t i = 0; i < ends.size(); ++i) {
    RC_LOG() << "flow " << i << ": " << ends[i] << ", reference " << expected[i] << "\n";
    RC_ASSERT(std::abs(ends[i] - expected[i]) <= 1e-7 * expected[i]);
  }
}

/// Chains of delays and flows, some on routes that take a link several times, some at the same
/// instant; in part of them links change while flows run.
std::vector<double> ends_of_chains(const std::vector<RandomFlow>& flows, bool changes,
                                   FlowEngine& engine) {
  std::vector<TaskId> tasks;
  for (std::size_t i = 0; i < flows.size(); ++i) {
    const RandomFlow& flow = flows[i];
    const TaskId start = engine.add_delay(Seconds{flow.start});
    if (i % 3 == 1) engine.add_dependency(tasks.back(), start);
    if (i % 4 == 3) {
      const int times = 1 + static_cast<int>(i) % 5;
      std::vector<LinkId> links(as_size(times), up(flow.source));
      links.push_back(down(flow.destination));
      tasks.push_back(engine.add_flow(engine.add_route(links, kLatency), Bytes{flow.bytes}));
    } else {
      tasks.push_back(engine.add_flow(flow.source, flow.destination, Bytes{flow.bytes}));
    }
    engine.add_dependency(start, tasks.back());
  }
  if (changes) {
    const RandomFlow& flow = flows.front();
    engine.at(Seconds{0.35},
              [&] { engine.set_link_bandwidth(up(flow.source), BytesPerSecond{3e9}); });
    engine.at(Seconds{0.7}, [&] { engine.cancel({&tasks.back(), 1}); });
    engine.at(Seconds{1.1}, [&] { engine.set_link(down(flow.destination), false); });
    engine.run_until(Seconds{0.5});
  }
  engine.run();
  std::vector<double> ends;
  for (const TaskId task : tasks) {
    ends.push_back(number(engine.state(task)));
    ends.push_back(engine.state(task) < TaskState::done ? 0 : engine.end_time(task).value);
  }
  return ends;
}

RC_GTEST_PROP(LoneFlows, EndToTheBitWhenTheSolverSays, ()) {
  const int hosts = *rc::gen::inRange(2, 9);
  std::vector<BytesPerSecond> links;
  for (int i = 0; i < 2 * hosts; ++i) links.push_back({*rc::gen::inRange(1, 20) * 1e9});
  const int count = *rc::gen::inRange(1, 40);
  std::vector<RandomFlow> flows;
  for (int i = 0; i < count; ++i) {
    const int source = *rc::gen::inRange(0, hosts);
    const int destination = (source + *rc::gen::inRange(1, hosts)) % hosts;
    flows.push_back(
        {source, destination, *rc::gen::inRange(1, 300) * 1e6, *rc::gen::inRange(0, 12) * 0.1});
  }
  const bool changes = *rc::gen::arbitrary<bool>();
  std::vector<double> ends[2];
  for (const bool solve_all : {false, true}) {
    ends[solve_all ? 1 : 0] =
        simulate(star(links, [](int, int) { return kLatency; }),
                 [&](FlowEngine& engine) { return ends_of_chains(flows, changes, engine); },
                 {.solve_all = solve_all});
  }
  RC_ASSERT(ends[0] == ends[1]);
}

}  // namespace
}  // namespace orrery::sim::maxmin_test
