/// Arrivals and departures of spot nodes, and their prices. Private to traces/.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "traces/generate/settings.h"

namespace orrery::traces {

struct SpotChange {
  Instant at;
  NodeId node;
  bool comes = false;
};

struct SpotNodes {
  std::vector<NodeId> absent;  ///< At time 0.
  std::vector<SpotChange> changes;
};

/// The nodes of one type, as SpotType says; exact (Gillespie's algorithm, restarted at each hour:
/// exponential gaps have no memory).
SpotNodes draw_spot(const SpotType& type, const std::vector<NodeId>& nodes, Nanoseconds horizon,
                    Rng rng);

/// The entry for nodes of a type: its own, else that of "*"; null: such nodes stay.
const SpotType* spot_type_of(const TraceGenerator& generator, const std::string& gpu_type);

/// Bursts of departures per second among `nodes` nodes, the mean over the day once it has settled:
/// as many nodes are there at each hour as on average, p' = (1 - p) / away - h(hour) p, and a burst
/// takes a geometric number of them.
double spot_departures_per_second(const SpotType& type, std::size_t nodes);

struct SpotPrice {
  Instant at;
  DollarsPerSecond price;
};

/// One price at 0 and, unless it is constant, one each `price_step`: the exponential of an
/// Ornstein-Uhlenbeck process in its steady state, scaled to the mean. Nothing without a price.
std::vector<SpotPrice> draw_prices(const SpotType& type, Nanoseconds horizon, Rng rng);

}  // namespace orrery::traces
