/// Counts throughput as the simulators of Oobleck's artifact do, to reproduce the published digits
/// of Figures 9 and 10. The rules, found in the artifact and written down here in our own form:
///
/// 1. All times are whole milliseconds; a step takes floor(samples / throughput * 1000). The
///    throughput is that of all nodes that are ready, waiting ones too, when a rendezvous ends.
/// 2. The first node that is ready starts a rendezvous; its end starts steps if 12 nodes take part.
///    Nodes that come later count from the next rendezvous on. A loss starts a rendezvous (in
///    Bamboo only if it is fatal), during which steps go on and count as before. At its end the
///    step in flight is dropped and a whole one starts.
/// 3. A second loss during a rendezvous starts another one, but the first to end takes all nodes
///    and leaves none to the other, which stops the job until a node comes or goes: losses at one
///    instant, as in Figure 10, stop it.
/// 4. Throughput = samples of the steps that count / (end of the last step - end of the first
///    rendezvous). Bamboo and Oobleck lose nothing but the step in flight.
/// 5. Varuna: a checkpoint after each 10th step, steps that were lost since included, and after the
///    first step since a loss. It fails if a loss precedes its end, counted twice as far away as it
///    is, in the memory order of the event queue; then the last 10 steps do not count. At a loss
///    all steps since the last checkpoint do not count; without one, none so far.
/// 6. Bamboo: 12 stages in a row of nodes; a loss doubles the load of the node before it, is fatal
///    if that node has two already or is the one lost. From the first loss until the next
///    rendezvous steps take 1.5 times as long, even if the lost node was only waiting. At the end
///    of a step it reconfigures (inputs.h: bamboo_rebuild) if overloaded nodes could be replaced,
///    are more than 2.5 %, or another pipeline fits.
/// 7. Breakdown: `effective` has each step that was started, also those that never end; `fallback`
///    one step a loss (Varuna: 2k - 1 steps for k steps that do not count, which are in
///    `effective` as well, again at each loss). Shares are of the sum of all parts.
#pragma once
#include <vector>

#include "experiments/oobleck/throughput/inputs.h"

namespace orrery::experiments {

/// Milliseconds.
struct CompatBreakdown {
  double effective = 0;
  double redundant = 0;
  double checkpoint = 0;
  double restart = 0;
  double fallback = 0;
  double sum() const { return effective + redundant + checkpoint + restart + fallback; }
};

struct CompatResult {
  double samples_per_second = 0;
  int steps = 0;
  CompatBreakdown breakdown;
};

/// `falls_back`: Varuna goes back to checkpoints (rule 5). `changes` in the order of the file.
CompatResult count_compat(const OobleckModel& model, OobleckSystem system,
                          const NodeThroughput& throughput, const std::vector<NodeChange>& changes,
                          bool falls_back);

}  // namespace orrery::experiments
