/// Steps with sequences of mixed lengths, simulated: draws the sequences of each step, asks a
/// system's step planner (planners/mixed_length), runs every phase of its decision in the simulator
/// with the micro-batches' own lengths (models/lower/micro_batch_lengths.h), and every switch of
/// strategy as flows. A step takes the sum of its phases and of the switches before them.
///
/// Switches are planned by models/reshard (fused) and run as its program of state sends.
/// Simplified: a switch starts when the phase before it has ended on all devices and ends before
/// the next one starts; planning and building of graphs take no time.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "models/config/visitor.h"
#include "models/lower/micro_batch_lengths.h"
#include "models/spec/cluster.h"
#include "models/spec/lengths.h"
#include "models/spec/library.h"
#include "models/spec/step_plan.h"
#include "models/spec/topology.h"
#include "planners/mixed_length/step_planner.h"
#include "planners/mixed_length/strategy.h"
#include "sim/iteration/iteration.h"

namespace orrery::experiments {

/// The simulator as a judge of parts of steps.
class SimulatedSteps final : public planners::StepJudge {
 public:
  /// Keeps references. `context` is the length at which switches see the model: nothing that moves
  /// depends on it.
  SimulatedSteps(const models::LengthPricer& pricer, const models::Topology& topology,
                 sim::IterationSimulator& simulator, std::int64_t context);

  Seconds phase_time(const planners::PreparedStrategy& strategy,
                     const models::MicroBatchLengths& lengths, models::StepEnd end) const override;
  /// The same for any valid plan; `reference` is the length at which it is lowered, in tokens.
  Seconds phase_time(const ir::Plan& plan, std::int64_t reference,
                     const models::MicroBatchLengths& lengths, models::StepEnd end) const;
  Seconds switch_time(const ir::Plan& from, const ir::Plan& to,
                      const models::ReshardBytes& bytes) const override;

 private:
  const models::LengthPricer& pricer_;
  const models::Topology& topology_;
  sim::IterationSimulator& simulator_;
  std::int64_t context_;
};

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
void describe(config::Visitor& v, StepOutcome& outcome);

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
  SimulatedSteps judge_;
  int current_ = -1;  ///< Strategy in whose layout the weights lie.
  std::map<planners::StepPhase, Seconds> phases_;
  std::map<std::tuple<int, int, bool>, Seconds> switches_;
};

/// A step that was planned before: its phases and the switches between them. States lie where the
/// first phase needs them; between phases weights and reduced gradients move, as HotSPa's do.
/// Every plan is valid on the cluster and can be lowered.
StepOutcome simulate_step(const models::PlannedStep& step, const models::StateBytes& bytes,
                          const SimulatedSteps& judge);

/// Bounds that keep a run within minutes.
inline constexpr int kMostSteps = 10'000;
inline constexpr std::int64_t kMostTokens = 10'000'000;

/// Settings of one run: a system and the sequences that it trains on, for a number of steps.
struct MixedLengthRun {
  std::string name;    ///< In tables and figures; of the study's axis `case`, not a setting.
  std::string system;  ///< The same of its axis `system`.
  config::Located<std::string> cluster;
  config::Located<std::string> model;  ///< In the library, or a path seen from the study.
  /// `sequence_length` is the context: longer sequences are cut. `allowed` is not looked at: what
  /// may be used is said by the system; nor is `global_batch` beside tokens_per_step, and then it
  /// may be left out.
  config::Value job;
  /// A step holds exactly this many; its last sequence is cut there. Without: as many sequences as
  /// the job's global batch says.
  std::optional<std::int64_t> tokens_per_step;
  int steps = 100;
  std::int64_t seed = 0;
  config::Located<std::string> planner;  ///< Step planner.
  planners::StrategySet set;
};

void describe(config::Visitor& v, MixedLengthRun& run);

/// What a run names, loaded and checked.
struct LoadedMixedLength {
  MixedLengthRun run;
  models::Cluster cluster;
  ir::ModelShape shape;
  models::Job job;
  models::LengthModel lengths;
  std::uint64_t stream = 0;  ///< Runs with equal lengths draw the same sequences.
};

/// Paths are seen from `folder`. All problems go to `diagnostics`; use the result only if there are
/// none.
LoadedMixedLength load_mixed_length(MixedLengthRun run, const std::string& folder,
                                    const models::Library& library,
                                    config::Diagnostics& diagnostics);

/// Sequences of one step; all systems see the same ones. Samples for searches are drawn from
/// streams of their own.
std::vector<std::int64_t> sequences_of(const LoadedMixedLength& loaded, int step,
                                       bool sample = false);

/// A system in this process: pricer, simulator and step planner, strategies searched if
/// the run says so. One simulator per process: make one session of each.
class MixedLengthSession {
 public:
  /// Keeps a reference.
  explicit MixedLengthSession(const LoadedMixedLength& loaded);

  /// Instead of a planner.
  const std::optional<models::Infeasible>& infeasible() const { return infeasible_; }
  /// If strategies were searched.
  const std::optional<planners::FoundStrategies>& found() const { return found_; }
  /// Each strategy in words: up to which length, pipelines, what they hold.
  std::vector<std::string> strategies() const;
  StepOutcome run(std::span<const std::int64_t> lengths) { return simulator_->run(lengths); }
  models::PlannedStep plan(std::span<const std::int64_t> lengths) const;

 private:
  models::Topology topology_;
  models::LengthPricer pricer_;
  sim::IterationSimulator simulation_;
  planners::StrategySet set_;
  std::optional<planners::FoundStrategies> found_;
  std::optional<models::Infeasible> infeasible_;
  std::unique_ptr<planners::StepPlanner> planner_;
  std::unique_ptr<StepSimulator> simulator_;
};

/// steps.csv of a run in this process, header included; with `on_progress` the share of steps.
std::string run_steps(const LoadedMixedLength& loaded, MixedLengthSession& session,
                      const std::function<void(double)>& on_progress);

}  // namespace orrery::experiments
