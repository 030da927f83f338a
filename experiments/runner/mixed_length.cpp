#include "experiments/runner/mixed_length.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "experiments/runner/files.h"
#include "models/base/check.h"
#include "models/ir/names.h"
#include "models/lower/lower.h"
#include "models/switch/switch_plan.h"
#include "models/switch/switch_program.h"

namespace orrery::experiments {
namespace {

constexpr std::int64_t kShortSequence = 8192;  // Figure 16 of Hetu v2 counts sequences under 8K.

sim::IterationOptions bare_options() {
  sim::IterationOptions options;
  options.record_spans = options.record_memory = options.record_links = false;
  return options;
}

/// One model, one cluster, all cases.
class Experiment {
 public:
  Experiment(const MixedLengthFile& file, models::Cluster cluster, ir::ModelShape shape, int steps)
      : file_(file),
        cluster_(std::move(cluster)),
        topology_(cluster_),
        simulator_(cluster_, topology_, false),
        steps_(steps) {
    models::Job job;
    job.state_bytes = file.state_bytes;
    pricer_ =
        std::make_unique<models::LengthPricer>(cluster_, std::move(shape), job, ir::Profile{});
  }

  void run(const models::LengthModel& lengths, const MixedLengthCase& one, std::uint64_t stream) {
    std::vector<std::vector<std::int64_t>> steps;
    const Rng rng = Rng(static_cast<std::uint64_t>(file_.seed)).fork(stream);
    for (int s = 0; s < steps_; ++s) {
      steps.push_back(models::draw_step(lengths, file_.tokens_per_step, one.context,
                                        rng.fork(static_cast<std::uint64_t>(s))));
    }
    for (const MixedLengthSystem& system : one.systems) run(lengths, one, system, steps);
  }
  MixedLengthResult take() { return std::move(result_); }

 private:
  void run(const models::LengthModel& lengths, const MixedLengthCase& one,
           const MixedLengthSystem& system, const std::vector<std::vector<std::int64_t>>& steps) {
    const auto* entry = planners::find_step_planner(system.planner.value);
    ORRERY_CHECK(entry != nullptr, "step planner '{}' was not checked", system.planner.value);
    auto made = entry->make({.pricer = *pricer_,
                             .topology = topology_,
                             .context = one.context,
                             .multiple = lengths.multiple,
                             .set = system.set});
    if (const auto* no = std::get_if<models::Infeasible>(&made)) {
      note(fmt::format("{}, context {}: no plan: {}: {}", system.name, one.context, no->constraint,
                       no->witness));
      return;
    }
    const auto& planner = *std::get<std::unique_ptr<planners::StepPlanner>>(made);
    for (const planners::PreparedStrategy& strategy : planner.strategies()) {
      note(fmt::format("{}, context {}: {}", system.name, one.context, in_words(strategy)));
    }
    StepSimulator simulator(planner, *pricer_, topology_, simulator_);
    for (std::size_t s = 0; s < steps.size(); ++s) {
      MixedLengthRow row;
      row.lengths = lengths.name;
      row.context = one.context;
      row.system = system.name;
      row.step = static_cast<int>(s);
      row.sequences = static_cast<int>(steps[s].size());
      row.longest = *std::max_element(steps[s].begin(), steps[s].end());
      row.share_under_8k = static_cast<double>(std::count_if(
                               steps[s].begin(), steps[s].end(),
                               [](std::int64_t length) { return length < kShortSequence; })) /
                           static_cast<double>(steps[s].size());
      row.outcome = simulator.run(steps[s]);
      result_.rows.push_back(std::move(row));
    }
  }

  static std::string in_words(const planners::PreparedStrategy& strategy) {
    const ir::Segment& segment = strategy.plan().pipelines.front().stages.front().segments.front();
    std::string limits;
    for (int p = 0; p < strategy.pipelines(); ++p) {
      limits += fmt::format("{}{}", p == 0 ? "" : ", ", strategy.limit(p));
    }
    return fmt::format(
        "up to {} tokens: recompute {}, ZeRO-{}; its pipelines hold sequences up to {} tokens",
        strategy.longest(), ir::name_of(segment.recompute), segment.zero.stage, limits);
  }

  void note(std::string text) {
    auto& notes = result_.notes;
    if (std::find(notes.begin(), notes.end(), text) == notes.end()) {
      notes.push_back(std::move(text));
    }
  }

  const MixedLengthFile& file_;
  models::Cluster cluster_;
  models::Topology topology_;
  sim::IterationSimulator simulator_;
  int steps_;
  std::unique_ptr<models::LengthPricer> pricer_;
  MixedLengthResult result_;
};

void check_multiples(const MixedLengthFile& file, const models::LengthModel& lengths,
                     config::Position at, config::Diagnostics& diagnostics) {
  const auto whole = [&](std::int64_t tokens, const char* what) {
    if (tokens % lengths.multiple == 0) return;
    diagnostics.add(at, fmt::format("{} {} is no multiple of {}, to which the lengths of {} are "
                                    "rounded",
                                    what, tokens, lengths.multiple, lengths.name));
  };
  whole(file.tokens_per_step, "tokens_per_step");
  for (const MixedLengthCase& one : file.cases) whole(one.context, "context");
}

}  // namespace

StepSimulator::StepSimulator(const planners::StepPlanner& planner,
                             const models::LengthPricer& pricer, const models::Topology& topology,
                             sim::IterationSimulator& simulator)
    : planner_(planner),
      pricer_(pricer),
      cluster_(simulator.cluster()),
      topology_(topology),
      simulator_(simulator) {}

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
    ++outcome.phases;
    for (const auto& pipeline : phase.lengths) {
      for (const std::int64_t length : pipeline) {
        outcome.micro_batches += length > 0 ? 1 : 0;
        outcome.computed_tokens += length;
      }
    }
  }
  return outcome;
}

Seconds StepSimulator::phase_time(const planners::StepPhase& phase) {
  const auto [place, added] = phases_.try_emplace(phase);
  if (!added) return place->second;
  const auto& strategy = planner_.strategies()[static_cast<std::size_t>(phase.strategy)];
  const models::Workload& workload = pricer_.workload(strategy.longest());
  const ir::Program program = models::with_lengths(
      models::lower(strategy.plan_for(phase.lengths), cluster_, workload, pricer_.job(), {}),
      phase.lengths, phase.end);
  const models::ProgramPrices prices = pricer_.prices(program, phase.lengths, phase.end);
  place->second = simulator_.run(program, prices, bare_options()).iteration_time;
  return place->second;
}

Seconds StepSimulator::switch_time(int from, int to, bool inside_step) {
  const auto [place, added] = switches_.try_emplace({from, to, inside_step});
  if (!added || from == to) return place->second;
  const models::StateBytes& bytes = pricer_.job().state_bytes;
  const auto plan = [&](int strategy) -> const ir::Plan& {
    return planner_.strategies()[static_cast<std::size_t>(strategy)].plan();
  };
  const auto& longest = planner_.strategies().back();
  const models::Workload& workload = pricer_.workload(longest.longest());
  models::SwitchOptions options;
  options.bytes =
      inside_step ? planner_.moved_inside_step(bytes) : planner_.moved_between_steps(bytes);
  const models::SwitchPlan moves =
      models::plan_switch(plan(from), plan(to), cluster_, topology_, workload, options);
  if (moves.messages.empty()) return place->second;
  const ir::Program program = models::switch_program(moves, workload, pricer_.job());
  const models::ProgramPrices prices(std::vector<Seconds>(program.ops.size()));
  place->second = simulator_.run(program, prices, bare_options()).iteration_time;
  return place->second;
}

MixedLengthResult run_mixed_length(const MixedLengthFile& file, const std::string& folder,
                                   int steps, const models::Library& library,
                                   config::Diagnostics& diagnostics) {
  models::Cluster cluster =
      models::load_cluster(file.cluster.value, library, file.cluster.at, diagnostics);
  const std::string beside = (std::filesystem::path(folder) / file.model.value).string();
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(beside, error);
  ir::ModelShape shape =
      models::load_model(is_file ? beside : file.model.value, library, file.model.at, diagnostics);
  if (diagnostics.empty() && shape.layers == 0) {
    diagnostics.add(file.model.at, fmt::format("'{}' is no transformer", shape.name),
                    "only transformers have sequences");
  }
  std::vector<models::LengthModel> lengths;
  for (const auto& name : file.lengths) {
    lengths.push_back(models::load_lengths(name.value, library.root, name.at, diagnostics));
    check_multiples(file, lengths.back(), name.at, diagnostics);
  }
  if (!diagnostics.empty()) return {};
  Experiment experiment(file, std::move(cluster), std::move(shape), steps > 0 ? steps : file.steps);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    for (const MixedLengthCase& one : file.cases) experiment.run(lengths[i], one, i);
  }
  return experiment.take();
}

std::string steps_csv(const std::vector<MixedLengthRow>& rows) {
  std::string text = csv_line({"lengths", "context", "system", "step", "step_s", "switch_s",
                               "switches", "phases", "strategy", "sequences", "longest",
                               "share_under_8k", "micro_batches", "computed_tokens"});
  for (const MixedLengthRow& row : rows) {
    const StepOutcome& out = row.outcome;
    text +=
        csv_line({row.lengths, std::to_string(row.context), row.system, std::to_string(row.step),
                  fmt::format("{:.6f}", out.time.value), fmt::format("{:.6f}", out.switching.value),
                  std::to_string(out.switches), std::to_string(out.phases),
                  std::to_string(out.strategy), std::to_string(row.sequences),
                  std::to_string(row.longest), fmt::format("{:.4f}", row.share_under_8k),
                  std::to_string(out.micro_batches), std::to_string(out.computed_tokens)});
  }
  return text;
}

}  // namespace orrery::experiments
