/// One iteration of given plans, one step of mixed lengths, jobs side by side, or a recorded run
/// once more: what `orrery simulate` does.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "experiments/study/jobs.h"
#include "experiments/study/mixed_length.h"
#include "experiments/study/recorded.h"
#include "models/base/units.h"
#include "models/spec/step_plan.h"

namespace orrery::experiments {

struct SimulateSettings {
  JobSettings job;
  JudgeSettings judge;
  /// Files; or one step plan, one file of jobs, or the folder of a recorded run.
  std::vector<std::string> plans;
  std::int64_t steps = 1;          ///< Each with noise of its own: seed, seed + 1, ...
  std::int64_t phases = 1;         ///< Of jobs: draws of when they start (simulate_together).
  std::optional<Overlap> overlap;  ///< Of a recorded run.
  Text timeline;
  Text log;
  Text program;
};
void describe(config::Visitor& v, SimulateSettings& settings);
/// Those that it reads.
std::vector<std::string> input_files(const SimulateSettings& settings);

struct SimulatedStep {
  models::PlannedStep plan;
  StepOutcome outcome;
};

/// Times of several steps of a plan. Quantiles are those of the nearest rank.
struct StepTimes {
  std::int64_t steps = 0;
  Seconds p5;
  Seconds median;
  Seconds p95;
};
void describe(config::Visitor& v, StepTimes& times);

struct SimulateResult {
  std::string cluster;
  std::string model;
  std::vector<RunReport> plans;            ///< Of each file, of its first step; of each job alone.
  std::vector<StepTimes> steps;            ///< Of each file, where several steps were asked for.
  std::optional<SimulatedStep> step;       ///< Of a step plan, instead of `plans`.
  std::optional<RecordedReplay> recorded;  ///< Of a recorded run, instead of `plans`.
  std::optional<JobsTogether> jobs;        ///< Of a file of jobs, besides `plans`.
  std::vector<LoadedRun> inputs;           ///< Of each of `plans`; not described.
};
void describe(config::Visitor& v, SimulateResult& result);
/// 1 if a job has no plan.
int exit_status(const SimulateResult& result);

/// A step plan refuses settings that say how an iteration is judged or exported: they have
/// no meaning there. Changes to the hardware but `any_cluster` hold. `problems`: those found in the
/// settings so far.
SimulateResult simulate(const SimulateSettings& settings, const Call& call,
                        config::Diagnostics problems = {});

}  // namespace orrery::experiments
