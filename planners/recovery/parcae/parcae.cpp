// Parcae: the configuration (pipelines x stages) that trains most samples in the intervals to come,
// migrations and the instances that will probably vanish taken into account (liveput). Survivors
// change places inside their stage where they can, or take over another stage's state.
// [Duan et al., NSDI 2024]
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "models/reshard/reshard_plan.h"
#include "planners/kit/plan_parts.h"
#include "planners/recovery/catalog.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/elastic.h"
#include "planners/recovery/kit/unit_chains.h"
#include "planners/recovery/kit/unit_grid.h"
#include "planners/recovery/parcae/liveput.h"

namespace orrery::planners {

extern const RecoveryEntry kParcaeRecovery;

namespace {

struct ParcaeSettings {
  Phases phases = {
      .reinitialize = {{-1},
                       "Seconds of a migration or a new configuration, without the movement of "
                       "state; -1: by the options migration, group, rendezvous, rebuild_group "
                       "[public code JF-D/Parcae]."},
      .restart = kRestart};
  int look_ahead = 12;
  double interval = 60;
  double group = -1;
  double migration = 0.275;
  double rendezvous = 6.6;
  double rebuild_group = 0.5;
  int micro_batch_size = 0;
  OptionalInterval checkpoint_interval;
};

void describe(config::Visitor& v, ParcaeSettings& s) {
  describe_phases(v, s.phases);
  v.optional("look_ahead", s.look_ahead,
             "Intervals that the optimization looks ahead. [Parcae; unverified]");
  v.between("look_ahead", s.look_ahead, 1, 1000);
  v.optional("interval", s.interval, "Seconds of an interval. [Parcae's traces]");
  v.between("interval", s.interval, 1e-3, 1e6);
  v.optional(
      "group", s.group,
      "As published: seconds to form a communication group in a migration; -1: by the number of "
      "parameters, 0.0393 at 1.5 billion, 0.1156 at 6.7, linear between and constant "
      "outside. [public code JF-D/Parcae]");
  v.between("group", s.group, -1.0, 1e6);
  v.optional("migration", s.migration,
             "Seconds of a migration beside its groups. [public code JF-D/Parcae]");
  v.between("migration", s.migration, 0.0, 1e6);
  v.optional("rendezvous", s.rendezvous,
             "As published: seconds until instances that join, or a new depth, have found each "
             "other. [public code JF-D/Parcae]");
  v.between("rendezvous", s.rendezvous, 0.0, 1e6);
  v.optional("rebuild_group", s.rebuild_group,
             "As published: seconds to form a group after that. [public code JF-D/Parcae]");
  v.between("rebuild_group", s.rebuild_group, 0.0, 1e6);
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples of a micro-batch; 0: the size of the best configuration.");
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.optional("checkpoint_interval", s.checkpoint_interval,
             "Between checkpoints to the cloud: auto and own (Young's), young, daly, availability, "
             "tuned, seconds, or never. Deviation: they stand for ParcaePS, which keeps each "
             "step's state on "
             "on-demand machines.");
}

/// Linear between the two models that Parcae's code has.
double group_seconds(const models::Workload& workload) {
  constexpr double kSmall = 1.5e9;
  constexpr double kLarge = 6.7e9;
  const auto parameters = static_cast<double>(models::parameters(workload));
  const double share = std::clamp((parameters - kSmall) / (kLarge - kSmall), 0.0, 1.0);
  return 0.0393 + share * (0.1156 - 0.0393);
}

/// What configurations train and cost, in closed form.
class ParcaeModel {
 public:
  /// `settings`: a group's time and a size of micro-batches, no defaults that mean formulas.
  ParcaeModel(const UnitChains& chains, ParcaeSettings settings)
      : chains_(chains), settings_(std::move(settings)) {
    const models::Cluster& cluster = chains.input().cluster;
    DeviceId other{0};
    for (const models::Device& device : cluster.devices) {
      if (device.node != cluster.device(DeviceId{0}).node) {
        other = device.id;
        break;
      }
    }
    path_ = chains.input().topology.path(DeviceId{0}, other);
  }

  const Chain* chain(int stages) const {
    return chains_.chain(
        {stages, width(), settings_.micro_batch_size, chains_.per_node() / width()});
  }
  int width() const { return chains_.widths().back(); }
  int micro_batches() const {
    return static_cast<int>(chains_.input().job.global_batch / settings_.micro_batch_size);
  }
  const ParcaeSettings& settings() const { return settings_; }

  /// Slowest pipeline, then a ring all-reduce of the largest stage's gradients between nodes.
  double samples_per_second(const UnitGrid& grid) const {
    const Chain* of = chain(grid.stages);
    if (of == nullptr) return 0;
    double seconds = of->rate().time((micro_batches() + grid.pipelines - 1) / grid.pipelines);
    const double replicas = grid.pipelines;
    seconds += 2 * (replicas - 1) / replicas *
               largest_stage(*of, chains_.input().job.state_bytes.gradient) / path_.bandwidth.value;
    return static_cast<double>(chains_.input().job.global_batch) / seconds;
  }

  double groups(const UnitGrid& grid) const {
    return grid.pipelines + grid.stages + 1.0 + static_cast<double>(grid.instances());
  }
  /// What the runtime takes to connect all ranks of the grid.
  double connect(const UnitGrid& grid) const {
    return chains_.policy().runtime.connect_rank.value * width() *
           static_cast<double>(grid.instances());
  }
  double intra(const UnitGrid& grid) const {
    const Stall& own = settings_.phases.reinitialize;
    if (own.of == Stall::Of::runtime) return settings_.migration + connect(grid);
    if (own.duration.value >= 0) return own.duration.value;
    return settings_.migration + groups(grid) * settings_.group;
  }
  double rebuild(const UnitGrid& grid) const {
    const Stall& own = settings_.phases.reinitialize;
    if (own.of == Stall::Of::runtime) return connect(grid);
    if (own.duration.value >= 0) return own.duration.value;
    return settings_.rendezvous + groups(grid) * settings_.rebuild_group;
  }
  /// State of a stage from one instance to another.
  double copy(const UnitGrid& grid) const {
    const Chain* of = chain(grid.stages);
    if (of == nullptr) return 0;
    const models::ReshardBytes bytes = models::all_state_bytes(chains_.input().job);
    return largest_stage(*of, bytes.weight + bytes.optimizer()) / path_.bandwidth.value;
  }
  double restart() const {
    const Stall& own = *settings_.phases.restart;
    if (own.of != Stall::Of::runtime) return own.duration.value;
    const models::Runtime& runtime = chains_.policy().runtime;
    return (runtime.start_process + runtime.connect_rank * chains_.input().cluster.size()).value;
  }
  MigrationCosts costs() const {
    return {[this](const UnitGrid& g) { return intra(g); },
            [this](const UnitGrid& g) { return intra(g) + copy(g); },
            [this](const UnitGrid& g) { return rebuild(g) + copy(g); }, restart()};
  }

  /// Grids worth a look with `least` to `most` instances: of each depth as many pipelines as fit.
  /// Fewer than `least` instances can carry never pay.
  std::vector<UnitGrid> grids(int least, int most) const {
    std::vector<UnitGrid> result;
    for (int stages = 1; stages <= std::min(most, chains_.layers()); ++stages) {
      if (chain(stages) == nullptr) continue;
      const int to = std::min(most / stages, micro_batches());
      for (int d = std::min(to, std::max(1, least / stages)); d <= to; ++d) {
        result.push_back({d, stages});
      }
    }
    return result;
  }

 private:
  /// Bytes on a device of the stage with the most parameters.
  double largest_stage(const Chain& chain, double bytes) const {
    const models::Workload& workload = chains_.input().workload;
    std::int64_t most = 0;
    int first = 0;
    for (const int layers : chain.layers) {
      const ir::Segment segment = segment_of_layers(workload, first, layers);
      most = std::max(most, models::parameters(workload, segment.first_block, segment.last_block));
      first += layers;
    }
    return static_cast<double>(most) * bytes / width();
  }

  const UnitChains& chains_;
  ParcaeSettings settings_;
  models::Path path_;
};

class Parcae final : public ElasticPolicy {
 public:
  using Settings = ParcaeSettings;
  static MadePolicy make(const PolicyInput& input, Settings s);
  Parcae(const PolicyInput& input, const Settings& s, std::shared_ptr<const UnitChains> chains)
      : ElasticPolicy(input, s.phases, s.checkpoint_interval),
        chains_(std::move(chains)),
        model_(*chains_, s) {}

  std::string name() const override { return kParcaeRecovery.name; }

 protected:
  FoundPlan fresh(const std::vector<DeviceId>& live) const override {
    const std::vector<Unit> units = units_of(live);
    const UnitGrid grid =
        choose(static_cast<int>(units.size()), [](const UnitGrid&) { return 0.0; });
    return plan(grid, {}, units);
  }

  /// Deviation: Parcae optimizes once an interval; a policy is asked at events only.
  FoundChange shrink(const models::JobState& state,
                     const std::vector<DeviceId>& live) const override {
    return change(*state.plan, live);
  }

  std::optional<ElasticChange> grow(const models::JobState& state,
                                    const std::vector<DeviceId>& live) const override {
    auto made = change(*state.plan, live);
    auto* better = std::get_if<ElasticChange>(&made);
    if (better == nullptr) return std::nullopt;
    const GridUnits before = grid_units(*state.plan, units_of(live));
    if (before.grid.pipelines > 0 && before.grid == grid_of(*better->plan)) return std::nullopt;
    return std::move(*better);
  }

  Stall stall_of(const models::JobState& state, const ir::Plan& to, bool) const override {
    const UnitGrid target = grid_of(to);
    const UnitGrid before = state.plan == nullptr ? UnitGrid{} : grid_of(*state.plan);
    const bool migrates = before.stages == target.stages && before.pipelines >= target.pipelines;
    const Stall& own = phases().reinitialize;
    if (own.of == Stall::Of::option) return own;
    if (own.of == Stall::Of::runtime) {  // Its own mechanism; the frame adds the communicators.
      return {Seconds{migrates ? model_.settings().migration : 0}, "", Stall::Of::runtime};
    }
    if (migrates) {
      return {Seconds{model_.intra(target)}, "options migration, group: migration"};
    }
    return {Seconds{model_.rebuild(target)}, "options rendezvous, rebuild_group"};
  }

 private:
  std::vector<Unit> units_of(const std::vector<DeviceId>& live) const {
    std::vector<Unit> units;
    const auto width = static_cast<std::ptrdiff_t>(model_.width());
    for (const Unit& cell : uniform_cells(input().cluster, live, chains_->per_node())) {
      for (auto at = cell.begin(); at != cell.end(); at += width)
        units.emplace_back(at, at + width);
    }
    return units;
  }

  /// Deviation: Parcae forecasts with ARIMA from the past. A policy knows the present alone: units
  /// vanish at the expected rate of interruptions, and none come back.
  std::vector<int> forecast(int units) const {
    const int all = input().cluster.size() / model_.width();
    const double hazard = expected_interruptions(input()) / all;
    std::vector<int> result;
    for (int i = 0; i < model_.settings().look_ahead; ++i) {
      result.push_back(static_cast<int>(
          std::lround(units * std::exp(-hazard * i * model_.settings().interval))));
    }
    return result;
  }

  /// The grid of the first interval; empty: nothing fits.
  UnitGrid choose(int units, const std::function<double(const UnitGrid&)>& first) const {
    LiveputProblem problem;
    problem.instances = forecast(units);
    problem.interval = model_.settings().interval;
    problem.grids = model_.grids(problem.instances.back(), units);
    problem.samples_per_second = [this](const UnitGrid& grid) {
      const auto [entry, fresh] = rates_.try_emplace(grid);
      if (fresh) entry->second = model_.samples_per_second(grid);
      return entry->second;
    };
    problem.first = first;
    problem.costs = model_.costs();
    problem.known = &migrations_;
    return best_liveput(problem).grids.front();
  }

  FoundChange change(const ir::Plan& running, const std::vector<DeviceId>& live) const {
    const std::vector<Unit> units = units_of(live);
    const GridUnits survivors = grid_units(running, units);
    const UnitGrid grid = choose(static_cast<int>(units.size()), [&](const UnitGrid& to) {
      return first_migration(survivors, to);
    });
    auto made = plan(grid, survivors, units);
    if (auto* none = std::get_if<models::Infeasible>(&made)) return std::move(*none);
    return ElasticChange{
        std::get<models::PlanPointer>(std::move(made)),
        fmt::format("liveput: {} pipelines of {} stages", grid.pipelines, grid.stages)};
  }

  /// What has happened is known: no expectation.
  double first_migration(const GridUnits& survivors, const UnitGrid& to) const {
    const MigrationCosts costs = model_.costs();
    if (survivors.grid.stages != to.stages || to.pipelines > survivors.grid.pipelines) {
      return costs.rebuild(to);
    }
    const int left = survivors.fewest();
    if (left == 0) return costs.restart;
    if (left >= survivors.grid.pipelines && to == survivors.grid) return 0;
    return left >= to.pipelines ? costs.intra(to) : costs.inter(to);
  }

  FoundPlan plan(const UnitGrid& grid, const GridUnits& survivors,
                 const std::vector<Unit>& units) const {
    if (grid.pipelines == 0) {
      return models::Infeasible{
          "number of instances",
          fmt::format("the model fits on no chain of up to {}", units.size())};
    }
    const Chain* chain = model_.chain(grid.stages);
    std::vector<UnitPipeline> pipelines;
    for (std::vector<Unit>& row : rearrange(grid, survivors, units)) {
      pipelines.push_back({chain, std::move(row)});
    }
    std::optional<ir::Plan> made = plan_of(*chains_, pipelines, kParcaeRecovery.name);
    if (!made) return models::Infeasible{"global batch", "fewer micro-batches than pipelines"};
    const std::string problem = problem_of(input(), *made);
    if (!problem.empty()) return models::Infeasible{"plan", problem};
    return std::make_shared<const ir::Plan>(std::move(*made));
  }

  std::shared_ptr<const UnitChains> chains_;
  ParcaeModel model_;
  mutable std::map<UnitGrid, double> rates_;  ///< Samples per second.
  mutable ExpectedMigrations migrations_;
};

/// The size of micro-batches with the best throughput on the whole cluster; 0: nothing fits.
int best_micro_batch(const UnitChains& chains, ParcaeSettings settings) {
  const int wanted = settings.micro_batch_size;
  const int units = chains.input().cluster.size() / chains.widths().back();
  int best = 0;
  double most = 0;
  for (const int size : chains.micro_batch_sizes()) {
    if (wanted != 0 && size != wanted) continue;
    settings.micro_batch_size = size;
    const ParcaeModel model(chains, settings);
    for (const UnitGrid& grid : model.grids(units, units)) {
      const double rate = model.samples_per_second(grid);
      if (rate <= most) continue;
      most = rate;
      best = size;
    }
  }
  return best;
}

MadePolicy Parcae::make(const PolicyInput& input, Settings s) {
  if (auto problem = zero_off_problem(input.job, "stages")) return *problem;
  if (s.group < 0) s.group = group_seconds(input.workload);
  s.phases = settled(std::move(s.phases), input.runtime);
  auto chains = std::make_shared<const UnitChains>(input, CutCriterion::pipeline_time);
  s.micro_batch_size = best_micro_batch(*chains, s);
  if (s.micro_batch_size == 0) {
    return models::Infeasible{"device memory or number of layers",
                              "no configuration of pipelines and stages holds the model"};
  }
  return std::make_unique<Parcae>(input, s, std::move(chains));
}

}  // namespace

constinit const RecoveryEntry kParcaeRecovery = recovery_entry<Parcae>({
    .name = "parcae",
    .source = "Parcae (Duan et al., NSDI 2024) and JF-D/Parcae",
    .recovers = "pipelines and stages with the most expected samples in the next intervals; "
                "survivors change places inside a stage, or take another stage's state",
    .needs = "equal pipelines, ZeRO off; it lays them out itself",
    .loses = "the iteration in flight; what came after the last checkpoint once all copies of a "
             "stage are lost",
    .slow = kKeepsSlowDevices,
    .deviations = "no ARIMA forecast: devices vanish at the expected rate and none come back; the "
                  "configuration is chosen at events only, not once an interval; checkpoints to "
                  "the cloud stand for ParcaePS, which keeps each step's state on on-demand "
                  "machines",
});

}  // namespace orrery::planners
