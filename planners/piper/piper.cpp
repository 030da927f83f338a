// Piper: one pipeline whose stages each have a tensor and a data degree; a dynamic program over
// (prefix of the layers, devices, sum of data degrees) minimizes the largest time per sample, and a
// knapsack inside each stage recomputes as few layers as memory asks for. Sees a mixed cluster as
// uniform (uniform_view.h), with one flat bandwidth for stages and replicas.
// [Tarnawski et al., NeurIPS 2021, sections 3 and 4; public code]
// Deviation: a stage with d replicas gets every d-th micro-batch in Piper; here its d groups share
// each micro-batch of the plan, which is a round of lcm(d) micro-batches of Piper. Times and
// Piper's own memory count are kept, but stages of unequal degree then hold more than Piper counts:
// see option `memory`.
// Deviation: tensor degrees are powers of two, as in the paper's experiments, so that groups always
// pack into hosts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "models/schedule/schedule.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"
#include "planners/piper/stages.h"

namespace orrery::planners {

extern const PlannerEntry kPiper;

namespace {

constexpr const char* kMemory = "device memory";  // As Ranking calls it.
constexpr const char* kStages = "stages";

std::vector<OptionInfo> options() {
  return {
      {"micro_batch_size", "0",
       "Samples that a group computes at once, an input of the paper. 0: every divisor of the "
       "global batch up to the job's largest micro-batch."},
      {"gpus_per_host", "0",
       "GPUs of a host, a power of two: the largest tensor degree; larger nodes are cut, what does "
       "not fill a host stays idle. 0: each power of two up to the largest node, without those "
       "that use no more devices than twice their size does."},
      {"memory", "paper",
       "Activations that a replica holds. paper: ceil(s / d) micro-batches, s the data degrees "
       "from its stage on [NeurIPS 2021, section 3], the sum of all d at most the micro-batches; "
       "if "
       "no plan found so fits, then as plan. plan: what the returned plan holds, rounds of lcm(d) "
       "micro-batches shared by d groups."},
      {"recompute", "per_layer",
       "per_layer: as many layers as needed, cheapest per byte first [NeurIPS 2021, section 4.2]; "
       "all_or_none: of a stage; never. The last two are ablations of the paper's experiments."},
      {"tensor_parallel", "yes", "no: ablation of the paper's experiments, tensor degree 1."},
      {"data_parallel", "yes", "no: ablation of the paper's experiments, data degree 1."},
      {"speed", "average",
       "Time of a computation on the uniform GPU. average: mean over the devices; slowest: of the "
       "slowest type."},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best estimates first; 1: the estimate decides, as in the "
       "paper; 0: all."},
  };
}

class Piper final : public Planner {
 public:
  explicit Piper(PiperSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  PiperSettings settings_;
};

/// A stage of a plan, free of the tables it came from.
struct Stage {
  int first = 0;
  std::vector<char> recomputed;  ///< By layer of the stage.
  PiperDegrees degrees;
  std::vector<DeviceId> devices;
  int layers() const { return static_cast<int>(recomputed.size()); }
};

struct Made {
  std::vector<Stage> stages;
  int micro_batch_size = 1;  ///< Piper's.
  int round = 1;             ///< lcm of the data degrees.
  std::int64_t micro_batches = 1;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  ir::Recompute keeping = ir::Recompute::none;
  ir::Recompute recomputing = ir::Recompute::full;
};

/// One run under one count of memory.
class Search {
 public:
  Search(const PlannerInput& input, const PiperSettings& settings, PiperMemory memory,
         SearchReport report)
      : input_(input),
        settings_(settings),
        memory_model_(memory),
        costs_(input),
        ranking_(input),
        report_(std::move(report)) {}
  PlannerResult run();

 private:
  bool usable();
  std::vector<std::int64_t> micro_batch_sizes() const;
  void sweep(int gpus_per_host);
  void search(const UniformView& view, const PiperCase& what);
  void remember_memory(const PiperStages& stages, const UniformView& view, const PiperCase& what);
  bool proceed();
  void offer(const ChainPick& pick, PiperStages& stages, const UniformView& view,
             const PiperCase& what);
  ir::Plan build(const Made& made) const;
  static std::string describe(const Made& made);

  const PlannerInput& input_;
  const PiperSettings& settings_;
  PiperMemory memory_model_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  models::Infeasible none_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  ConstraintCost memory_{kMemory, 0, std::nullopt, ""};
  Bytes least_excess_;
  std::set<std::string> offered_;
};

bool Search::proceed() {
  if (canceled(input_) || (input_.work_budget > 0 && report_.work >= input_.work_budget)) {
    report_.complete = false;
    return false;
  }
  ++report_.work;
  return true;
}

bool Search::usable() {
  const auto schedule = models::preferred_schedule(input_.job.allowed.schedules);
  if (!schedule) {
    none_ = {"schedule", "the job allows no schedule without virtual stages"};
    return false;
  }
  schedule_ = *schedule;
  if (input_.job.allowed.recompute.empty() || input_.job.allowed.zero_stages.empty()) {
    none_ = {"job", "the job allows no recompute setting or no ZeRO stage"};
    return false;
  }
  if (input_.devices.empty() || costs_.layers() < 1 || input_.job.global_batch < 1) {
    none_ = {"input", fmt::format("{} devices, {} layers, a batch of {}", input_.devices.size(),
                                  costs_.layers(), input_.job.global_batch)};
    return false;
  }
  if (micro_batch_sizes().empty()) {
    none_ = {"micro-batches",
             fmt::format("micro-batches of {} do not divide a batch of {} or exceed the {} that "
                         "the job allows",
                         settings_.micro_batch_size, input_.job.global_batch,
                         input_.job.allowed.max_micro_batch_size)};
    return false;
  }
  none_ = {kStages, "the search was ended before the first plan"};
  return true;
}

std::vector<std::int64_t> Search::micro_batch_sizes() const {
  std::vector<std::int64_t> sizes;
  for (const std::int64_t size : divisors(input_.job.global_batch)) {
    if (size > input_.job.allowed.max_micro_batch_size) break;
    if (input_.job.global_batch / size > std::numeric_limits<int>::max()) continue;
    if (settings_.micro_batch_size == 0 || size == settings_.micro_batch_size) {
      sizes.push_back(size);
    }
  }
  return sizes;
}

void Search::sweep(int gpus_per_host) {
  const UniformView view(input_, costs_, gpus_per_host, settings_.speed);
  if (view.devices() == 0) return;
  if (view.devices() < std::ssize(input_.devices)) {
    report_.notes.push_back(fmt::format("hosts of {}: {} of {} GPUs, the rest fills no host",
                                        gpus_per_host, view.devices(), input_.devices.size()));
  }
  for (const std::int64_t size : micro_batch_sizes()) {
    const std::int64_t count = input_.job.global_batch / size;
    for (const std::int64_t round : divisors(count)) {
      if (round > view.devices() || (round > 1 && !settings_.data)) break;
      if (!report_.complete) return;
      search(view,
             {static_cast<int>(size), count, static_cast<int>(round), memory_model_, schedule_});
    }
  }
}

void Search::search(const UniformView& view, const PiperCase& what) {
  if (canceled(input_)) report_.complete = false;
  PiperStages stages(input_, costs_, view, settings_, what);
  if (!report_.complete || stages.choices().empty()) return;
  const StageChain chain(
      costs_.layers(), stages.choices(), view.devices(), stages.most_load(),
      [&](int first, int last, int choice) { return stages.steps(first, last, choice); });
  remember_memory(stages, view, what);
  const ChainSearch found = least_bottleneck(chain, [&] { return proceed(); });
  if (!found.complete) report_.complete = false;
  if (found.best) offer(*found.best, stages, view, what);
}

void Search::remember_memory(const PiperStages& stages, const UniformView& view,
                             const PiperCase& what) {
  memory_.rejected += stages.rejected();
  const auto [need, layer] = stages.hardest_layer();
  const Bytes excess = need - view.capacity();
  if (excess <= Bytes{} || (!memory_.witness.empty() && excess >= least_excess_)) return;
  least_excess_ = excess;
  memory_.witness = fmt::format(
      "micro-batches of {} in rounds of {}: layer {} alone needs {:.2f} GiB under the degrees that "
      "suit it best, {} has {:.2f} GiB for it",
      what.micro_batch_size, what.round, layer, need.value / 0x1p30, view.smallest_gpu(),
      std::max(0.0, view.capacity().value / 0x1p30));
}

void Search::offer(const ChainPick& pick, PiperStages& stages, const UniformView& view,
                   const PiperCase& what) {
  ++report_.plans_examined;
  const Seconds estimate{pick.largest * static_cast<double>(what.micro_batches)};
  if (!ranking_.wants(estimate)) return;
  Made made;
  std::vector<int> sizes;
  std::vector<int> units;
  for (const StagePick& stage : pick.stages) {
    const PiperDegrees& degrees = stages.degrees(stage.choice);
    sizes.push_back(degrees.tensor * degrees.data);
    units.push_back(degrees.tensor);
    made.round = std::lcm(made.round, degrees.data);
  }
  // Larger tensor degrees first, so that no group straddles hosts.
  const auto devices = place_stages(view, sizes, units);
  for (std::size_t s = 0; s < pick.stages.size(); ++s) {
    const StagePick& stage = pick.stages[s];
    made.stages.push_back({stage.first,
                           stages.recomputed(stage.first, stage.last, stage.choice, stage.variant),
                           stages.degrees(stage.choice), devices[s]});
  }
  made.micro_batch_size = what.micro_batch_size;
  made.micro_batches = what.micro_batches;
  made.schedule = what.schedule;
  made.keeping = stages.keeping();
  made.recomputing = stages.recomputing();
  // Rounds that are multiples of one another find the same plan.
  if (!offered_.insert(fmt::format("{} {}", view.gpus_per_host(), describe(made))).second) return;
  ranking_.offer(
      estimate, [this, made] { return build(made); }, [made] { return describe(made); });
}

ir::Plan Search::build(const Made& made) const {
  ir::Plan plan;
  plan.schedule = made.schedule;
  plan.communication.activation_transfer = ir::ActivationTransfer::leader_broadcast;
  ir::Pipeline chain;
  chain.micro_batch_size = made.micro_batch_size * made.round;
  chain.micro_batches = static_cast<int>(made.micro_batches / made.round);
  for (const Stage& own : made.stages) {
    std::vector<ir::Group> groups;
    for (int g = 0; g < own.degrees.data; ++g) {
      ir::Group group;
      const auto begin = own.devices.begin() + static_cast<std::ptrdiff_t>(g) * own.degrees.tensor;
      group.devices.assign(begin, begin + own.degrees.tensor);
      group.tensor_parallel = own.degrees.tensor;
      group.samples = chain.micro_batch_size / own.degrees.data;
      groups.push_back(std::move(group));
    }
    ir::Stage stage;
    for (int from = 0; from < own.layers();) {
      int end = from;
      const char again = own.recomputed[static_cast<std::size_t>(from)];
      while (end < own.layers() && own.recomputed[static_cast<std::size_t>(end)] == again) ++end;
      ir::Segment segment = segment_of_layers(input_.workload, own.first + from, end - from);
      segment.groups = groups;
      segment.recompute = again != 0 ? made.recomputing : made.keeping;
      segment.zero.stage = smallest_zero_stage(input_.job);
      stage.segments.push_back(std::move(segment));
      from = end;
    }
    chain.stages.push_back(std::move(stage));
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
}

std::string Search::describe(const Made& made) {
  std::vector<std::string> runs;
  const auto recomputed = [](const Stage& stage) {
    return std::count(stage.recomputed.begin(), stage.recomputed.end(), 1);
  };
  for (std::size_t s = 0; s < made.stages.size();) {
    const Stage& one = made.stages[s];
    std::size_t end = s;
    const auto same = [&](const Stage& other) {
      return other.layers() == one.layers() && other.degrees.data == one.degrees.data &&
             other.degrees.tensor == one.degrees.tensor && recomputed(other) == recomputed(one);
    };
    while (end < made.stages.size() && same(made.stages[end])) ++end;
    std::string text = fmt::format("{} layers on DP {} x TP {}", one.layers(), one.degrees.data,
                                   one.degrees.tensor);
    if (recomputed(one) > 0) text += fmt::format(", {} recomputed", recomputed(one));
    runs.push_back(end - s > 1 ? fmt::format("{} times {}", end - s, text) : text);
    s = end;
  }
  return fmt::format("PP {} ({}), {} micro-batches of {} in rounds of {}", made.stages.size(),
                     fmt::join(runs, "; "), made.micro_batches, made.micro_batch_size, made.round);
}

PlannerResult Search::run() {
  report_.work_unit = "tables";
  if (!usable()) return {none_, report_};
  std::vector<int> sizes = host_sizes(input_);
  if (settings_.gpus_per_host > 0) sizes = {settings_.gpus_per_host};
  for (const int size : sizes) {
    if (report_.complete) sweep(size);
  }
  if (memory_.rejected > 0) report_.constraints.push_back(memory_);
  if (report_.complete) {
    none_ = {kStages,
             fmt::format("no chain of stages over {} devices (hosts of {}) shares {} layers and a "
                         "batch of {}",
                         input_.devices.size(), fmt::join(sizes, " or "), costs_.layers(),
                         input_.job.global_batch)};
    if (memory_.rejected > 0) {
      none_ = {kMemory, memory_.witness.empty()
                            ? "every layer fits alone, but no chain of stages holds all "
                              "layers with the activations of the stages ahead"
                            : memory_.witness};
    }
  }
  return ranking_.finish(kPiper.name, settings_.evaluate_top, std::move(report_), none_);
}

PlannerResult Piper::plan(const PlannerInput& input) const {
  PlannerResult first = Search(input, settings_, settings_.memory, {}).run();
  const SearchReport& report = first.report;
  const auto* no = std::get_if<models::Infeasible>(&first.outcome);
  const bool searched = no != nullptr && (no->constraint == kMemory || no->constraint == kStages);
  if (!searched || settings_.memory == PiperMemory::plan || !report.complete) return first;
  SearchReport again;
  again.plans_examined = report.plans_examined;
  again.rejected_by_memory = report.rejected_by_memory;
  again.work = report.work;
  again.constraints = report.constraints;
  again.notes.emplace_back(
      "no plan within the paper's bounds (activations, data degrees) fits as a plan: searched "
      "again "
      "with what a plan holds");
  return Search(input, settings_, PiperMemory::plan, std::move(again)).run();
}

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  PiperSettings settings;
  settings.micro_batch_size = static_cast<int>(reader.integer("micro_batch_size", 0, 1'000'000));
  settings.gpus_per_host = static_cast<int>(reader.integer("gpus_per_host", 0, 1 << 20));
  settings.memory = reader.choice<PiperMemory>(
      "memory", {{"paper", PiperMemory::paper}, {"plan", PiperMemory::plan}});
  settings.recompute =
      reader.choice<PiperRecompute>("recompute", {{"per_layer", PiperRecompute::per_layer},
                                                  {"all_or_none", PiperRecompute::all_or_none},
                                                  {"never", PiperRecompute::never}});
  settings.tensor = reader.choice<bool>("tensor_parallel", {{"yes", true}, {"no", false}});
  settings.data = reader.choice<bool>("data_parallel", {{"yes", true}, {"no", false}});
  settings.speed = reader.choice<ViewedSpeed>(
      "speed", {{"average", ViewedSpeed::average}, {"slowest", ViewedSpeed::slowest}});
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  if (settings.gpus_per_host > 0 && !is_power_of_two(settings.gpus_per_host)) {
    return PlannerEntry::BadOption{"gpus_per_host",
                                   fmt::format("{} is not a power of two", settings.gpus_per_host)};
  }
  return std::make_unique<Piper>(settings);
}

}  // namespace

const PlannerEntry kPiper = {
    "piper",
    "Tarnawski et al. 2021 (Piper, NeurIPS), sections 3 and 4",
    "cuts of the layers into one pipeline x tensor and data degree of each stage x layers to "
    "recompute x micro-batch size, at most all devices",
    "differences between devices and between links (means over the cluster, one flat bandwidth), "
    "latency, filling and draining of the pipeline, several pipelines",
    options,
    make,
};

}  // namespace orrery::planners
