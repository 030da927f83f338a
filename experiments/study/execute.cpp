#include "experiments/study/execute.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <variant>

#include "experiments/study/carry_over.h"
#include "experiments/study/checks.h"
#include "experiments/study/clock.h"
#include "experiments/study/inputs.h"
#include "experiments/study/limits.h"
#include "experiments/study/profile_scaling.h"
#include "experiments/study/version.h"
#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/cost/hexiscale_model.h"
#include "models/cost/memory.h"
#include "models/cost/pricer.h"
#include "models/interfaces/answer_bytes.h"
#include "models/ir/wire.h"
#include "models/lower/lower.h"
#include "models/spec/plan_file.h"
#include "models/spec/plan_yaml.h"
#include "models/spec/topology.h"
#include "planners/catalog.h"
#include "planners/kit/plan_parts.h"
#include "planners/modules/modules.h"
#include "sim/iteration/evaluator.h"
#include "sim/replay/question.h"
#include "sim/replay/simulated_iteration_timer.h"
#include "sim/replay/transfer_paths.h"

namespace orrery::experiments {
namespace {

constexpr std::size_t kLinksShown = 10;
/// Option of planners that search what a runner can run.
constexpr const char* kTargetOption = "target";

/// Settings that only a simulation heeds, where they are not the usual ones: (flag, key in a file).
std::vector<std::pair<const char*, const char*>> simulated_only(const RunSpec& spec) {
  const sim::IterationOptions& given = spec.simulation;
  std::vector<std::pair<const char*, const char*>> found;
  if (given.jitter > 0) found.emplace_back("jitter", "simulation.jitter");
  if (given.step_jitter > 0) found.emplace_back("step_jitter", "simulation.step_jitter");
  if (given.link_jitter > 0) found.emplace_back("link_jitter", "simulation.link_jitter");
  if (!given.stragglers.empty()) found.emplace_back("straggler", "simulation.stragglers");
  if (!given.slow_links.empty()) found.emplace_back("slow_link", "simulation.slow_links");
  if (given.inner != sim::InnerMode::automatic) found.emplace_back("inner", "simulation.inner");
  if (given.ring != sim::RingMode::aggregated) found.emplace_back("ring", "simulation.ring");
  if (!spec.collapsed) found.emplace_back("expanded", "collapsed");
  return found;
}

void check_simulation(const LoadedRun& run, config::Diagnostics& diagnostics) {
  const RunSpec& spec = run.spec;
  if (spec.cost != CostModel::simulator) {
    const bool flags = !spec.stragglers_at.file.empty();
    for (const auto& [flag, key] : simulated_only(spec)) {
      if (flags) {
        diagnostics.add(at_setting(flag), "a closed form simulates nothing",
                        "use --cost simulator");
      } else {
        diagnostics.add(spec.cluster.at, fmt::format("{}: a closed form simulates nothing", key),
                        "use `cost: simulator`");
      }
    }
  }
  if (spec.simulation.stragglers.empty() && spec.simulation.slow_links.empty()) return;
  const models::Topology topology(run.cluster);
  const auto check = [&](const sim::IterationOptions& part, const config::Position& at) {
    for (const std::string& what : sim::find_problems(part, run.cluster, topology)) {
      if (at.file.empty()) {
        diagnostics.add(spec.cluster.at, "simulation: " + what);
      } else {
        diagnostics.add(at, what);
      }
    }
  };
  sim::IterationOptions stragglers;
  stragglers.stragglers = spec.simulation.stragglers;
  check(stragglers, spec.stragglers_at);
  sim::IterationOptions links;
  links.slow_links = spec.simulation.slow_links;
  check(links, spec.slow_links_at);
}

/// Planners and iterations here see sequences of one length; those that take a distribution count
/// every sample as the longest, and say so.
void check_lengths(const RunSpec& spec, config::Diagnostics& diagnostics) {
  if (!spec.job.lengths) return;
  const std::string planner = spec.planner ? spec.planner->name.value : "";
  const planners::PlannerEntry* entry = planners::find_planner(planner);
  if (entry != nullptr && entry->takes_lengths) return;
  diagnostics.add(spec.job_at,
                  fmt::format("the job has `lengths`, and {} sees sequences of one length only",
                              planner.empty() ? "a plan" : "planner '" + planner + "'"),
                  "orrery mixed-length simulates steps of mixed lengths; or leave `lengths` out");
}

models::HexiscaleOptions closed_form_options(const RunSpec& spec) {
  models::HexiscaleOptions options = spec.cost == CostModel::hexiscale_public_code
                                         ? models::HexiscaleOptions::public_code()
                                         : models::HexiscaleOptions::paper();
  options.gradient_synchronizations = spec.job.gradient_synchronizations;
  return options;
}

}  // namespace

/// A closed form as a judge, without a breakdown: the forms add communication to compute.
/// (Not in the anonymous namespace: Session::State has a member of this type.)
class ClosedForm final : public models::Evaluator {
 public:
  ClosedForm(const LoadedRun& run, const models::Topology& topology)
      : run_(run),
        model_(
            run.cluster, run.workload,
            [&topology](DeviceId a, DeviceId b) { return topology.path(a, b); },
            closed_form_options(run.spec)) {}

  models::HexiscaleEstimate estimate(const ir::Plan& plan) const { return model_.estimate(plan); }
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    const models::HexiscaleEstimate estimate = model_.estimate(plan);
    models::Evaluation evaluation = models::evaluation_of(
        plan, run_.cluster, run_.workload, estimate.iteration,
        models::check_memory(plan, run_.cluster, run_.workload, run_.spec.job, run_.profile));
    evaluation.pipeline_times = estimate.pipelines;
    return evaluation;
  }
  std::string name() const override {
    for (const auto& [cost, name] : enum_names(run_.spec.cost)) {
      if (cost == run_.spec.cost) return name;
    }
    return "closed form";
  }

 private:
  const LoadedRun& run_;
  models::HexiscaleModel model_;
};

std::vector<std::string> busiest_links(const ir::RunLog& log, Seconds time) {
  std::vector<std::pair<double, const ir::LinkUse*>> order;
  for (const ir::LinkUse& use : log.links) {
    order.emplace_back(use.bytes / use.capacity / time, &use);
  }
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (order.size() > kLinksShown) order.resize(kLinksShown);
  std::vector<std::string> lines;
  for (const auto& [share, use] : order) {
    lines.push_back(fmt::format("{}: {:.1f} % of {:.3g} GB/s, {:.3f} GB", use->link, 100 * share,
                                use->capacity.value / 1e9, use->bytes.value / 1e9));
  }
  return lines;
}

namespace {

/// The busiest rank of each stage, by pipeline and stage.
std::vector<StageLoad> stage_loads(const ir::Program& program,
                                   const std::vector<ir::RankBreakdown>& ranks) {
  std::map<std::pair<int, int>, StageLoad> loads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const ir::Rank& rank = program.ranks[r];
    const ir::RankBreakdown& part = ranks[r];
    const StageLoad load{rank.pipeline,
                         rank.stage,
                         to_seconds(part.compute),
                         to_seconds(part.tensor_parallel),
                         to_seconds(part.zero),
                         to_seconds(part.pipeline + part.data_parallel),
                         to_seconds(part.bubble)};
    const auto [place, added] = loads.try_emplace({rank.pipeline, rank.stage}, load);
    if (!added && place->second.busy() < load.busy()) place->second = load;
  }
  std::vector<StageLoad> result;
  for (const auto& [key, load] : loads) result.push_back(load);
  return result;
}

}  // namespace

namespace {

/// The plan of a file, on the run's cluster.
ir::Plan place(const ReadPlan& read, const models::Library& library, LoadedRun& run,
               config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  read.report(diagnostics);
  const models::PlanFile& file = read.file;
  const std::string& path = read.path;
  if (diagnostics.problems().size() != before || !run.spec.hardware.any_cluster) return file.plan;
  if (models::made_for(file.plan.cluster_hash, run.cluster) &&
      overuse(run.spec.hardware, ir::devices_of(file.plan), run.cluster).empty()) {
    return file.plan;
  }
  config::Diagnostics ignored;  // A cluster file that is gone or has changed says nothing.
  models::Cluster own;
  if (file.made_for) {
    own = models::load_cluster(file.made_for->cluster.value, library, {}, ignored);
  }
  const bool known =
      file.made_for && ignored.empty() && models::made_for(file.plan.cluster_hash, own);
  CarriedOver carried = carry_over(file.plan, known ? &own : nullptr, run.cluster, run.devices);
  if (!carried.problem.empty()) {
    diagnostics.add({path, 0, 0}, carried.problem, "plan again, or leave --any-cluster out");
    return file.plan;
  }
  for (const std::string& line : carried.mapping) {
    run.carried_over.push_back(fmt::format("{}: {}", path, line));
  }
  return std::move(carried.plan);
}

/// RunSpec::near. What its own job allowed does not matter, nor do devices that are gone.
std::optional<ir::Plan> load_near(LoadedRun& run, const std::string& base_folder,
                                  const models::Library& library,
                                  config::Diagnostics& diagnostics) {
  const config::Located<std::string>& name = *run.spec.near;
  const planners::PlannerEntry* entry =
      run.spec.planner ? planners::find_planner(run.spec.planner->name.value) : nullptr;
  if (entry != nullptr && !entry->keeps_near) {
    diagnostics.add(name.at, fmt::format("planner '{}' keeps near no plan", entry->name),
                    "the planner orrery does");
  }
  const auto path = find_file(name, "plan", base_folder, diagnostics);
  if (!path) return std::nullopt;
  const std::size_t before = diagnostics.problems().size();
  ir::Plan plan = place(ReadPlan(*path), library, run, diagnostics);
  if (diagnostics.problems().size() != before) return std::nullopt;
  models::Job job = run.spec.job;
  job.global_batch = ir::global_batch(plan);
  job.allowed = everything_allowed(plan);
  models::report(models::validate(plan, run.cluster, run.workload, job), *path, diagnostics);
  return plan;
}

}  // namespace

std::vector<models::PlanDefect> find_missing_devices(const ir::Plan& plan,
                                                     const HardwareChanges& hardware,
                                                     const models::Cluster& cluster) {
  const std::string what = overuse(hardware, ir::devices_of(plan), cluster);
  if (what.empty()) return {};
  return {{"pipelines", "the plan uses " + what, "plan again"}};
}

ReadPlan::ReadPlan(std::string from)
    : path(std::move(from)), file(models::load_plan_file(path, problems)) {}

void ReadPlan::report(config::Diagnostics& diagnostics) const {
  for (const config::Problem& problem : problems.problems()) {
    diagnostics.add(problem.at, problem.what, problem.hint);
  }
}

LoadedRun load_run(const RunSpec& spec, const std::string& base_folder,
                   const models::Library& library, config::Diagnostics& diagnostics,
                   const ReadPlan* read) {
  const std::size_t before = diagnostics.problems().size();
  LoadedRun run;
  run.spec = spec;
  run.cluster = models::load_cluster(spec.cluster.value, library, spec.cluster.at, diagnostics);
  if (diagnostics.problems().size() == before) {
    run.devices = devices_left(spec.hardware, run.cluster, diagnostics);
    apply(spec.hardware, run.cluster, diagnostics);
  }
  run.workload =
      models::load_workload(spec.model.value, spec.job, library, spec.model.at, diagnostics);
  if (spec.planner) {
    if (spec.executable_by && knows_option(spec.planner->name.value, kTargetOption)) {
      run.spec.planner->options.try_emplace(kTargetOption, name_of_enum(*spec.executable_by));
    }
    check_planner(*run.spec.planner, diagnostics);
  }
  check_lengths(spec, diagnostics);
  LoadedProfile profile = load_profile(spec.profile, spec.scale_profile, base_folder, run.cluster,
                                       library, diagnostics);
  run.profile = std::move(profile.profile);
  run.profile_hash = std::move(profile.hash);
  std::optional<std::string> plan_path;
  if (spec.plan) plan_path = find_file(*spec.plan, "plan", base_folder, diagnostics);
  if (plan_path) {
    std::optional<ReadPlan> fresh;
    const ReadPlan& plan = read != nullptr ? *read : fresh.emplace(*plan_path);
    if (diagnostics.problems().size() == before) {
      run.plan = place(plan, library, run, diagnostics);
    } else {
      plan.report(diagnostics);
    }
  }
  if (diagnostics.problems().size() != before) return run;
  check_simulation(run, diagnostics);
  check_limits(spec, run.cluster, run.workload, run.profile, run.plan ? &*run.plan : nullptr,
               plan_path.value_or(""), diagnostics);
  if (run.plan) {
    auto defects = models::validate(*run.plan, run.cluster, run.workload, spec.job);
    if (defects.empty()) defects = models::find_unsupported(*run.plan);
    if (defects.empty()) {
      defects = find_missing_devices(*run.plan, spec.hardware, run.cluster);
    }
    models::report(defects, *plan_path, diagnostics);
  }
  if (spec.near) run.near = load_near(run, base_folder, library, diagnostics);
  return run;
}

struct Session::State {
  State(LoadedRun loaded, const models::AnswerStore* store)
      : run(std::move(loaded)), answers(store), topology(run.cluster, run.profile) {
    if (run.spec.cost != CostModel::simulator) {
      closed_form = std::make_unique<ClosedForm>(run, topology);
      return;
    }
    simulator = std::make_unique<sim::IterationSimulator>(run.cluster, topology);
    paths = std::make_unique<sim::TransferPaths>(run.cluster, topology);
    const std::string context =
        sim::transfer_context(run.cluster, run.profile, simulator->effective_config());
    timer = std::make_unique<sim::SimulatedIterationTimer>(
        *simulator, *paths, run.workload, run.spec.job, run.profile, run.spec.simulation,
        sim::CacheOptions{.answers = answers, .rename = false},
        sim::iteration_context(context, run.workload, run.spec.job, run.spec.simulation));
    evaluator = std::make_unique<sim::CachedEvaluator>(*timer);
  }
  const models::Evaluator& judge() const {
    if (closed_form) return *closed_form;
    return *evaluator;
  }
  void search(RunOutcome& outcome, const std::atomic<bool>* canceled,
              planners::SearchProgress* progress) const;
  void evaluate(const ir::Plan& plan, bool record_timeline, RunOutcome& outcome);
  void simulate(const ir::Plan& plan, bool record_timeline, RunOutcome& outcome);

  /// Everything that the report depends on.
  std::string question() const;
  std::optional<RunOutcome> find(const std::string& key) const;

  LoadedRun run;
  const models::AnswerStore* answers;
  models::Topology topology;
  std::unique_ptr<ClosedForm> closed_form;
  std::unique_ptr<sim::IterationSimulator> simulator;
  std::unique_ptr<sim::TransferPaths> paths;
  std::unique_ptr<sim::SimulatedIterationTimer> timer;
  std::unique_ptr<sim::CachedEvaluator> evaluator;
};

Session::Session(LoadedRun run, const models::AnswerStore* answers)
    : state_(std::make_unique<State>(std::move(run), answers)) {}
Session::~Session() = default;
const LoadedRun& Session::loaded() const { return state_->run; }

void Session::State::search(RunOutcome& outcome, const std::atomic<bool>* canceled,
                            planners::SearchProgress* progress) const {
  const PlannerChoice& choice = *run.spec.planner;
  const planners::PlannerEntry* entry = planners::find_planner(choice.name.value);
  ORRERY_CHECK(entry != nullptr, "planner '{}' was not checked", choice.name.value);
  const auto planner = entry->make({choice.options.begin(), choice.options.end()});
  std::optional<planners::NearPlan> near;
  if (run.near) near.emplace(planners::NearPlan{*run.near, run.spec.within});
  planners::PlannerResult result = planner->plan({.cluster = run.cluster,
                                                  .topology = topology,
                                                  .workload = run.workload,
                                                  .job = run.spec.job,
                                                  .profile = run.profile,
                                                  .evaluator = judge(),
                                                  .devices = run.devices,
                                                  .seed = run.spec.seed,
                                                  .work_budget = run.spec.work_budget,
                                                  .canceled = canceled,
                                                  .progress = progress,
                                                  .near = near});
  outcome.search = std::move(result.report);
  if (auto* infeasible = std::get_if<models::Infeasible>(&result.outcome)) {
    outcome.infeasible = std::move(*infeasible);
    return;
  }
  outcome.plan = std::move(std::get<ir::Plan>(result.outcome));
  if (run.workload.shape.experts > 0 && !planners::shares_experts(*outcome.plan)) {
    outcome.search->notes.push_back(fmt::format(
        "the plan has no expert parallelism: each tensor-parallel group holds its slice of all {} "
        "experts of a block",
        run.workload.shape.experts));
  }
  if (outcome.plan->planner.empty()) outcome.plan->planner = choice.name.value;
  if (outcome.plan->cluster_hash.empty()) outcome.plan->cluster_hash = run.cluster.hash;
  if (outcome.plan->workload_hash.empty()) outcome.plan->workload_hash = run.workload.hash;
  const auto defects = models::validate(*outcome.plan, run.cluster, run.workload, run.spec.job);
  if (const auto* module = planners::module_with(choice.name.value)) {  // not our bug
    config::Diagnostics problems;
    for (const models::PlanDefect& defect : defects) {
      problems.add({module->path, 0, 0},
                   fmt::format("planner '{}' made a plan with a defect: {}: {}", choice.name.value,
                               defect.path, defect.what),
                   defect.hint);
    }
    problems.raise();
  }
  ORRERY_CHECK(defects.empty(), "planner '{}' made a plan with a defect: {}: {}", choice.name.value,
               defects.front().path, defects.front().what);
  if (!run.spec.executable_by) return;
  const auto reasons =
      models::reasons_against(*run.spec.executable_by, *outcome.plan, run.cluster, run.workload);
  if (reasons.empty()) return;
  outcome.infeasible = models::Infeasible{
      fmt::format("executable by {}", name_of_enum(*run.spec.executable_by)),
      fmt::format("its plan, {}, has {}", planners::in_words(*outcome.plan, run.workload),
                  fmt::join(reasons, "; "))};
  outcome.plan.reset();
}

void Session::State::simulate(const ir::Plan& plan, bool record_timeline, RunOutcome& outcome) {
  sim::IterationOptions options = run.spec.simulation;
  options.record_spans = options.record_memory = record_timeline;
  options.record_links = true;
  sim::FoldedIteration iteration(plan, run.cluster, topology, run.workload, run.spec.job,
                                 {.collapsed = run.spec.collapsed, .seed = run.spec.seed}, options);
  // A pricer of its own: it names the entries that this plan used, not those of a whole search.
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  const models::ProgramPrices prices(iteration.program(), pricer);
  sim::IterationResult result = simulator->run(iteration, prices, pricer, options);
  outcome.ops = iteration.whole_ops();
  outcome.program = iteration.take_program();
  ir::MemoryVerdict verdict =
      sim::memory_verdict(plan, outcome.program, result.peak_memory, run.cluster, run.workload,
                          run.spec.job, run.profile);
  outcome.evaluation =
      sim::evaluation_from(result, plan, run.cluster, run.workload, std::move(verdict));
  outcome.log = std::move(result.log);
  if (record_timeline) {
    outcome.program.header.plan_hash = models::plan_hash(plan);
    outcome.log.program_hash = ir::program_hash(outcome.program);
  }
  outcome.prices = pricer.used_entries();
  outcome.busiest_links = busiest_links(outcome.log, result.iteration_time);
  outcome.stages = stage_loads(outcome.program, result.ranks);
  outcome.simgrid = simulator->effective_config();
  outcome.ranks = static_cast<std::int64_t>(outcome.program.ranks.size());
  outcome.simulated_pipelines = result.simulated_pipelines;
}

void Session::State::evaluate(const ir::Plan& plan, bool record_timeline, RunOutcome& outcome) {
  const Clock::time_point start = Clock::now();
  if (closed_form) {
    outcome.evaluation = closed_form->evaluate(plan);
    outcome.evaluation->synchronization = closed_form->estimate(plan).data_parallel;
    outcome.prices = {"closed form '" + closed_form->name() + "': no profile is used"};
  } else {
    simulate(plan, record_timeline, outcome);
  }
  outcome.evaluation_seconds = seconds_since(start);
}

std::string Session::State::question() const {
  ByteWriter out;
  out.put(std::string_view("report"));
  for (const std::string& part : {config::dump(run.spec), run.cluster.hash, run.cluster.power_hash,
                                  run.workload.hash, run.profile_hash}) {
    out.put(std::string_view(part));
  }
  if (run.plan) models::put(out, *run.plan);
  if (run.near) models::put(out, *run.near);
  if (run.spec.planner) {
    out.put(std::string_view(version_of(parts_of_planner(run.spec.planner->name.value))));
  }
  if (simulator) {
    for (const auto& [name, value] : simulator->effective_config()) {
      out.put(std::string_view(name));
      out.put(std::string_view(value));
    }
  }
  return content_digest(out.bytes());
}

std::optional<RunOutcome> Session::State::find(const std::string& key) const {
  const std::optional<std::string> text = answers->find(key);
  if (!text) return std::nullopt;
  config::Diagnostics problems;
  RunOutcome outcome;
  static_cast<RunReport&>(outcome) = config::load_text<RunReport>(*text, "report", problems);
  if (!problems.empty()) return std::nullopt;
  if (outcome.evaluation && simulator) outcome.simgrid = simulator->effective_config();
  return outcome;
}

RunOutcome Session::execute(bool record_timeline, const std::atomic<bool>* canceled,
                            planners::SearchProgress* progress) {
  if (record_timeline || state_->answers == nullptr) {
    return carry_out(record_timeline, canceled, progress);
  }
  const Clock::time_point start = Clock::now();
  const std::string key = state_->question();
  if (auto known = state_->find(key)) {
    known->planning_seconds = seconds_since(start);
    return std::move(*known);
  }
  RunOutcome outcome = carry_out(record_timeline, canceled, progress);
  const bool cut_short = canceled != nullptr && *canceled;
  if (!cut_short) state_->answers->keep(key, config::dump<RunReport>(outcome));
  return outcome;
}

RunOutcome Session::carry_out(bool record_timeline, const std::atomic<bool>* canceled,
                              planners::SearchProgress* progress) {
  RunOutcome outcome;
  if (state_->run.plan) {
    outcome.plan = state_->run.plan;
  } else {
    ORRERY_CHECK(state_->run.spec.planner.has_value(), "a run without planner and plan");
    const Clock::time_point start = Clock::now();
    state_->search(outcome, canceled, progress);
    outcome.planning_seconds = seconds_since(start);
  }
  if (outcome.plan) state_->evaluate(*outcome.plan, record_timeline, outcome);
  return outcome;
}

RunOutcome Session::judge(const ir::Plan& plan, bool record_timeline) {
  RunOutcome outcome;
  outcome.plan = plan;
  state_->evaluate(plan, record_timeline, outcome);
  return outcome;
}

void describe(config::Visitor& v, StageLoad& stage) {
  v.title("Stage");
  v.required("pipeline", stage.pipeline, "");
  v.required("stage", stage.stage, "");
  v.required("compute_seconds", stage.compute, "of the busiest GPU, as all below");
  v.required("tensor_parallel_seconds", stage.tensor_parallel,
             "inner collectives: tensor, sequence and expert parallelism");
  v.required("zero_seconds", stage.zero, "gathers of sharded parameters in passes (ZeRO-3)");
  v.required("transfer_seconds", stage.transfers, "exposed transfers and synchronization");
  v.required("bubble_seconds", stage.bubble, "idle");
}

void describe(config::Visitor& v, RunReport& report) {
  v.title("Report");
  v.required("name", report.name, "planner or plan file");
  v.optional("infeasible", report.infeasible, "instead of a plan");
  v.optional("evaluation", report.evaluation, "of the plan");
  v.optional("search", report.search, "of the planner");
  v.required("stages", report.stages, "of the simulation, by pipeline and stage");
  v.required("busiest_links", report.busiest_links, "");
  v.required("prices", report.prices, "where op times come from");
  v.required("ranks", report.ranks, "of the simulated program");
  v.required("ops", report.ops, "of the simulated program");
  v.required("simulated_pipelines", report.simulated_pipelines,
             "each of the others did the same as one of these");
  v.optional("plan", report.plan, "");
}

}  // namespace orrery::experiments
