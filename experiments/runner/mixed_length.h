/// Steps with sequences of mixed lengths, simulated: draws the sequences of each step, asks each
/// system's step planner (planners/mixed_length), runs every phase of its decision in the simulator
/// with the micro-batches' own lengths (models/lower/micro_batch_lengths.h), and every switch of
/// strategy as flows. A step takes the sum of its phases and of the switches before them.
///
/// Switches are planned by models/switch (fused) and run as its program of state sends.
/// Simplified: a switch starts when the phase before it has ended on all devices and ends before
/// the next one starts; planning and building of graphs take no time.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "experiments/runner/mixed_length_file.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/spec/cluster.h"
#include "models/spec/lengths.h"
#include "models/spec/library.h"
#include "models/spec/topology.h"
#include "planners/mixed_length/step_planner.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {

/// One step under one system.
struct StepOutcome {
  Seconds time;       ///< Phases and switches.
  Seconds switching;  ///< Switches alone.
  int switches = 0;   ///< Changes of strategy: before the step's first phase, and inside the step.
  int phases = 0;     ///< Parts of the step; those without sequences count too.
  int micro_batches = 0;             ///< Not empty.
  std::int64_t computed_tokens = 0;  ///< Padding of windows included.
  int strategy = 0;                  ///< Of the step's first phase.
  bool operator==(const StepOutcome&) const = default;
};

/// Simulates the steps of one system in their order: where weights lie after a step is where the
/// next one finds them. Before the first step they lie where it needs them.
class StepSimulator {
 public:
  /// Keeps references; `planner` was made with `pricer`.
  StepSimulator(const planners::StepPlanner& planner, const models::LengthPricer& pricer,
                const models::Topology& topology, sim::IterationSimulator& simulator);

  StepOutcome run(std::span<const std::int64_t> lengths);
  /// The same for a decision that was made elsewhere.
  StepOutcome run(const planners::StepDecision& decision);

  /// One phase alone. [sim/iteration]
  Seconds phase_time(const planners::StepPhase& phase);
  /// The transfers of a switch in contention; nothing between equal strategies.
  Seconds switch_time(int from, int to, bool inside_step);

 private:
  const planners::StepPlanner& planner_;
  const models::LengthPricer& pricer_;
  const models::Cluster& cluster_;
  const models::Topology& topology_;
  sim::IterationSimulator& simulator_;
  int current_ = -1;  ///< Strategy in whose layout the weights lie.
  std::map<planners::StepPhase, Seconds> phases_;
  std::map<std::tuple<int, int, bool>, Seconds> switches_;
};

/// A row of steps.csv.
struct MixedLengthRow {
  std::string lengths;
  std::int64_t context = 0;
  std::string system;
  int step = 0;
  int sequences = 0;
  std::int64_t longest = 0;
  double share_under_8k = 0;  ///< Of the step's sequences.
  StepOutcome outcome;
};

struct MixedLengthResult {
  std::vector<MixedLengthRow> rows;
  /// Systems that have no plan, and why; and what was chosen where the tables are silent.
  std::vector<std::string> notes;
};

/// All steps of all cases; `steps` of each, 0: as many as the file says. Same file and seed, same
/// rows. All systems see the same sequences. Problems of names and files go to `diagnostics`.
MixedLengthResult run_mixed_length(const MixedLengthFile& file, const std::string& folder,
                                   int steps, const models::Library& library,
                                   config::Diagnostics& diagnostics);

/// Header line and one line for each row.
std::string steps_csv(const std::vector<MixedLengthRow>& rows);

}  // namespace orrery::experiments
