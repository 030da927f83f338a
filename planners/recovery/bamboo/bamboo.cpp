// Bamboo: each node keeps a copy of the stage after its own and computes that stage's forward pass
// too. When a node is lost, the one before it computes for both; joins wait until the pipelines are
// formed anew. Two neighbors lost at once are fatal: back to the checkpoint.
// [Thorpe et al., NSDI 2023; public code uclasystem/bamboo]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <set>
#include <utility>

#include "models/cost/memory.h"
#include "models/lower/placement.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/bamboo/shadows.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/kit/unit_grid.h"

namespace orrery::planners {

extern const RecoveryEntry kBambooRecovery;

namespace {

struct BambooSettings {
  Phases phases = {
      .detect = {{0},
                 "Seconds until a lost device is noticed where the trace does not say; 0: the "
                 "shadow takes over without a stall, as in Bamboo's own simulator and in Oobleck's "
                 "of Bamboo [simulator.py]."},
      .detect_exception = {{0}, "As detect, for failed processes [simulator.py]."},
      .reinitialize = {{20},
                       "Seconds of forming the pipelines anew: local rendezvous for BERT and GPT-2 "
                       "[simulator.py]."},
      .restart = Stall{
          {30}, "Seconds of a restart after a fatal loss: global rendezvous [simulator.py]."}};
  int stages = 0;
  double depth_factor = 1.5;
  int micro_batch_size = 0;
  Stall failover = {{0}, "Seconds until the shadow goes on; as detect. [Bamboo, simulator.py]"};
  OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, BambooSettings& s) {
  describe_phases(v, s.phases);
  v.optional("stages", s.stages,
             "Stages of a pipeline; 0: depth_factor times the fewest on which the model fits, or "
             "so many more that the copies of the next stage fit, and any stage beside that of its "
             "shadow, if some depth allows it.");
  v.between("stages", s.stages, 0, 100'000);
  if (v.reading() && s.stages == 1) {
    v.problem("stages", "a pipeline of one stage has no neighbor for copies");
  }
  v.optional("depth_factor", s.depth_factor,
             "Stages over the fewest that are needed: room for the copies. [Bamboo; unverified]");
  v.between("depth_factor", s.depth_factor, 1.0, 100.0);
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples of a micro-batch; 0: the size with the fastest first plan.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  describe_stall(v, "failover", s.failover);
  describe_checkpoint_interval(v, s.checkpoint_interval);
}

/// As many full pipelines as there are units for.
FoundPlan bamboo_plan(const UnitChains& chains, const ChainShape& shape,
                      const std::vector<Unit>& units) {
  const Chain* chain = chains.chain(shape);
  if (chain == nullptr) {
    return models::Infeasible{"device memory", fmt::format("{} stages do not fit", shape.stages)};
  }
  const std::size_t stages = shape.stages;
  const std::size_t batch = chains.input().job.global_batch / shape.micro_batch_size;
  const std::size_t count = std::min(units.size() / stages, batch);
  if (count == 0) {
    return models::Infeasible{
        "number of nodes", fmt::format("{} live, a pipeline has {} stages", units.size(), stages)};
  }
  std::vector<UnitPipeline> pipelines;
  for (std::size_t p = 0; p < count; ++p) {
    const auto first = units.begin() + static_cast<std::ptrdiff_t>(p * stages);
    pipelines.push_back({chain, {first, first + static_cast<std::ptrdiff_t>(stages)}});
  }
  std::optional<ir::Plan> plan =
      plan_of(chains, pipelines, kBambooRecovery.name, ir::Redundancy::next_stage);
  const std::string problem = problem_of(chains.policy(), *plan);
  if (!problem.empty()) return models::Infeasible{"device memory with copies", problem};
  return std::make_shared<const ir::Plan>(std::move(*plan));
}

class Bamboo final : public ElasticPolicy {
 public:
  using Settings = BambooSettings;
  static MadePolicy make(PolicyInput input, const Settings& s);
  Bamboo(const PolicyInput& input, const Settings& s, std::shared_ptr<const UnitChains> chains,
         ChainShape shape)
      : ElasticPolicy(input, s.phases, s.checkpoint_interval),
        failover_(settled(s.failover, s.phases.constants)),
        chains_(std::move(chains)),
        shape_(shape) {}

  std::string name() const override { return kBambooRecovery.name; }

 protected:
  FoundPlan fresh(const std::vector<DeviceId>& live) const override {
    const std::vector<Unit> units =
        spread_units(uniform_cells(input().cluster, live, chains_->per_node()), shape_.width);
    return bamboo_plan(*chains_, shape_, units);
  }

  /// Deviation: the iteration in flight is lost; Bamboo's shadow repeats the lost backward passes
  /// and the step goes on. Where Bamboo's rules ask for new pipelines, they are formed at once and
  /// not at the end of the step. Where too few nodes are left for one pipeline, the shadow goes on;
  /// the simulator stops.
  FoundChange shrink(const models::JobState& state,
                     const std::vector<DeviceId>& live) const override {
    ShadowOutcome outcome;
    std::string why = "a recovery was interrupted";
    if (state.training) {
      outcome = take_over(*state.plan, live, cut_of(*state.plan));
      why = outcome.fatal;
      if (outcome.plan) why = problem_with(*outcome.plan);
      const bool fits = outcome.plan && why.empty();
      if (fits && !should_reconfigure(counts(*outcome.plan, live))) return failover(outcome);
      if (fits) why = "Bamboo's rules ask for it";
      if (!fits) outcome.plan.reset();
    }
    auto made = formed_from_scratch(*state.plan, live);
    if (auto* plan = std::get_if<models::PlanPointer>(&made)) {
      return ElasticChange{std::move(*plan), "pipelines formed anew: " + why};
    }
    if (outcome.plan) return failover(outcome);
    return std::get<models::Infeasible>(std::move(made));
  }

  std::optional<ElasticChange> grow(const models::JobState& state,
                                    const std::vector<DeviceId>& live) const override {
    if (!should_reconfigure(counts(*state.plan, live))) return std::nullopt;
    auto made = formed_from_scratch(*state.plan, live);
    auto* plan = std::get_if<models::PlanPointer>(&made);
    if (plan == nullptr || **plan == *state.plan) return std::nullopt;
    return ElasticChange{std::move(*plan), "pipelines formed anew with the nodes that waited"};
  }

  /// Copies of shadows count, replicas in other pipelines do not replace them: after a fatal loss
  /// only checkpoints are left.
  models::JobState known(const models::JobState& state) const override {
    models::JobState result = state;
    result.replicas.clear();
    for (const models::StateReplica& copy : state.replicas) {
      const bool shadowed = copy.location == ir::Location::peer && copy.layout != nullptr &&
                            copy.layout->redundancy == ir::Redundancy::next_stage;
      if (shadowed && !take_over(*copy.layout, alive_in(copy, state), cut_of(*copy.layout)).plan)
        continue;
      result.replicas.push_back(copy);
      if (shadowed) result.replicas.push_back(shadow_copy(copy, cut_of(*copy.layout)));
    }
    return result;
  }

  Stall stall_of(const models::JobState& state, const ir::Plan& to, bool planned) const override {
    if (planned || state.plan == nullptr) return phases().reinitialize;
    return overloaded(to) > overloaded(*state.plan) ? failover_ : phases().reinitialize;
  }

  /// Bamboo waits until a node is gone.
  bool honors_preemption_notice() const override { return false; }

 private:
  /// Where stages began before any was merged: as in the user's plan, or as in the own chain.
  BlockCut cut_of(const ir::Plan& plan) const {
    const BlockCut now = common_cut(plan);
    if (input().plan) {
      BlockCut given = common_cut(*input().plan);
      if (std::includes(given.begin(), given.end(), now.begin(), now.end())) return given;
    }
    BlockCut own;
    int first = 0;
    for (const int layers : chains_->chain(shape_)->layers) {
      own.push_back(segment_of_layers(input().workload, first, layers).first_block.value);
      first += layers;
    }
    return own;
  }
  /// As fresh(), but units that keep their stage stay where they are, so that least state moves;
  /// unless neighbors would then share a node.
  FoundPlan formed_from_scratch(const ir::Plan& running, const std::vector<DeviceId>& live) const {
    const std::vector<Unit> units =
        spread_units(uniform_cells(input().cluster, live, chains_->per_node()), shape_.width);
    const auto batch = static_cast<int>(input().job.global_batch / shape_.micro_batch_size);
    const UnitGrid grid{std::min(static_cast<int>(units.size()) / shape_.stages, batch),
                        shape_.stages};
    const GridUnits survivors = survivors_in(running, units);
    if (grid.pipelines == 0 || survivors.grid.stages != grid.stages) return fresh(live);
    std::vector<Unit> placed;
    for (const std::vector<Unit>& row : rearrange(grid, survivors, units)) {
      for (std::size_t s = 0; s < row.size(); ++s) {
        if (s > 0 && node_of(row[s]) == node_of(row[s - 1])) return fresh(live);
        placed.push_back(row[s]);
      }
    }
    return bamboo_plan(*chains_, shape_, placed);
  }
  NodeId node_of(const Unit& unit) const { return input().cluster.device(unit.front()).node; }

  /// The units of `live` in the plan; a merged stage counts as the first of its parts.
  GridUnits survivors_in(const ir::Plan& running, const std::vector<Unit>& live) const {
    const BlockCut cut = cut_of(running);
    const std::set<Unit> known(live.begin(), live.end());
    GridUnits survivors;
    survivors.grid = {static_cast<int>(running.pipelines.size()), static_cast<int>(cut.size())};
    for (const ir::Pipeline& pipeline : running.pipelines) {
      auto& row = survivors.units.emplace_back(cut.size());
      for (const ir::Stage& stage : pipeline.stages) {
        const auto at = std::find(cut.begin(), cut.end(), stage.segments.front().first_block.value);
        const Unit unit = ir::devices_of(stage);
        if (at != cut.end() && known.contains(unit)) {
          row[at - cut.begin()] = unit;
        }
      }
    }
    return survivors;
  }

  int overloaded(const ir::Plan& plan) const { return count_overloaded(plan, cut_of(plan)); }

  /// A pipeline of one stage cannot be lowered with redundancy.
  std::string problem_with(const ir::Plan& plan) const {
    for (const ir::Pipeline& pipeline : plan.pipelines) {
      if (pipeline.stages.size() < 2) return "a single stage of a pipeline would be left";
    }
    return problem_of(input(), plan);
  }

  static ElasticChange failover(const ShadowOutcome& outcome) {
    return {std::make_shared<const ir::Plan>(*outcome.plan),
            fmt::format("{} shadow(s) take over", outcome.taken_over)};
  }

  /// Live devices whose share of the copy is not gone.
  static std::vector<DeviceId> alive_in(const models::StateReplica& copy,
                                        const models::JobState& state) {
    const std::vector<DeviceId> devices = ir::devices_of(*copy.layout);
    std::vector<DeviceId> result;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      if (std::binary_search(copy.lost_shards.begin(), copy.lost_shards.end(),
                             static_cast<std::uint32_t>(i))) {
        continue;
      }
      if (std::binary_search(state.live.begin(), state.live.end(), devices[i])) {
        result.push_back(devices[i]);
      }
    }
    return result;
  }

  BambooCounts counts(const ir::Plan& plan, const std::vector<DeviceId>& live) const {
    const std::vector<DeviceId> used = ir::devices_of(plan);
    std::vector<DeviceId> waiting;
    std::set_difference(live.begin(), live.end(), used.begin(), used.end(),
                        std::back_inserter(waiting));
    const std::vector<Unit> cells = uniform_cells(input().cluster, waiting, chains_->per_node());
    const int units_per_cell = chains_->per_node() / shape_.width;
    return {static_cast<int>(plan.pipelines.size()), static_cast<int>(cut_of(plan).size()),
            overloaded(plan), static_cast<int>(cells.size()) * units_per_cell};
  }

  Stall failover_;
  std::shared_ptr<const UnitChains> chains_;
  ChainShape shape_;
};

/// Fewest stages that fit without copies; 0: none.
int fewest_stages(const UnitChains& chains, ChainShape shape, int limit) {
  for (shape.stages = 1; shape.stages <= limit; ++shape.stages) {
    if (chains.chain(shape) != nullptr) return shape.stages;
  }
  return 0;
}

/// True when a pipeline of that shape fits whichever of its stages is lost.
bool take_overs_fit(const UnitChains& chains, const ChainShape& shape,
                    const std::vector<Unit>& units) {
  const auto stages = static_cast<std::ptrdiff_t>(shape.stages);
  const auto made = bamboo_plan(chains, shape, {units.begin(), units.begin() + stages});
  const auto* found = std::get_if<models::PlanPointer>(&made);
  if (found == nullptr) return false;
  const ir::Plan& plan = **found;
  const PlannerInput& input = chains.input();
  for (const ir::Stage& stage : plan.pipelines.front().stages) {
    std::vector<DeviceId> live = ir::devices_of(plan);
    for (const DeviceId lost : ir::devices_of(stage)) std::erase(live, lost);
    const ShadowOutcome outcome = take_over(plan, live, common_cut(plan));
    if (!outcome.plan) return false;
    if (!models::check_memory(*outcome.plan, input.cluster, input.workload, input.job,
                              input.profile)
             .fits()) {
      return false;
    }
  }
  return true;
}

/// The shape for one size of micro-batches: the shallowest pipelines from the wanted depth on that
/// fit with copies, and after any take-over; failing that with copies alone. None: the last reason
/// why not.
std::variant<ChainShape, models::Infeasible> shape_for(const UnitChains& chains,
                                                       const BambooSettings& settings,
                                                       const std::vector<Unit>& units,
                                                       ChainShape shape) {
  const int limit = std::min(chains.layers(), static_cast<int>(units.size()));
  int from = settings.stages;
  if (from == 0) {
    const int fewest = fewest_stages(chains, shape, limit);
    if (fewest == 0) {
      return models::Infeasible{"device memory",
                                fmt::format("the model fits on no chain of up to {} nodes", limit)};
    }
    from = std::max(2, static_cast<int>(std::ceil(settings.depth_factor * fewest)));
  }
  const int to = settings.stages == 0 ? limit : std::min(limit, settings.stages);
  models::Infeasible why{"number of nodes",
                         fmt::format("a pipeline of {} stages, {} nodes or layers", from, limit)};
  std::optional<ChainShape> copies_only;
  // A shadow holds the activations of two stages, at any depth: recomputation makes room for them.
  for (const ir::Recompute level : chains.input().job.allowed.recompute) {
    shape.at_least = level;
    for (shape.stages = from; shape.stages <= to; ++shape.stages) {
      auto made = bamboo_plan(chains, shape, units);
      if (auto* none = std::get_if<models::Infeasible>(&made)) {
        why = std::move(*none);
        continue;
      }
      if (take_overs_fit(chains, shape, units)) return shape;
      if (!copies_only) copies_only = shape;
    }
  }
  if (copies_only) return *copies_only;
  return why;
}

/// Over the sizes of micro-batches, the fastest by the closed form.
std::variant<ChainShape, models::Infeasible> bamboo_shape(const UnitChains& chains,
                                                          const BambooSettings& settings) {
  const PlannerInput& input = chains.input();
  const int width = chains.widths().back();
  const std::vector<Unit> units =
      spread_units(uniform_cells(input.cluster, input.devices, chains.per_node()), width);
  std::optional<ChainShape> best;
  Seconds least;
  models::Infeasible why{"micro-batch size", "none divides the global batch and is allowed"};
  for (const int size : chains.micro_batch_sizes()) {
    if (settings.micro_batch_size != 0 && size != settings.micro_batch_size) continue;
    auto found = shape_for(chains, settings, units, {1, width, size, 1});
    if (auto* none = std::get_if<models::Infeasible>(&found)) {
      why = std::move(*none);
      continue;
    }
    const auto& shape = std::get<ChainShape>(found);
    const auto plan = std::get<models::PlanPointer>(bamboo_plan(chains, shape, units));
    if (best && plan->predicted->iteration_time >= least) continue;
    best = shape;
    least = plan->predicted->iteration_time;
  }
  if (!best) return why;
  return *best;
}

MadePolicy Bamboo::make(PolicyInput input, const Settings& s) {
  if (auto problem = zero_off_problem(input.job, "stages")) return *problem;
  if (input.plan) {
    if (const std::string problem = redundancy_problem(*input.plan); !problem.empty()) {
      return models::Infeasible{"plan", problem};
    }
    input.plan->redundancy = ir::Redundancy::next_stage;
    const auto defects = models::find_redundancy_defects(*input.plan);
    if (!defects.empty()) {
      return models::Infeasible{"plan", defects.front().path + ": " + defects.front().what};
    }
    if (const std::string problem = problem_of(input, *input.plan); !problem.empty()) {
      return models::Infeasible{"plan with copies of the next stage", problem};
    }
  }
  auto chains = std::make_shared<const UnitChains>(input, CutCriterion::pipeline_time);
  auto shape = bamboo_shape(*chains, s);
  if (auto* none = std::get_if<models::Infeasible>(&shape)) return std::move(*none);
  return std::make_unique<Bamboo>(input, s, std::move(chains), std::get<ChainShape>(shape));
}

}  // namespace

constinit const RecoveryEntry kBambooRecovery = recovery_entry<Bamboo>({
    .name = "bamboo",
    .source = "Bamboo (Thorpe et al., NSDI 2023) and uclasystem/bamboo, simulator.py",
    .recovers = "the stage before a lost one holds its copy and computes for both; new pipelines "
                "are formed when too many do, or when enough nodes wait",
    .needs = "redundancy next_stage, two stages at least, ZeRO off; room for the copies: about 1.5 "
             "times the stages",
    .loses = "the iteration in flight; what came after the last checkpoint when a stage is lost "
             "with the one before it",
    .slow = kKeepsSlowDevices,
    .deviations = "the iteration in flight is lost, where Bamboo's shadow repeats the lost "
                  "backward passes; pipelines are formed anew at once, not at the end of the step; "
                  "the second stage, not the last one, takes over a lost first stage; with too few "
                  "nodes for one pipeline the shadow goes on, where Bamboo's simulator stops",
});

}  // namespace orrery::planners
