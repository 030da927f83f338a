#include "experiments/study/mixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <tuple>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/files.h"
#include "models/base/check.h"
#include "models/config/document.h"
#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/reshard/reshard_plan.h"
#include "models/reshard/reshard_program.h"

namespace orrery::experiments {
namespace {

/// Samples for searches: steps have smaller numbers.
constexpr std::uint64_t kSamples = std::uint64_t{1} << 32U;

sim::IterationOptions bare_options() {
  sim::IterationOptions options;
  options.record_spans = options.record_memory = options.record_links = false;
  return options;
}

void count(const models::MicroBatchLengths& lengths, StepOutcome& outcome) {
  ++outcome.phases;
  for (const auto& pipeline : lengths) {
    for (const std::int64_t length : pipeline) {
      outcome.micro_batches += length > 0 ? 1 : 0;
      outcome.computed_tokens += length;
    }
  }
}

constexpr std::int64_t kShortSequence = 8192;  // Figure 16 of Hetu v2 counts sequences under 8K.

std::vector<std::string> step_columns() {
  return {"case",      "lengths",  "context",        "system",        "step",
          "step_s",    "switch_s", "switches",       "phases",        "strategy",
          "sequences", "longest",  "share_under_8k", "micro_batches", "computed_tokens"};
}

void load_job(LoadedMixedLength& loaded, const std::string& folder, const models::Library& library,
              config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  const config::Position at = loaded.run.job.at;
  config::Value job = loaded.run.job;
  complete_job(job, folder, diagnostics);
  if (diagnostics.problems().size() != before) return;
  if (loaded.run.tokens_per_step && job.is_map() && job.find("global_batch") == nullptr) {
    job.append("global_batch", config::Value::scalar("1"));  // Not looked at.
  }
  if (!config::describe_value(job, loaded.job, diagnostics)) return;
  const config::Value* lengths = job.find("lengths");
  if (lengths == nullptr) {
    diagnostics.add(at, "the job has no `lengths`", "for example lengths: commoncrawl_like");
    return;
  }
  loaded.lengths = models::read_lengths(*lengths, library.root, diagnostics);
}

void check_multiple(std::int64_t tokens, const char* what, const models::LengthModel& lengths,
                    const config::Position& at, config::Diagnostics& diagnostics) {
  if (tokens % lengths.multiple == 0) return;
  diagnostics.add(at, fmt::format("{} {} is no multiple of {}, to which the lengths of {} are "
                                  "rounded",
                                  what, tokens, lengths.multiple, lengths.name));
}

}  // namespace

SimulatedSteps::SimulatedSteps(const models::LengthPricer& pricer, const models::Topology& topology,
                               sim::IterationSimulator& simulator, std::int64_t context)
    : pricer_(pricer), topology_(topology), simulator_(simulator), context_(context) {}

Seconds SimulatedSteps::phase_time(const planners::PreparedStrategy& strategy,
                                   const models::MicroBatchLengths& lengths,
                                   models::StepEnd end) const {
  return phase_time(strategy.plan_for(lengths), strategy.longest(), lengths, end);
}

Seconds SimulatedSteps::phase_time(const ir::Plan& plan, std::int64_t reference,
                                   const models::MicroBatchLengths& lengths,
                                   models::StepEnd end) const {
  const ir::Program program = models::with_lengths(
      models::lower(plan, simulator_.cluster(), pricer_.workload(reference), pricer_.job(), {}),
      lengths, end);
  const models::ProgramPrices prices = pricer_.prices(program, lengths, end);
  return simulator_.run(program, prices, bare_options()).iteration_time;
}

Seconds SimulatedSteps::switch_time(const ir::Plan& from, const ir::Plan& to,
                                    const models::ReshardBytes& bytes) const {
  const models::Workload& workload = pricer_.workload(context_);
  models::ReshardOptions options;
  options.bytes = bytes;
  const models::ReshardPlan moves =
      models::plan_reshard(from, to, simulator_.cluster(), topology_, workload, options);
  if (moves.messages.empty()) return {};
  const ir::Program program = models::reshard_program(moves, workload, pricer_.job());
  const models::ProgramPrices prices(std::vector<Seconds>(program.ops.size()));
  return simulator_.run(program, prices, bare_options()).iteration_time;
}

StepSimulator::StepSimulator(const planners::StepPlanner& planner,
                             const models::LengthPricer& pricer, const models::Topology& topology,
                             sim::IterationSimulator& simulator)
    : planner_(planner),
      pricer_(pricer),
      judge_(pricer, topology, simulator, planner.strategies().back().longest()) {}

StepOutcome StepSimulator::run(std::span<const std::int64_t> lengths) {
  return run(planner_.plan(lengths));
}

StepOutcome StepSimulator::run(const planners::StepDecision& decision) {
  StepOutcome outcome;
  outcome.strategy = decision.front().strategy;
  for (const planners::StepPhase& phase : decision) {
    if (current_ >= 0 && current_ != phase.strategy) {
      const Seconds time = switch_time(current_, phase.strategy, outcome.phases > 0);
      outcome.switching += time;
      outcome.time += time;
      ++outcome.switches;
    }
    current_ = phase.strategy;
    outcome.time += phase_time(phase);
    count(phase.lengths, outcome);
  }
  return outcome;
}

Seconds StepSimulator::phase_time(const planners::StepPhase& phase) {
  const auto [place, added] = phases_.try_emplace(phase);
  if (added) {
    const auto& strategy = planner_.strategies()[phase.strategy];
    place->second = judge_.phase_time(strategy, phase.lengths, phase.end);
  }
  return place->second;
}

Seconds StepSimulator::switch_time(int from, int to, bool inside_step) {
  const auto [place, added] = switches_.try_emplace({from, to, inside_step});
  if (!added || from == to) return place->second;
  const models::StateBytes& bytes = pricer_.job().state_bytes;
  const auto plan = [&](int strategy) -> const ir::Plan& {
    return planner_.strategies()[strategy].plan();
  };
  place->second = judge_.switch_time(
      plan(from), plan(to),
      inside_step ? planner_.moved_inside_step(bytes) : planner_.moved_between_steps(bytes));
  return place->second;
}

void describe(config::Visitor& v, StepOutcome& outcome) {
  v.title("Step");
  v.required("step_seconds", outcome.time, "switches included");
  v.required("switch_seconds", outcome.switching, "of the step");
  v.required("phases", outcome.phases, "plans one after the other");
  v.required("switches", outcome.switches, "between them");
  v.required("computed_tokens", outcome.computed_tokens, "padding included");
}

StepOutcome simulate_step(const models::PlannedStep& step, const models::StateBytes& bytes,
                          const SimulatedSteps& judge) {
  StepOutcome outcome;
  for (std::size_t i = 0; i < step.phases.size(); ++i) {
    const models::PlannedStep::Phase& phase = step.phases[i];
    if (i > 0) {
      const Seconds time = judge.switch_time(step.phases[i - 1].plan, phase.plan,
                                             planners::accumulated_bytes(bytes));
      outcome.switching += time;
      outcome.time += time;
      outcome.switches += time.value > 0 ? 1 : 0;
    }
    const bool last = i + 1 == step.phases.size();
    outcome.time += judge.phase_time(
        phase.plan, std::max<std::int64_t>(phase.length_range.longest, 1), phase.lengths,
        last ? models::StepEnd::update : models::StepEnd::accumulate);
    count(phase.lengths, outcome);
  }
  return outcome;
}

void describe(config::Visitor& v, MixedLengthRun& run) {
  v.title("Mixed lengths");
  v.doc("A system that trains on sequences of mixed lengths, step by step.");
  v.required("cluster", run.cluster, "of the library, or a file seen from the current folder");
  v.required("model", run.model, "of the library, or a file next to this one");
  v.required("job", run.job,
             "job with `lengths`, or the path of a job file; sequences longer than its "
             "sequence_length are cut");
  v.optional("tokens_per_step", run.tokens_per_step,
             "exactly; without: as many sequences as the job's global_batch says");
  v.optional("steps", run.steps, "that are simulated");
  v.optional("seed", run.seed, "of the sequences");
  v.required("planner", run.planner, "step planner");
  planners::describe(v, run.set);
  if (run.tokens_per_step) v.at_least("tokens_per_step", *run.tokens_per_step, std::int64_t{1});
  v.at_least("steps", run.steps, 1);
  if (!v.reading()) return;
  if (run.tokens_per_step.value_or(1) > kMostTokens) {
    v.problem("tokens_per_step", fmt::format("at most {}", kMostTokens));
  }
  if (run.steps > kMostSteps) v.problem("steps", fmt::format("at most {}", kMostSteps));
  if (v.given("planner") && planners::find_step_planner(run.planner.value) == nullptr) {
    v.problem("planner", "unknown step planner '" + run.planner.value + "'",
              config::suggest(run.planner.value, planners::step_planner_names(), "step planners"));
  }
}

LoadedMixedLength load_mixed_length(MixedLengthRun run, const std::string& folder,
                                    const models::Library& library,
                                    config::Diagnostics& diagnostics) {
  LoadedMixedLength loaded;
  loaded.run = std::move(run);
  const auto& [cluster, model] = std::tie(loaded.run.cluster, loaded.run.model);
  loaded.cluster = models::load_cluster(cluster.value, library, cluster.at, diagnostics);
  const std::string beside = (std::filesystem::path(folder) / model.value).string();
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(beside, error);
  const std::size_t before = diagnostics.problems().size();
  loaded.shape = models::load_model(is_file ? beside : model.value, library, model.at, diagnostics);
  if (diagnostics.problems().size() == before && loaded.shape.layers == 0) {
    diagnostics.add(model.at, fmt::format("'{}' is no transformer", loaded.shape.name),
                    "only transformers have sequences");
  }
  const std::size_t of_job = diagnostics.problems().size();
  load_job(loaded, folder, library, diagnostics);
  if (diagnostics.problems().size() != of_job) return loaded;
  const config::Position& at = loaded.run.job.at;
  check_multiple(loaded.job.sequence_length, "sequence_length", loaded.lengths, at, diagnostics);
  if (loaded.run.tokens_per_step) {
    check_multiple(*loaded.run.tokens_per_step, "tokens_per_step", loaded.lengths, at, diagnostics);
  }
  for (const planners::LengthStrategy& strategy : loaded.run.set.strategies) {
    check_multiple(strategy.longest, "longest", loaded.lengths, loaded.run.planner.at, diagnostics);
  }
  return loaded;
}

std::vector<std::int64_t> sequences_of(const LoadedMixedLength& loaded, int step, bool sample) {
  const Rng rng = Rng(static_cast<std::uint64_t>(loaded.run.seed))
                      .fork(loaded.stream)
                      .fork((sample ? kSamples : 0) + static_cast<std::uint64_t>(step));
  if (loaded.run.tokens_per_step) {
    return models::draw_step(loaded.lengths, *loaded.run.tokens_per_step,
                             loaded.job.sequence_length, rng);
  }
  return models::draw_sequences(loaded.lengths, loaded.job.global_batch, loaded.job.sequence_length,
                                rng);
}

MixedLengthSession::MixedLengthSession(const LoadedMixedLength& loaded)
    : topology_(loaded.cluster),
      pricer_(loaded.cluster, loaded.shape, loaded.job, ir::Profile{}),
      simulation_(loaded.cluster, topology_, false),
      set_(loaded.run.set) {
  const auto& name = loaded.run.planner.value;
  const auto* entry = planners::find_step_planner(name);
  ORRERY_CHECK(entry != nullptr, "step planner '{}' was not checked", name);
  const std::int64_t context = loaded.job.sequence_length;
  const planners::MixedLengthInput input{.pricer = pricer_,
                                         .topology = topology_,
                                         .context = context,
                                         .multiple = loaded.lengths.multiple,
                                         .set = set_};
  if (set_.searched()) {
    std::vector<std::vector<std::int64_t>> samples;
    for (int s = 0; s < set_.search.sample_steps; ++s) {
      samples.push_back(sequences_of(loaded, s, true));
    }
    const SimulatedSteps judge(pricer_, topology_, simulation_, context);
    auto result = entry->search({.input = input, .steps = samples, .judge = judge});
    if (auto* no = std::get_if<models::Infeasible>(&result)) {
      infeasible_ = std::move(*no);
      return;
    }
    found_ = std::move(std::get<planners::FoundStrategies>(result));
    set_ = found_->set;
  }
  auto made = entry->make(input);
  if (auto* no = std::get_if<models::Infeasible>(&made)) {
    infeasible_ = std::move(*no);
    return;
  }
  planner_ = std::move(std::get<std::unique_ptr<planners::StepPlanner>>(made));
  simulator_ = std::make_unique<StepSimulator>(*planner_, pricer_, topology_, simulation_);
}

std::vector<std::string> MixedLengthSession::strategies() const {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < set_.strategies.size(); ++i) {
    const planners::PreparedStrategy& strategy = planner_->strategies()[i];
    const ir::Segment& segment = strategy.plan().pipelines.front().stages.front().segments.front();
    std::string limits;
    int pipeline = 0;
    for (const planners::PipelineKind& kind : set_.strategies[i].pipelines) {
      limits += fmt::format("{}{}", limits.empty() ? "" : ", ", strategy.limit(pipeline));
      pipeline += kind.count;
    }
    lines.push_back(fmt::format("up to {} tokens: {}; recompute {}, ZeRO-{}; holds up to {}",
                                strategy.longest(),
                                planners::in_words(set_.strategies[i].pipelines),
                                ir::name_of(segment.recompute), segment.zero.stage, limits));
  }
  return lines;
}

models::PlannedStep MixedLengthSession::plan(std::span<const std::int64_t> lengths) const {
  return planners::to_planned_step(*planner_, planner_->plan(lengths));
}

std::string run_steps(const LoadedMixedLength& loaded, MixedLengthSession& session,
                      const std::function<void(double)>& on_progress) {
  std::string text = csv_line(step_columns());
  for (int step = 0; step < loaded.run.steps; ++step) {
    const std::vector<std::int64_t> lengths = sequences_of(loaded, step);
    const auto under = std::count_if(lengths.begin(), lengths.end(),
                                     [](std::int64_t length) { return length < kShortSequence; });
    const StepOutcome out = session.run(lengths);
    text += csv_line(
        {loaded.run.name, loaded.lengths.name, std::to_string(loaded.job.sequence_length),
         loaded.run.system, std::to_string(step), fmt::format("{:.6f}", out.time.value),
         fmt::format("{:.6f}", out.switching.value), std::to_string(out.switches),
         std::to_string(out.phases), std::to_string(out.strategy), std::to_string(lengths.size()),
         std::to_string(*std::max_element(lengths.begin(), lengths.end())),
         fmt::format("{:.4f}", static_cast<double>(under) / static_cast<double>(lengths.size())),
         std::to_string(out.micro_batches), std::to_string(out.computed_tokens)});
    if (on_progress) on_progress((step + 1.0) / loaded.run.steps);
  }
  return text;
}

}  // namespace orrery::experiments
