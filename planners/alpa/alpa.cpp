// Alpa: one pipeline whose stages run on submeshes of a hosts x GPUs grid; a dynamic program over
// layers cuts stages and hands out submeshes, and inside a stage the best logical data x tensor
// shape is taken. Sees a mixed cluster as uniform (uniform_view.h).
// [Zheng et al., OSDI 2022, sections 4 and 5, Algorithm 1; public code's stage construction]
// Deviation: inside a stage Alpa solves an integer program over the sharding of every operator.
// Blocks here are transformer layers, whose shardings are batch and tensor splits, so that the best
// of a submesh is the best of its few logical shapes (data x tensor, ZeRO stage), which are tried.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "models/ir/names.h"
#include "models/schedule/schedule.h"
#include "planners/alpa/stages.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/options.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/ranking.h"

namespace orrery::planners {

extern const PlannerEntry kAlpa;

namespace {

std::vector<OptionInfo> options() {
  return {
      {"micro_batches", "0",
       "Micro-batches per step, the hyper-parameter B. 0: every divisor of the global batch is "
       "tried, as the paper proposes [OSDI 2022, section 7]; else this one, a divisor of the "
       "global batch (by hand, as in Alpa's and Metis's runs [Metis, Table 1])."},
      {"gpus_per_host", "0",
       "GPUs of a host of the grid, a power of two; larger nodes are cut, what does not fill a "
       "host stays idle. 0: each power of two up to the largest node, without those that use no "
       "more devices than twice their size does; the best estimate wins."},
      {"submeshes", "all",
       "Submeshes of several hosts. all: any number of hosts, (2, M), (3, M), ... (N, M) [OSDI "
       "2022, section 5.1]; power_of_two: 2, 4, 8, ... hosts (default of the public code); "
       "small_power_of_two: at most 4 hosts (public code). Inside a host always 1, 2, 4, ... "
       "GPUs."},
      {"logical_shapes", "single_node_model_parallel",
       "Logical shapes data x tensor of a submesh. single_node_model_parallel: tensor degrees up "
       "to a host (default of the public code); same_as_physical: tensor over the GPUs of a host, "
       "data over hosts; data_parallel_only. [public code]"},
      {"speed", "average",
       "Time of a computation on the uniform GPU. average: mean over the devices, as Metis's "
       "baseline runs [Metis, section 3]; slowest: of the slowest type."},
      {"gap", "1e-6",
       "Seconds between caps on the largest stage cost; the plan is at most micro-batches x gap "
       "from the optimum [OSDI 2022, section 5.2]. 0: exact."},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best estimates first; 1: the estimate decides, as in the "
       "paper; 0: all."},
  };
}

class Alpa final : public Planner {
 public:
  explicit Alpa(AlpaSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override;

 private:
  AlpaSettings settings_;
};

/// A stage of a plan, free of the tables it came from.
struct Stage {
  int first = 0;
  int layers = 0;
  AlpaShape shape;
  std::vector<DeviceId> devices;
};

class Search {
 public:
  Search(const PlannerInput& input, const AlpaSettings& settings)
      : input_(input), settings_(settings), costs_(input), ranking_(input) {}
  PlannerResult run();

 private:
  bool usable();
  std::vector<std::int64_t> micro_batches() const;
  void sweep(int gpus_per_host);
  void search(const UniformView& view, const AlpaCase& what);
  void remember_memory(const AlpaStages& stages, const UniformView& view, const AlpaCase& what);
  bool proceed();
  void offer(const ChainPick& pick, const AlpaStages& stages, const UniformView& view,
             const AlpaCase& what);
  ir::Plan build(const std::vector<Stage>& stages, const AlpaCase& what) const;
  static std::string describe(const std::vector<Stage>& stages, const AlpaCase& what);

  const PlannerInput& input_;
  const AlpaSettings& settings_;
  StageCosts costs_;
  Ranking ranking_;
  SearchReport report_;
  models::Infeasible none_;
  ir::ScheduleKind schedule_ = ir::ScheduleKind::one_f_one_b;
  ConstraintCost memory_{"device memory", 0, std::nullopt, ""};
  Bytes least_excess_;
};

bool Search::proceed() {
  if (canceled(input_) || (input_.work_budget > 0 && report_.work >= input_.work_budget)) {
    report_.complete = false;
    return false;
  }
  ++report_.work;
  return true;
}

/// There is something to search: none_ says what is missing.
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
  if (micro_batches().empty()) {
    none_ = {"micro-batches", fmt::format("{} micro-batches do not divide a batch of {}",
                                          settings_.micro_batches, input_.job.global_batch)};
    return false;
  }
  none_ = {"submeshes", "the search was ended before the first plan"};
  return true;
}

std::vector<std::int64_t> Search::micro_batches() const {
  if (settings_.micro_batches == 0) return divisors(input_.job.global_batch);
  if (input_.job.global_batch % settings_.micro_batches != 0) return {};
  return {settings_.micro_batches};
}

void Search::sweep(int gpus_per_host) {
  const UniformView view(input_, costs_, gpus_per_host, settings_.speed);
  if (view.devices() == 0) return;
  if (view.devices() < std::ssize(input_.devices)) {
    report_.notes.push_back(fmt::format("hosts of {}: {} of {} GPUs, the rest fills no host",
                                        gpus_per_host, view.devices(), input_.devices.size()));
  }
  for (const std::int64_t count : micro_batches()) {
    const std::int64_t size = input_.job.global_batch / count;
    if (size > std::int64_t{view.devices()} * input_.job.allowed.max_micro_batch_size) continue;
    if (count > std::numeric_limits<int>::max()) continue;
    for (const ir::Recompute recompute : input_.job.allowed.recompute) {
      if (!report_.complete) return;
      search(view, {count, static_cast<int>(size), recompute, schedule_});
    }
  }
}

void Search::search(const UniformView& view, const AlpaCase& what) {
  if (canceled(input_)) report_.complete = false;
  AlpaStages stages(input_, costs_, view, settings_, what);
  if (!report_.complete || !stages.any()) return;
  StageChain chain(
      costs_.layers(), stages.submeshes(), view.devices(),
      std::min(costs_.layers(), view.devices()),
      [&](int first, int last, int submesh) { return stages.steps(first, last, submesh); });
  remember_memory(stages, view, what);
  // All devices, else as many whole hosts as some chain of submeshes covers. The table that tells
  // is the first one of the search below too.
  if (!proceed()) return;
  bool counted = true;
  const auto ask = [&] { return std::exchange(counted, false) || proceed(); };
  const int devices = chain.most_devices(view.gpus_per_host());
  if (devices == 0) return;
  const auto visit = [&](const ChainPick& pick) { offer(pick, stages, view, what); };
  const ChainSearch found = least_pipeline_time(
      chain, devices, static_cast<int>(what.micro_batches), settings_.gap, ask, visit);
  if (!found.complete) report_.complete = false;
}

void Search::remember_memory(const AlpaStages& stages, const UniformView& view,
                             const AlpaCase& what) {
  memory_.rejected += stages.rejected();
  const auto [need, layer] = stages.hardest_layer();
  const Bytes excess = need - view.capacity();
  if (excess <= Bytes{} || (!memory_.witness.empty() && excess >= least_excess_)) return;
  least_excess_ = excess;
  memory_.witness = fmt::format(
      "{} micro-batches of {}, recompute {}: layer {} alone needs {:.2f} GiB on the submesh that "
      "suits it best, {} has {:.2f} GiB for it",
      what.micro_batches, what.micro_batch_size, ir::name_of(what.recompute), layer,
      need.value / 0x1p30, view.smallest_gpu(), std::max(0.0, view.capacity().value / 0x1p30));
}

void Search::offer(const ChainPick& pick, const AlpaStages& stages, const UniformView& view,
                   const AlpaCase& what) {
  ++report_.plans_examined;
  const Seconds estimate{pick.sum + static_cast<double>(what.micro_batches - 1) * pick.largest};
  if (!ranking_.wants(estimate)) return;
  std::vector<int> sizes;
  for (const StagePick& stage : pick.stages) {
    sizes.push_back(stages.submeshes()[static_cast<std::size_t>(stage.choice)].devices);
  }
  // Larger submeshes first, as the public code slices the grid.
  const auto devices = place_stages(view, sizes, sizes);
  std::vector<Stage> made;
  for (std::size_t s = 0; s < pick.stages.size(); ++s) {
    const StagePick& stage = pick.stages[s];
    made.push_back({stage.first, stage.last - stage.first + 1,
                    stages.shape(stage.choice, stage.variant), devices[s]});
  }
  ranking_.offer(
      estimate, [this, made, what] { return build(made, what); },
      [made, what] { return describe(made, what); });
}

ir::Plan Search::build(const std::vector<Stage>& stages, const AlpaCase& what) const {
  ir::Plan plan;
  plan.schedule = what.schedule;
  // Alpa sends slices between meshes and gathers them inside the receiver [OSDI 2022, section 6].
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  ir::Pipeline chain;
  chain.micro_batches = static_cast<int>(what.micro_batches);
  chain.micro_batch_size = what.micro_batch_size;
  for (const Stage& stage : stages) {
    ir::Segment segment = segment_of_layers(input_.workload, stage.first, stage.layers);
    segment.recompute = what.recompute;
    segment.zero.stage = stage.shape.zero;
    for (int g = 0; g < stage.shape.data; ++g) {
      ir::Group group;
      const auto begin =
          stage.devices.begin() + static_cast<std::ptrdiff_t>(g) * stage.shape.tensor;
      group.devices.assign(begin, begin + stage.shape.tensor);
      group.tensor_parallel = stage.shape.tensor;
      group.samples = what.micro_batch_size / stage.shape.data;
      if (stage.shape.tensor > 1 && input_.job.allowed.sequence_parallel &&
          input_.job.sequence_length % stage.shape.tensor == 0) {
        group.sequence = ir::SequenceParallelism::megatron;
      }
      segment.groups.push_back(std::move(group));
    }
    chain.stages.push_back({{std::move(segment)}});
  }
  plan.pipelines.push_back(std::move(chain));
  return plan;
}

std::string Search::describe(const std::vector<Stage>& stages, const AlpaCase& what) {
  std::vector<std::string> runs;
  for (std::size_t s = 0; s < stages.size();) {
    const Stage& one = stages[s];
    std::size_t end = s;
    const auto same = [&](const Stage& other) {
      return other.layers == one.layers && other.shape.data == one.shape.data &&
             other.shape.tensor == one.shape.tensor && other.shape.zero == one.shape.zero;
    };
    while (end < stages.size() && same(stages[end])) ++end;
    std::string text =
        fmt::format("{} layers on DP {} x TP {}", one.layers, one.shape.data, one.shape.tensor);
    if (one.shape.zero > 0) text += fmt::format(" ZeRO {}", one.shape.zero);
    runs.push_back(end - s > 1 ? fmt::format("{} times {}", end - s, text) : text);
    s = end;
  }
  return fmt::format("PP {} ({}), {} micro-batches of {}, recompute {}", stages.size(),
                     fmt::join(runs, "; "), what.micro_batches, what.micro_batch_size,
                     ir::name_of(what.recompute));
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
    none_ = {"submeshes",
             fmt::format("no chain of submeshes over {} devices (hosts of {}) shares {} layers and "
                         "micro-batches of a batch of {}",
                         input_.devices.size(), fmt::join(sizes, " or "), costs_.layers(),
                         input_.job.global_batch)};
    if (memory_.rejected > 0) {
      none_ = {"device memory", memory_.witness.empty()
                                    ? "every layer fits alone, but no chain of submeshes holds all "
                                      "layers with the activations of the stages ahead"
                                    : memory_.witness};
    }
  }
  return ranking_.finish(kAlpa.name, settings_.evaluate_top, std::move(report_), none_);
}

PlannerResult Alpa::plan(const PlannerInput& input) const { return Search(input, settings_).run(); }

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  AlpaSettings settings;
  settings.micro_batches = static_cast<int>(reader.integer("micro_batches", 0, 1'000'000'000));
  settings.gpus_per_host = static_cast<int>(reader.integer("gpus_per_host", 0, 1 << 20));
  settings.submeshes = reader.choice<AlpaSubmeshes>(
      "submeshes", {{"power_of_two", AlpaSubmeshes::power_of_two},
                    {"small_power_of_two", AlpaSubmeshes::small_power_of_two},
                    {"all", AlpaSubmeshes::all}});
  settings.logical = reader.choice<AlpaLogical>(
      "logical_shapes", {{"single_node_model_parallel", AlpaLogical::single_node_model_parallel},
                         {"same_as_physical", AlpaLogical::same_as_physical},
                         {"data_parallel_only", AlpaLogical::data_parallel_only}});
  settings.speed = reader.choice<ViewedSpeed>(
      "speed", {{"average", ViewedSpeed::average}, {"slowest", ViewedSpeed::slowest}});
  settings.gap = reader.number("gap", 0, 1e6);
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  if (settings.gpus_per_host > 0 && !is_power_of_two(settings.gpus_per_host)) {
    return PlannerEntry::BadOption{
        "gpus_per_host",
        fmt::format("{} is not a power of two, which Alpa's grid needs", settings.gpus_per_host)};
  }
  return std::make_unique<Alpa>(settings);
}

}  // namespace

const PlannerEntry kAlpa = {
    "alpa",
    "Zheng et al. 2022 (Alpa, OSDI), sections 4 and 5, Algorithm 1",
    "cuts of the layers into one pipeline x submeshes (parts of a host, whole hosts) x data x "
    "tensor "
    "shape of each x micro-batches x recompute, all devices used",
    "differences between devices and between links (means over the cluster), sends between stages, "
    "several pipelines, hosts whose size is no power of two",
    options,
    make,
};

}  // namespace orrery::planners
