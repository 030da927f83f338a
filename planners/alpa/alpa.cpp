// Alpa: one pipeline whose stages run on submeshes of a hosts x GPUs grid. A dynamic program over
// the layers cuts stages and hands out submeshes; each stage takes the best logical data x tensor
// shape of its submesh. A mixed cluster is seen as uniform (uniform_view.h).
// [Zheng et al., OSDI 2022, sections 4 and 5, Algorithm 1; public code's stage construction]
// Deviation: inside a stage Alpa solves an integer program over the sharding of every operator.
// Blocks here are transformer layers, which are sharded by batch and tensor splits alone, so trying
// the few logical shapes of a submesh (data x tensor, ZeRO stage) finds the best.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <utility>

#include "planners/alpa/stages.h"
#include "planners/catalog.h"
#include "planners/kit/integers.h"
#include "planners/kit/plan_parts.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

ir::EnumNames<AlpaSubmeshes> enum_names(AlpaSubmeshes) {
  return {{AlpaSubmeshes::power_of_two, "power_of_two"},
          {AlpaSubmeshes::small_power_of_two, "small_power_of_two"},
          {AlpaSubmeshes::all, "all"}};
}
ir::EnumNames<AlpaLogical> enum_names(AlpaLogical) {
  return {{AlpaLogical::single_node_model_parallel, "single_node_model_parallel"},
          {AlpaLogical::same_as_physical, "same_as_physical"},
          {AlpaLogical::data_parallel_only, "data_parallel_only"}};
}

void describe(config::Visitor& v, AlpaSettings& s) {
  v.optional(
      "micro_batches", s.micro_batches,
      "Micro-batches per step, the hyper-parameter B. 0: every divisor of the global batch is "
      "tried, as the paper proposes [OSDI 2022, section 7]; else this one, a divisor of the "
      "global batch (by hand, as in Alpa's and Metis's runs [Metis, Table 1]).");
  v.optional(
      "gpus_per_host", s.gpus_per_host,
      "GPUs of a host of the grid, a power of two; larger nodes are cut, what does not fill a "
      "host stays idle. 0: each power of two up to the largest node, without those that use no "
      "more devices than twice their size does; the best estimate wins.");
  v.optional(
      "submeshes", s.submeshes,
      "Submeshes of several hosts. all: any number of hosts, (2, M), (3, M), ... (N, M) [OSDI "
      "2022, section 5.1]; power_of_two: 2, 4, 8, ... hosts (default of the public code); "
      "small_power_of_two: at most 4 hosts (public code). Inside a host always 1, 2, 4, ... "
      "GPUs.");
  v.optional(
      "logical_shapes", s.logical,
      "Logical shapes data x tensor of a submesh. single_node_model_parallel: tensor degrees up "
      "to a host (default of the public code); same_as_physical: tensor over the GPUs of a host, "
      "data over hosts; data_parallel_only. [public code]");
  v.optional("speed", s.speed,
             "Time of a computation on the uniform GPU. average: mean over the devices, as Metis's "
             "baseline runs [Metis, section 3]; slowest: of the slowest type.");
  v.optional(
      "gap", s.gap,
      "Seconds between caps on the largest stage cost; the plan is at most micro-batches x gap "
      "from the optimum [OSDI 2022, section 5.2]. 0: exact.");
  v.optional(
      "evaluate_top", s.evaluate_top,
      "Plans that the evaluator judges, best estimates first; 1: the estimate decides, as in the "
      "paper; 0: all.");
  v.between("micro_batches", s.micro_batches, 0, 1'000'000'000);
  check_host_size(v, s);
  v.between("gap", s.gap, 0.0, 1e6);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

/// A stage of a plan, free of the tables it came from.
struct AlpaStage {
  int first = 0;
  int layers = 0;
  AlpaShape shape;
  std::vector<DeviceId> devices;
};

class AlpaSearch final : public UniformChainSearch {
 public:
  AlpaSearch(const PlannerInput& input, const AlpaSettings& settings)
      : UniformChainSearch(
            input, settings,
            {"alpa", "submeshes", "micro-batches of a batch", "on the submesh that suits it best"}),
        settings_(settings) {}

 private:
  std::vector<std::int64_t> micro_batches() const;
  std::optional<models::Infeasible> refuse() const override;
  void sweep(const UniformView& view) override;
  void search(const UniformView& view, const AlpaCase& what);
  void offer(const ChainPick& pick, const AlpaStages& stages, const UniformView& view,
             const AlpaCase& what);
  ir::Plan build(const std::vector<AlpaStage>& stages, const AlpaCase& what) const;
  static std::string describe_plan(const std::vector<AlpaStage>& stages, const AlpaCase& what);

  const AlpaSettings& settings_;
};

std::vector<std::int64_t> AlpaSearch::micro_batches() const {
  if (settings_.micro_batches == 0) return divisors(input_.job.global_batch);
  if (input_.job.global_batch % settings_.micro_batches != 0) return {};
  return {settings_.micro_batches};
}

std::optional<models::Infeasible> AlpaSearch::refuse() const {
  if (!micro_batches().empty()) return std::nullopt;
  return models::Infeasible{"micro-batches",
                            fmt::format("{} micro-batches do not divide a batch of {}",
                                        settings_.micro_batches, input_.job.global_batch)};
}

void AlpaSearch::sweep(const UniformView& view) {
  for (const std::int64_t count : micro_batches()) {
    const std::int64_t size = input_.job.global_batch / count;
    if (size > std::int64_t{view.devices()} * input_.job.allowed.max_micro_batch_size) continue;
    if (count > std::numeric_limits<int>::max()) continue;
    for (const ir::Recompute recompute : input_.job.allowed.recompute) {
      if (canceled(input_)) report_.complete = false;
      if (!report_.complete) return;
      search(view, {count, static_cast<int>(size), recompute, schedule_});
    }
  }
}

void AlpaSearch::search(const UniformView& view, const AlpaCase& what) {
  AlpaStages stages(input_, costs_, view, settings_, what);
  if (!stages.any()) return;
  StageChain chain(
      costs_.layers(), stages.choices(), view.devices(), std::min(costs_.layers(), view.devices()),
      [&](int first, int last, int submesh) { return stages.steps(first, last, submesh); });
  note_memory(stages, view, [&] {
    return fmt::format("{} micro-batches of {}, recompute {}", what.micro_batches,
                       what.micro_batch_size, ir::name_of(what.recompute));
  });
  // All devices, else as many whole hosts as some chain of submeshes covers. The first table of the
  // search below answers that too, so it is counted once.
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

void AlpaSearch::offer(const ChainPick& pick, const AlpaStages& stages, const UniformView& view,
                       const AlpaCase& what) {
  ++report_.plans_examined;
  const Seconds estimate{pick.sum + static_cast<double>(what.micro_batches - 1) * pick.largest};
  if (!ranking_.wants(estimate)) return;
  std::vector<int> sizes;
  for (const StagePick& stage : pick.stages) {
    sizes.push_back(stages.choices()[stage.choice].devices);
  }
  // Larger submeshes first, as the public code slices the grid.
  const auto devices = place_stages(view, sizes, sizes);
  std::vector<AlpaStage> made;
  for (std::size_t s = 0; s < pick.stages.size(); ++s) {
    const StagePick& stage = pick.stages[s];
    made.push_back({stage.first, stage.last - stage.first + 1,
                    stages.shape(stage.choice, stage.variant), devices[s]});
  }
  ranking_.offer(
      estimate, [this, made, what] { return build(made, what); },
      [made, what] { return describe_plan(made, what); });
}

ir::Plan AlpaSearch::build(const std::vector<AlpaStage>& stages, const AlpaCase& what) const {
  ir::Plan plan;
  plan.schedule = what.schedule;
  // Alpa sends slices between meshes and gathers them inside the receiver [OSDI 2022, section 6].
  plan.communication.activation_transfer = ir::ActivationTransfer::sliced;
  ir::Pipeline& chain = plan.pipelines.emplace_back();
  chain.micro_batches = static_cast<int>(what.micro_batches);
  chain.micro_batch_size = what.micro_batch_size;
  for (const AlpaStage& stage : stages) {
    const int tensor = stage.shape.tensor;
    chain.stages.push_back(stage_of_layers(
        input_.workload, stage.first, stage.layers,
        tensor_groups(stage.devices, tensor, what.micro_batch_size / stage.shape.data,
                      megatron_sequence(input_.job, tensor)),
        what.recompute, stage.shape.zero));
  }
  return plan;
}

std::string AlpaSearch::describe_plan(const std::vector<AlpaStage>& stages, const AlpaCase& what) {
  std::vector<std::string> texts;
  for (const AlpaStage& one : stages) {
    texts.push_back(
        fmt::format("{} layers on DP {} x TP {}", one.layers, one.shape.data, one.shape.tensor));
    if (one.shape.zero > 0) texts.back() += fmt::format(" ZeRO {}", one.shape.zero);
  }
  return fmt::format("PP {} ({}), {} micro-batches of {}, recompute {}", stages.size(),
                     fmt::join(count_repeats(texts), "; "), what.micro_batches,
                     what.micro_batch_size, ir::name_of(what.recompute));
}

}  // namespace

extern const PlannerEntry kAlpa;

const PlannerEntry kAlpa = planner_entry<SearchPlanner<AlpaSearch, AlpaSettings>>(
    "alpa", "Zheng et al. 2022 (Alpa, OSDI), sections 4 and 5, Algorithm 1",
    "cuts of the layers into one pipeline x submeshes (parts of a host, whole hosts) x data x "
    "tensor shape of each x micro-batches x recompute, all devices used",
    "differences between devices and between links (means over the cluster), sends between stages, "
    "several pipelines, hosts whose size is no power of two");

}  // namespace orrery::planners
