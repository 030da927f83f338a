/// AutoHet: for each valid TP dimension the grouping of GPUs into pipelines that maximizes D times
/// the least effective computing power [Eq. 2 and 3], by exact enumeration over counts of GPUs by
/// kind (planners/kit/grouping.h) in place of the paper's SCIP; mapping to nodes and stages
/// [Algorithm 1] (autohet_mapping.h); layers by exact partition under memory [Eq. 4] with stage
/// times from powers of two [Eq. 5] (autohet_costs.h); the best by Eq. 1.
///
/// Deviation: K of Eq. 2 is the number of micro-batches of the step, also with D pipelines; Eq. 1
/// takes what each pipeline really gets. With K / D in Eq. 2 the plans that the paper quotes lose.
/// Deviation: where D does not divide the micro-batches, the strongest groups take one more.
/// Deviation: a group needs not only the sum of memory of Eq. 3b but a division of the layers that
/// fits stage by stage (option group_memory), and no more stages than layers.
#include <memory>
#include <variant>

#include "planners/autohet/search.h"
#include "planners/autohet/settings.h"
#include "planners/kit/options.h"

namespace orrery::planners {

extern const PlannerEntry kAutohet;

namespace {

using Settings = AutohetSettings;

std::vector<OptionInfo> options() {
  return {
      {"device_grouping", "optimum",
       "optimum: for each TP dimension the groupings that maximize Eq. 3. every_count: the best "
       "for "
       "each number of groups, all judged by Eq. 1. off: one pipeline over all GPUs, the baseline "
       "of V-B."},
      {"mapping", "on",
       "Node and stage mapping (III-C). off: stages and nodes in the order of the cluster file, "
       "the "
       "ablation of V-B."},
      {"load_balance", "bottleneck",
       "Layer partition. bottleneck: least longest stage (Eq. 4), then least sum. pipeline: least "
       "time of Eq. 1. off: even shares, the ablation of V-B."},
      {"group_memory", "stages",
       "What a group needs. stages: a division of the layers that fits on each stage. sum: as Eq. "
       "3b prints it, the sum of its memory holds the model; groupings that Eq. 4c then refuses "
       "are lost."},
      {"power", "layer_time",
       "g of Eq. 2. layer_time: layers per second of a TP group by the profile (III-D). peak: sum "
       "of "
       "peak FLOP/s."},
      {"layer_time", "powers_of_two",
       "powers_of_two: n layers take what the powers of two in n take, measured once from the "
       "first "
       "layer on (Eq. 5). sum: each layer its own time; differs for unequal layers only."},
      {"tensor_links", "node",
       "A TP dimension is valid if it divides the GPUs of every node (Algorithm 1, line 2); "
       "nvlink: "
       "and if NVLink joins every TP group (III-C)."},
      {"recompute", "auto",
       "auto: every mode that the job allows, judged by Eq. 1; least or most: only that. The paper "
       "does not say."},
      {"micro_batches", "0",
       "K of Eq. 2; 0: global batch / micro-batch size. Not divided by the number of groups."},
      {"micro_batch_size", "1",
       "Samples; must divide the global batch. 0: every size that the job allows, judged by Eq. 1. "
       "The paper does not say."},
      {"activation_transfer", "sliced",
       "sliced: scatter-gather of activations between stages, as in Megatron-LM, on which AutoHet "
       "builds; or leader_broadcast."},
      {"ties", "32", "Most groupings with the same value of Eq. 3 that Eq. 1 judges; at least 1."},
      {"search_limit", "20000000",
       "Most partial groupings per TP dimension (and size, recompute); beyond it the best so far "
       "counts and the report tells the proved bound. 0: none."},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best first by Eq. 1; 1: Eq. 1 decides; 0: all that fit."},
  };
}

class Autohet final : public Planner {
 public:
  explicit Autohet(const Settings& settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return search_autohet(input, settings_, kAutohet.name);
  }

 private:
  Settings settings_;
};

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  Settings s;
  s.grouping = reader.choice<Settings::Grouping>("device_grouping",
                                                 {{"optimum", Settings::Grouping::optimum},
                                                  {"every_count", Settings::Grouping::every_count},
                                                  {"off", Settings::Grouping::off}});
  s.mapping = reader.choice<bool>("mapping", {{"on", true}, {"off", false}});
  s.load_balance = reader.choice<Settings::LoadBalance>(
      "load_balance", {{"bottleneck", Settings::LoadBalance::bottleneck},
                       {"pipeline", Settings::LoadBalance::pipeline},
                       {"off", Settings::LoadBalance::off}});
  s.group_memory = reader.choice<Settings::GroupMemory>(
      "group_memory",
      {{"stages", Settings::GroupMemory::stages}, {"sum", Settings::GroupMemory::sum}});
  s.power = reader.choice<Settings::Power>(
      "power", {{"layer_time", Settings::Power::layer_time}, {"peak", Settings::Power::peak}});
  s.layer_time = reader.choice<Settings::LayerTime>(
      "layer_time",
      {{"powers_of_two", Settings::LayerTime::powers_of_two}, {"sum", Settings::LayerTime::sum}});
  s.tensor_links = reader.choice<Settings::TensorLinks>(
      "tensor_links",
      {{"node", Settings::TensorLinks::node}, {"nvlink", Settings::TensorLinks::nvlink}});
  s.recompute = reader.choice<Settings::RecomputeChoice>(
      "recompute", {{"auto", Settings::RecomputeChoice::automatic},
                    {"least", Settings::RecomputeChoice::least},
                    {"most", Settings::RecomputeChoice::most}});
  s.micro_batches = reader.integer("micro_batches", 0, 1'000'000'000);
  s.micro_batch_size = static_cast<int>(reader.integer("micro_batch_size", 0, 1'000'000));
  s.transfer = reader.choice<ir::ActivationTransfer>(
      "activation_transfer", {{"sliced", ir::ActivationTransfer::sliced},
                              {"leader_broadcast", ir::ActivationTransfer::leader_broadcast}});
  s.ties = static_cast<int>(reader.integer("ties", 1, 100'000));
  s.search_limit = reader.integer("search_limit", 0, std::int64_t{1} << 50);
  s.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Autohet>(s);
}

}  // namespace

const PlannerEntry kAutohet = {
    "autohet",
    "AutoHet, section III (Eq. 1-5, Algorithm 1)",
    "TP dimensions; for each all divisions of the GPUs into pipelines by counts of kinds, exactly; "
    "stage order, nodes and layers of the best of them",
    "differences of links between GPUs of a kind until Eq. 1, unequal batches of pipelines, TP "
    "dimensions that do not divide every node, idle GPUs",
    options,
    make,
};

}  // namespace orrery::planners
