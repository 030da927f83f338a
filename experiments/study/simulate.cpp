#include "experiments/study/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "experiments/study/exports.h"
#include "experiments/study/limits.h"
#include "experiments/study/profile_scaling.h"
#include "experiments/study/run_tasks.h"
#include "models/check/validate.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"

namespace orrery::experiments {
namespace {

void refuse(const Text& value, const std::string& key, config::Diagnostics& diagnostics) {
  if (value) diagnostics.add(at_setting(key), "has no meaning for a step plan");
}

void refuse_flags(const SimulateSettings& args, config::Diagnostics& diagnostics) {
  if (args.plans.size() > 1) {
    diagnostics.add(config::Position{"plans", 0, 0}, "a step plan is simulated alone",
                    "name one file");
  }
  refuse(args.timeline, "timeline", diagnostics);
  refuse(args.log, "log", diagnostics);
  refuse(args.program, "program", diagnostics);
  if (args.steps != 1) refuse("", "steps", diagnostics);
  for (const std::string& key : args.judge.given) refuse("", key, diagnostics);
  if (args.judge.hardware.any_cluster) refuse("", "any_cluster", diagnostics);
}

void check_phases(const models::PlannedStep& step, const std::string& path,
                  const HardwareChanges& hardware, const models::Cluster& cluster,
                  const models::LengthPricer& pricer, config::Diagnostics& diagnostics) {
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    const models::PlannedStep::Phase& phase = step.phases[i];
    // Nothing says what a step plan may use.
    models::Job job = pricer.job();
    job.global_batch = ir::global_batch(phase.plan);
    job.allowed = everything_allowed(phase.plan);
    const auto reference = std::max<std::int64_t>(phase.length_range.longest, 1);
    auto defects = models::validate(phase.plan, cluster, pricer.workload(reference), job);
    if (defects.empty()) defects = models::find_unsupported(phase.plan);
    if (defects.empty()) defects = find_missing_devices(phase.plan, hardware, cluster);
    for (models::PlanDefect& defect : defects) {
      defect.path = fmt::format("phases[{}].plan.{}", i, defect.path);
    }
    for (std::size_t p = 0; defects.empty() && p < phase.plan.pipelines.size(); ++p) {
      if (phase.plan.pipelines[p].reroutes.empty()) continue;
      defects.push_back({fmt::format("phases[{}].plan.pipelines[{}].reroutes", i, p),
                         "micro-batches of mixed lengths cannot be rerouted", ""});
    }
    models::report(defects, path, diagnostics);
  }
}

/// The smallest of ascending values that a share of them does not exceed.
Seconds quantile(const std::vector<Seconds>& ascending, double share) {
  const auto rank =
      static_cast<std::size_t>(std::ceil(share * static_cast<double>(ascending.size())));
  return ascending[std::max<std::size_t>(rank, 1) - 1];
}

StepTimes step_times(const std::vector<RunReport>& steps) {
  std::vector<Seconds> times;
  for (const RunReport& step : steps) times.push_back(step.evaluation->iteration_time);
  std::sort(times.begin(), times.end());
  return {static_cast<std::int64_t>(times.size()), quantile(times, 0.05), quantile(times, 0.5),
          quantile(times, 0.95)};
}

/// Further steps differ by their noise: without it, or under a closed form, all are equal.
void check_steps(const SimulateSettings& settings, config::Diagnostics& diagnostics) {
  if (settings.steps == 1) return;
  const std::string at = "steps";
  if (settings.judge.cost != CostModel::simulator) {
    diagnostics.add(at_setting(at), "a closed form has no noise", "leave --cost out");
  } else if (!settings.judge.simulation.noisy()) {
    diagnostics.add(at_setting(at), "steps without noise are all equal",
                    "give --step-jitter, --link-jitter or --jitter");
  }
}

SimulateResult simulate_recorded(const SimulateSettings& settings, const Call& call,
                                 config::Diagnostics problems) {
  if (settings.plans.size() > 1) {
    problems.add({"plans", 0, 0}, "a recorded run is replayed alone", "name one folder");
  }
  if (settings.steps != 1) problems.add(at_setting("steps"), "has no meaning for a recorded run");
  const Exports exports{settings.timeline.value_or(""), settings.log.value_or(""),
                        settings.program.value_or("")};
  const std::vector<OutputFile> outputs = {
      {"timeline", settings.timeline}, {"log", settings.log}, {"program", settings.program}};
  check_outputs(outputs, input_files(settings.job), problems);
  check_exports(exports, CostModel::simulator, problems);
  if (problems.empty()) probe_outputs(outputs);
  SimulateResult result;
  result.recorded = replay_recorded(settings.plans.front(), settings.job, settings.judge,
                                    settings.overlap.value_or(Overlap::recorded), exports, call,
                                    std::move(problems));
  return result;
}

/// The phases of one step of mixed lengths.
SimulateResult simulate_step_plan(const SimulateSettings& args) {
  config::Diagnostics diagnostics;
  refuse_flags(args, diagnostics);
  const models::Library library = open_library(diagnostics);
  const std::string& path = args.plans.front();
  const models::PlannedStep step = models::load_step_plan(path, diagnostics);
  diagnostics.raise();
  JobSettings job = args.job;
  std::int64_t sequences = 0;
  ir::LengthRange range;
  for (const models::PlannedStep::Phase& phase : step.phases) {
    sequences += ir::global_batch(phase.plan);
    range.longest = std::max(range.longest, phase.length_range.longest);
  }
  // The plan says both; a job file or flags give the numbers in which it trains.
  job.set_default("global_batch", sequences);
  job.set_default("sequence_length", range.longest);
  const RunSpec spec = make_spec(job, args.judge, nullptr, diagnostics);
  check_names(spec, library, diagnostics);
  diagnostics.raise();
  models::Cluster cluster =
      models::load_cluster(spec.cluster.value, library, spec.cluster.at, diagnostics);
  if (diagnostics.empty()) {
    devices_left(spec.hardware, cluster, diagnostics);
    apply(spec.hardware, cluster, diagnostics);
  }
  const ir::ModelShape shape =
      models::load_model(spec.model.value, library, spec.model.at, diagnostics);
  const ir::Profile profile =
      load_profile(spec.profile, spec.scale_profile, "", cluster, library, diagnostics).profile;
  diagnostics.raise();
  if (shape.layers == 0) {
    diagnostics.add(spec.model.at, fmt::format("'{}' is no transformer", shape.name),
                    "only transformers have sequences");
    diagnostics.raise();
  }
  const models::Topology topology(cluster, profile);
  const models::LengthPricer pricer(cluster, shape, spec.job, profile);
  check_phases(step, path, spec.hardware, cluster, pricer, diagnostics);
  diagnostics.raise();
  SimulateResult result;
  result.cluster = cluster.name;
  result.model = shape.name;
  result.step =
      SimulatedStep{step, run_in_child<StepOutcome>(path, [&] {
                      sim::IterationSimulator simulator(cluster, topology, false);
                      const SimulatedSteps judge(pricer, topology, simulator,
                                                 std::max<std::int64_t>(range.longest, 1));
                      return simulate_step(step, spec.job.state_bytes, judge);
                    })};
  return result;
}

/// What a file of jobs says itself, and what speaks of one plan.
void refuse_for_jobs(const SimulateSettings& args, config::Diagnostics& diagnostics) {
  if (args.plans.size() > 1) {
    diagnostics.add({"plans", 0, 0}, "a file of jobs is simulated alone", "name one file");
  }
  const auto refuse = [&](bool given, const char* key, const char* hint) {
    if (given) diagnostics.add(at_setting(key), "has no meaning for a file of jobs", hint);
  };
  refuse(args.job.model.has_value(), "model", "the file says it of each job");
  refuse(args.job.job.has_value(), "job", "the file says it of each job");
  for (const auto& [key, path] : job_keys()) {
    refuse(args.job.gives(path), key.c_str(), "the file says it of each job");
  }
  refuse(args.timeline.has_value(), "timeline", "simulate the plan of one job alone");
  refuse(args.log.has_value(), "log", "simulate the plan of one job alone");
  refuse(args.program.has_value(), "program", "simulate the plan of one job alone");
  refuse(args.steps != 1, "steps", "simulate the plan of one job alone");
  refuse(args.overlap.has_value(), "overlap", "");
  refuse(args.judge.cost != CostModel::simulator, "cost", "closed forms know one job only");
}

SimulateResult simulate_jobs(const SimulateSettings& settings, const Call& call,
                             config::Diagnostics problems) {
  refuse_for_jobs(settings, problems);
  const models::Library library = open_library(problems);
  const Jobs jobs = load_jobs(settings.plans.front(), problems);
  problems.raise();
  SimulateResult result;
  result.inputs = load_job_runs(jobs, settings.job, settings.judge, library, problems);
  problems.raise();
  std::vector<RunTask> tasks;
  for (std::size_t i = 0; i < result.inputs.size(); ++i) {
    tasks.push_back({jobs.jobs[i].name.value, result.inputs[i], {}});
  }
  result.plans = run_tasks(tasks, call, settings.judge.cache.open(call.on_note).get());
  result.jobs = simulate_together(jobs, result.inputs, result.plans, settings.phases, call);
  return result;
}

}  // namespace

void describe(config::Visitor& v, SimulateSettings& settings) {
  v.required(
      "plan", settings.plans,
      "plan files, one step plan, one file of jobs, or the folder of a run that orrery import "
      "recorded",
      {.positional = true});
  v.optional("timeline", settings.timeline,
             "write a timeline: FILE.perfetto-trace or FILE.json (Chrome)", {.letter = 't'});
  v.optional("log", settings.log, "write the run log (protobuf)");
  v.optional("program", settings.program, "write the lowered program (protobuf)");
  v.optional("steps", settings.steps,
             "simulate so many steps, each with noise of its own, and say p5, median and p95");
  v.between("steps", settings.steps, std::int64_t{1}, std::int64_t{100'000});
  v.optional("phases", settings.phases,
             "of a file of jobs: simulate so many draws of when they start, and say the median and "
             "the range");
  v.between("phases", settings.phases, std::int64_t{1}, std::int64_t{10'000});
  v.optional("overlap", settings.overlap,
             "of a recorded run: recorded (default), or none: kernels and communication of a rank "
             "one at a time");
  describe(v, settings.job);
  describe(v, settings.judge);
}

std::vector<std::string> input_files(const SimulateSettings& settings) {
  std::vector<std::string> files = input_files(settings.job);
  files.insert(files.end(), settings.plans.begin(), settings.plans.end());
  return files;
}

void describe(config::Visitor& v, StepTimes& times) {
  v.title("Times of steps");
  v.required("steps", times.steps, "how many");
  v.required("p5", times.p5, "that one in twenty does not exceed");
  v.required("median", times.median, "that half of them do not exceed");
  v.required("p95", times.p95, "that one in twenty exceeds");
}

void describe(config::Visitor& v, SimulateResult& result) {
  v.title("Simulations");
  if (result.recorded) return describe(v, *result.recorded);
  if (result.jobs) {
    describe(v, *result.jobs);
    return v.required("plans", result.plans, "what each job came to alone");
  }
  v.required("cluster", result.cluster, "its name");
  v.required("model", result.model, "its name");
  if (!result.step) {
    v.required("plans", result.plans, "what each came to");
    v.optional("steps", result.steps, "times of several steps of each");
    return;
  }
  describe(v, result.step->outcome);
}

int exit_status(const SimulateResult& result) {
  return result.jobs && std::any_of(result.plans.begin(), result.plans.end(),
                                    [](const RunReport& job) { return !job.plan; })
             ? 1
             : 0;
}

SimulateResult simulate(const SimulateSettings& settings, const Call& call,
                        config::Diagnostics problems) {
  if (!settings.plans.empty() && is_jobs_file(settings.plans.front())) {
    return simulate_jobs(settings, call, std::move(problems));
  }
  if (settings.phases != 1) {
    problems.add(at_setting("phases"), "has a meaning for files of jobs only");
  }
  if (!settings.plans.empty() && models::is_step_plan(settings.plans.front())) {
    if (settings.overlap) problems.add(at_setting("overlap"), "has no meaning for a step plan");
    problems.raise();
    return simulate_step_plan(settings);
  }
  if (!settings.plans.empty() && is_recorded_run(settings.plans.front())) {
    return simulate_recorded(settings, call, std::move(problems));
  }
  if (settings.overlap) {
    problems.add(at_setting("overlap"), "has a meaning for recorded runs only",
                 "a plan says itself what overlaps (communication)");
  }
  const Exports exports{settings.timeline.value_or(""), settings.log.value_or(""),
                        settings.program.value_or("")};
  config::Diagnostics diagnostics;
  if (exports.any() && settings.plans.size() > 1) {
    diagnostics.add({"--timeline, --log, --program", 0, 0},
                    fmt::format("one file for {} plans", settings.plans.size()),
                    "simulate one plan");
  }
  const std::vector<OutputFile> outputs = {
      {"timeline", settings.timeline}, {"log", settings.log}, {"program", settings.program}};
  check_outputs(outputs, input_files(settings), diagnostics);
  check_steps(settings, diagnostics);
  diagnostics.raise();
  SimulateResult result;
  result.inputs = load_plans(settings.plans, settings.job, settings.judge, {}, std::move(problems));
  check_exports(exports, result.inputs.front().spec.cost, diagnostics);
  diagnostics.raise();
  probe_outputs(outputs);
  const LoadedRun& first = result.inputs.front();
  for (const std::string& note : substitute_notes(first.cluster, first.spec.job.dtype)) {
    call.note(note);
  }
  std::vector<RunTask> tasks;
  for (const LoadedRun& run : result.inputs) {
    for (const std::string& line : run.carried_over) call.note(line);
    for (std::int64_t step = 0; step < settings.steps; ++step) {
      tasks.push_back({run.spec.plan->value, run, step == 0 ? exports : Exports{}});
      tasks.back().run.spec.simulation.seed += step;
    }
  }
  std::vector<RunReport> reports =
      run_tasks(tasks, call, settings.judge.cache.open(call.on_note).get());
  for (auto first = reports.begin(); first != reports.end(); first += settings.steps) {
    if (settings.steps > 1) result.steps.push_back(step_times({first, first + settings.steps}));
    result.plans.push_back(std::move(*first));
  }
  result.cluster = result.inputs.front().cluster.name;
  result.model = result.inputs.front().workload.name;
  return result;
}

}  // namespace orrery::experiments
