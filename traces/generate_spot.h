/// Comings and goings of spot nodes, and their prices. Private to traces/.
#pragma once
#include <vector>

#include "models/base/ids.h"
#include "models/base/rng.h"
#include "models/base/time.h"
#include "models/base/units.h"
#include "traces/generate_settings.h"

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

struct SpotPrice {
  Instant at;
  DollarsPerSecond price;
};

/// One price at 0 and, unless it is constant, one each `price_step`: the exponential of an
/// Ornstein-Uhlenbeck process in its steady state, scaled to the mean. Nothing without a price.
std::vector<SpotPrice> draw_prices(const SpotType& type, Nanoseconds horizon, Rng rng);

}  // namespace orrery::traces
