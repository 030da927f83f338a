// Piper: one pipeline whose stages each have a tensor and a data degree; a dynamic program over
// (prefix of the layers, devices, sum of data degrees) minimizes the largest time per sample, and a
// knapsack inside each stage recomputes as few layers as memory asks for. A mixed cluster is seen
// as uniform (uniform_view.h), with one flat bandwidth for stages and replicas. [Tarnawski et al.,
// NeurIPS 2021, sections 3 and 4; public code] Deviation: a stage with d replicas gets every d-th
// micro-batch in Piper; here its d groups share each micro-batch of the plan, which is a round of
// lcm(d) micro-batches of Piper. Times and Piper's own memory count are kept, but stages of unequal
// degree then hold more than Piper counts: see the setting `memory`. Deviation: tensor degrees are
// powers of two, as in the paper's experiments, so that groups always pack into hosts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/settings.h"
#include "planners/piper/stages.h"

namespace orrery::planners {

ir::EnumNames<PiperMemory> enum_names(PiperMemory) {
  return {{PiperMemory::paper, "paper"}, {PiperMemory::plan, "plan"}};
}
ir::EnumNames<PiperRecompute> enum_names(PiperRecompute) {
  return {{PiperRecompute::per_layer, "per_layer"},
          {PiperRecompute::all_or_none, "all_or_none"},
          {PiperRecompute::never, "never"}};
}

void describe(config::Visitor& v, PiperSettings& s) {
  v.optional(
      "micro_batch_size", s.micro_batch_size,
      "Samples that a group computes at once, an input of the paper. 0: every divisor of the "
      "global batch up to the job's largest micro-batch.");
  v.optional(
      "gpus_per_host", s.gpus_per_host,
      "GPUs of a host, a power of two: the largest tensor degree; larger nodes are cut, what "
      "does not fill a host stays idle. 0: each power of two up to the largest node, without "
      "those that use no more devices than twice their size does.");
  v.optional(
      "memory", s.memory,
      "Activations that a replica holds. paper: ceil(s / d) micro-batches, s the data degrees "
      "from its stage on [NeurIPS 2021, section 3], the sum of all d at most the "
      "micro-batches; if no plan found so fits, then as plan. plan: what the returned plan "
      "holds, rounds of lcm(d) micro-batches shared by d groups.");
  v.optional("recompute", s.recompute,
             "per_layer: as many layers as needed, cheapest per byte first [NeurIPS 2021, section "
             "4.2]; all_or_none: of a stage; never. The last two are ablations of the paper's "
             "experiments.");
  v.optional("tensor_parallel", s.tensor,
             "no: ablation of the paper's experiments, tensor degree 1.");
  v.optional("data_parallel", s.data, "no: ablation of the paper's experiments, data degree 1.");
  v.optional(
      "speed", s.speed,
      "Time of a computation on the uniform GPU. average: mean over the devices; slowest: of "
      "the slowest type.");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best estimates first; 1: the estimate decides, as in "
      "the paper; 0: all.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  check_host_size(v, s);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

constexpr const char* kPiperStages = "stages";

/// A stage of a plan, free of the tables it came from.
struct PiperStage {
  int first = 0;
  std::vector<char> recomputed;  ///< By layer of the stage.
  PiperDegrees degrees;
  std::vector<DeviceId> devices;
  int layers() const { return static_cast<int>(recomputed.size()); }
};

struct PiperChain {
  std::vector<PiperStage> stages;
  int micro_batch_size = 1;  ///< Piper's.
  int round = 1;             ///< lcm of the data degrees.
  std::int64_t micro_batches = 1;
  ir::ScheduleKind schedule = ir::ScheduleKind::one_f_one_b;
  ir::Recompute keeping = ir::Recompute::none;
  ir::Recompute recomputing = ir::Recompute::full;
};

/// One run under one count of memory.
class PiperSearch final : public UniformChainSearch {
 public:
  /// `report`: what earlier runs did.
  PiperSearch(const PlannerInput& input, const PiperSettings& settings, PiperMemory memory,
              SearchReport report)
      : UniformChainSearch(
            input, settings,
            {"piper", kPiperStages, "a batch", "under the degrees that suit it best"}),
        settings_(settings),
        memory_model_(memory) {
    report_ = std::move(report);
  }

 private:
  std::vector<std::int64_t> micro_batch_sizes() const;
  std::optional<models::Infeasible> refuse() const override;
  void sweep(const UniformView& view) override;
  void search(const UniformView& view, const PiperCase& what);
  void offer(const ChainPick& pick, PiperStages& stages, const UniformView& view,
             const PiperCase& what);
  ir::Plan build(const PiperChain& made) const;
  static std::string describe_plan(const PiperChain& made);

  const PiperSettings& settings_;
  PiperMemory memory_model_;
  std::set<std::string> offered_;
};

std::vector<std::int64_t> PiperSearch::micro_batch_sizes() const {
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

std::optional<models::Infeasible> PiperSearch::refuse() const {
  if (!micro_batch_sizes().empty()) return std::nullopt;
  return models::Infeasible{
      "micro-batches",
      fmt::format("micro-batches of {} do not divide a batch of {} or exceed the {} that the job "
                  "allows",
                  settings_.micro_batch_size, input_.job.global_batch,
                  input_.job.allowed.max_micro_batch_size)};
}

void PiperSearch::sweep(const UniformView& view) {
  for (const std::int64_t size : micro_batch_sizes()) {
    const std::int64_t count = input_.job.global_batch / size;
    for (const std::int64_t round : divisors(count)) {
      if (round > view.devices() || (round > 1 && !settings_.data)) break;
      if (canceled(input_)) report_.complete = false;
      if (!report_.complete) return;
      search(view,
             {static_cast<int>(size), count, static_cast<int>(round), memory_model_, schedule_});
    }
  }
}

void PiperSearch::search(const UniformView& view, const PiperCase& what) {
  PiperStages stages(input_, costs_, view, settings_, what);
  if (stages.choices().empty()) return;
  const StageChain chain(
      costs_.layers(), stages.choices(), view.devices(), stages.most_load(),
      [&](int first, int last, int choice) { return stages.steps(first, last, choice); });
  note_memory(stages, view, [&] {
    return fmt::format("micro-batches of {} in rounds of {}", what.micro_batch_size, what.round);
  });
  const ChainSearch found = least_bottleneck(chain, [&] { return proceed(); });
  if (!found.complete) report_.complete = false;
  if (found.best) offer(*found.best, stages, view, what);
}

void PiperSearch::offer(const ChainPick& pick, PiperStages& stages, const UniformView& view,
                        const PiperCase& what) {
  ++report_.plans_examined;
  const Seconds estimate{pick.largest * static_cast<double>(what.micro_batches)};
  if (!ranking_.wants(estimate)) return;
  PiperChain made;
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
  const std::string name = fmt::format("{} {}", view.gpus_per_host(), describe_plan(made));
  if (!offered_.insert(name).second) return;
  ranking_.offer(
      estimate, [this, made] { return build(made); }, [made] { return describe_plan(made); });
}

ir::Plan PiperSearch::build(const PiperChain& made) const {
  ir::Plan plan;
  plan.schedule = made.schedule;
  plan.communication.activation_transfer = ir::ActivationTransfer::leader_broadcast;
  ir::Pipeline& chain = plan.pipelines.emplace_back();
  chain.micro_batch_size = made.micro_batch_size * made.round;
  chain.micro_batches = static_cast<int>(made.micro_batches / made.round);
  for (const PiperStage& own : made.stages) {
    const std::vector<ir::Group> groups =
        tensor_groups(own.devices, own.degrees.tensor, chain.micro_batch_size / own.degrees.data);
    ir::Stage& stage = chain.stages.emplace_back();
    for (int from = 0; from < own.layers();) {
      int end = from;
      const char again = own.recomputed[from];
      while (end < own.layers() && own.recomputed[end] == again) ++end;
      stage.segments.push_back(segment_of_layers(
          input_.workload, own.first + from, end - from, groups,
          again != 0 ? made.recomputing : made.keeping, smallest_zero_stage(input_.job)));
      from = end;
    }
  }
  return plan;
}

std::string PiperSearch::describe_plan(const PiperChain& made) {
  std::vector<std::string> texts;
  for (const PiperStage& one : made.stages) {
    texts.push_back(fmt::format("{} layers on DP {} x TP {}", one.layers(), one.degrees.data,
                                one.degrees.tensor));
    const auto recomputed = std::count(one.recomputed.begin(), one.recomputed.end(), 1);
    if (recomputed > 0) texts.back() += fmt::format(", {} recomputed", recomputed);
  }
  return fmt::format("PP {} ({}), {} micro-batches of {} in rounds of {}", made.stages.size(),
                     fmt::join(count_repeats(texts), "; "), made.micro_batches,
                     made.micro_batch_size, made.round);
}

class Piper final : public Planner {
 public:
  using Settings = PiperSettings;
  explicit Piper(PiperSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  PiperSettings settings_;
};

PlannerResult Piper::plan(const PlannerInput& input) const {
  PlannerResult first = PiperSearch(input, settings_, settings_.memory, {}).run();
  const SearchReport& report = first.report;
  const auto* no = std::get_if<models::Infeasible>(&first.outcome);
  const bool searched =
      no != nullptr && (no->constraint == kDeviceMemory || no->constraint == kPiperStages);
  if (!searched || settings_.memory == PiperMemory::plan || !report.complete) return first;
  SearchReport again;
  again.plans_examined = report.plans_examined;
  again.rejected_by_memory = report.rejected_by_memory;
  again.work = report.work;
  again.constraints = report.constraints;
  again.notes.emplace_back(
      "no plan within the paper's bounds (activations, data degrees) fits as a plan: searched "
      "again with what a plan holds");
  return PiperSearch(input, settings_, PiperMemory::plan, std::move(again)).run();
}

}  // namespace

extern const PlannerEntry kPiper;

const PlannerEntry kPiper = planner_entry<Piper>(
    "piper", "Tarnawski et al. 2021 (Piper, NeurIPS), sections 3 and 4",
    "cuts of the layers into one pipeline x tensor and data degree of each stage x layers to "
    "recompute x micro-batch size, at most all devices",
    "differences between devices and between links (means over the cluster, one flat bandwidth), "
    "latency, filling and draining of the pipeline, several pipelines");

}  // namespace orrery::planners
