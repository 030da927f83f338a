#include "tools/commands/simulate_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "experiments/study/mixed_length.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/lower/lower.h"
#include "models/spec/step_plan.h"
#include "tools/cli/flags.h"
#include "tools/cli/json.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/inputs.h"

namespace orrery::tools {
namespace {

/// What `--json` prints.
struct StepDocument {
  std::string cluster;
  std::string model;
  double step_seconds = 0;
  double switch_seconds = 0;
  int phases = 0;
  int switches = 0;
  std::int64_t computed_tokens = 0;
};

void refuse(const Text& value, const char* flag, config::Diagnostics& diagnostics) {
  if (value) diagnostics.add(at_flag(flag), "has no meaning for a step plan");
}

void refuse_flags(const SimulateSettings& args, config::Diagnostics& diagnostics) {
  if (args.plans.size() > 1) {
    diagnostics.add(at_flag("plans"), "a step plan is simulated alone", "name one file");
  }
  refuse(args.timeline, "--timeline", diagnostics);
  refuse(args.log, "--log", diagnostics);
  refuse(args.program, "--program", diagnostics);
  for (const std::string& key : args.judge.given) {
    std::string flag = "--" + key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    refuse("", flag.c_str(), diagnostics);
  }
}

void check_phases(const models::PlannedStep& step, const std::string& path,
                  const models::Cluster& cluster, const models::LengthPricer& pricer,
                  config::Diagnostics& diagnostics) {
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    const models::PlannedStep::Phase& phase = step.phases[i];
    // What a step plan uses is allowed: nothing else says what is.
    models::Job job = pricer.job();
    job.global_batch = ir::global_batch(phase.plan);
    job.allowed.recompute = {ir::Recompute::none, ir::Recompute::selective, ir::Recompute::full};
    job.allowed.zero_stages = {0, 1, 2, 3};
    job.allowed.sequence_parallel = true;
    job.allowed.schedules = {phase.plan.schedule};
    const auto reference = std::max<std::int64_t>(phase.length_range.longest, 1);
    auto defects = models::validate(phase.plan, cluster, pricer.workload(reference), job);
    if (defects.empty()) defects = models::find_unsupported(phase.plan);
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

std::string text_of(const models::PlannedStep& step, const experiments::StepOutcome& outcome) {
  Table table;
  table.number("phase").number("pipelines").number("GPUs").number("sequences").number("tokens");
  table.number("longest");
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    const models::PlannedStep::Phase& phase = step.phases[i];
    std::int64_t sequences = 0;
    std::int64_t tokens = 0;
    for (const auto& pipeline : phase.lengths) {
      for (const std::int64_t length : pipeline) {
        sequences += length > 0 ? 1 : 0;
        tokens += length;
      }
    }
    table.row({std::to_string(i), std::to_string(phase.plan.pipelines.size()),
               std::to_string(ir::devices_of(phase.plan).size()), std::to_string(sequences),
               grouped(static_cast<double>(tokens), 0),
               std::to_string(phase.length_range.longest)});
  }
  return fmt::format("{}\nstep {:.6f} s, of which {} switches {:.6f} s\n", table.text(0, colors()),
                     outcome.time.value, outcome.switches, outcome.switching.value);
}

void describe(config::Visitor& v, StepDocument& document) {
  v.title("Step");
  v.required("cluster", document.cluster, "");
  v.required("model", document.model, "");
  v.required("step_seconds", document.step_seconds, "");
  v.required("switch_seconds", document.switch_seconds, "");
  v.required("phases", document.phases, "");
  v.required("switches", document.switches, "");
  v.required("computed_tokens", document.computed_tokens, "");
}

}  // namespace

int simulate_step_plan(const SimulateSettings& args) {
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
  const experiments::RunSpec spec = make_spec(job, {}, std::nullopt, diagnostics);
  check_names(spec, library, diagnostics);
  diagnostics.raise();
  const models::Cluster cluster =
      models::load_cluster(spec.cluster.value, library, spec.cluster.at, diagnostics);
  const ir::ModelShape shape =
      models::load_model(spec.model.value, library, spec.model.at, diagnostics);
  const ir::Profile profile =
      spec.profile ? models::load_profile(spec.profile->value, diagnostics) : ir::Profile{};
  diagnostics.raise();
  if (shape.layers == 0) {
    diagnostics.add(spec.model.at, fmt::format("'{}' is no transformer", shape.name),
                    "only transformers have sequences");
    diagnostics.raise();
  }
  const models::Topology topology(cluster);
  const models::LengthPricer pricer(cluster, shape, spec.job, profile);
  check_phases(step, path, cluster, pricer, diagnostics);
  diagnostics.raise();
  sim::IterationSimulator simulator(cluster, topology, false);
  const experiments::SimulatedSteps judge(pricer, topology, simulator,
                                          std::max<std::int64_t>(range.longest, 1));
  const experiments::StepOutcome outcome =
      experiments::simulate_step(step, spec.job.state_bytes, judge);
  if (args.json) {
    print(
        to_json(StepDocument{cluster.name, shape.name, outcome.time.value, outcome.switching.value,
                             outcome.phases, outcome.switches, outcome.computed_tokens}));
    return 0;
  }
  print(section(fmt::format("{} on {}", path, cluster.name), text_of(step, outcome)));
  return 0;
}

}  // namespace orrery::tools
