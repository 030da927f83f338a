#include "models/cost/ring_steps.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <set>
#include <vector>

namespace orrery::models {
namespace {

using Edges = std::span<const RingEdge>;

/// By how much the longest walk over 1 to `steps` consecutive edges that passes an edge with
/// transmission `wait`, and spends the other steps waiting there, exceeds waiting all the time.
double longest_walk(Edges edges, std::size_t steps, double wait) {
  const std::size_t length = edges.size() + steps - 1;  // Walks begin in the first round.
  std::vector<double> before(length + 1, 0);            // Gain over waiting, up to an edge.
  std::deque<std::size_t> begins;  // Where walks may begin, with increasing `before`.
  std::size_t next = 0;            // First begin that is not in the list yet.
  double best = -HUGE_VAL;
  for (std::size_t last = 0; last < length; ++last) {
    const RingEdge& edge = edges[last % edges.size()];
    before[last + 1] = before[last] + edge.transmission.value + edge.latency.value - wait;
    if (edge.transmission.value == wait) {
      for (; next <= last; ++next) {
        while (!begins.empty() && before[begins.back()] >= before[next]) begins.pop_back();
        begins.push_back(next);
      }
    }
    while (!begins.empty() && begins.front() + steps <= last) begins.pop_front();
    if (!begins.empty()) best = std::max(best, before[last + 1] - before[begins.front()]);
  }
  return best;
}

bool all_equal(Edges edges) {
  return std::all_of(edges.begin(), edges.end(),
                     [&](const RingEdge& edge) { return edge == edges.front(); });
}

}  // namespace

Seconds ring_duration(Edges edges, int steps) {
  if (edges.empty() || steps == 0) return {};
  if (all_equal(edges)) return steps * (edges.front().transmission + edges.front().latency);
  Seconds narrowest;
  for (const RingEdge& edge : edges) narrowest = std::max(narrowest, edge.transmission);
  return steps * narrowest + ring_latency(edges, steps);
}

Seconds ring_latency(Edges edges, int steps) {
  if (edges.empty() || steps == 0) return {};
  if (all_equal(edges)) return steps * edges.front().latency;
  std::set<double> waits;
  for (const RingEdge& edge : edges) waits.insert(edge.transmission.value);
  double longest = -HUGE_VAL;
  for (const double wait : waits) {
    longest =
        std::max(longest, longest_walk(edges, steps, wait) - steps * (*waits.rbegin() - wait));
  }
  return Seconds{longest};
}

}  // namespace orrery::models
