/// Which fleet to rent (`orrery plan --robust --rent`): the cheapest of those on offer (fleets.h)
/// that reaches a rate under failures.
#pragma once
#include <functional>
#include <vector>

#include "experiments/study/fleets.h"
#include "experiments/study/robust_search.h"
#include "models/config/diagnostics.h"

namespace orrery::experiments {

/// Cheapest first; empty unless something is to be rented.
std::vector<Fleet> offered_fleets(const RobustChoices& choices, const LoadedReplayCase& base,
                                  config::Diagnostics& diagnostics);

/// The cheapest fleet that reaches the rate of the choices: those that cannot by the lower bound on
/// an iteration are passed over, the others are planned for and replayed, cheapest first. `inputs`
/// are of all that is on offer; `chosen` gets the winner with its cluster, to keep it.
RobustResult rented(
    const RobustInputs& inputs, const std::vector<Fleet>& offered,
    const std::function<RobustResult(const models::Cluster&, RobustResult)>& chosen);

}  // namespace orrery::experiments
