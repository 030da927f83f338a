// AutoHet: for each valid TP dimension the grouping of GPUs into pipelines that maximizes D times
// the least effective computing power [Eq. 2 and 3], by exact enumeration over counts of GPUs by
// kind (planners/kit/grouping.h) in place of the paper's SCIP; mapping to nodes and stages
// [Algorithm 1] (autohet_mapping.h); layers by exact partition under memory [Eq. 4] with stage
// times from powers of two [Eq. 5] (autohet_costs.h); the best by Eq. 1.
//
// Deviation: K of Eq. 2 is the number of micro-batches of the step, also with D pipelines; Eq. 1
// takes what each pipeline really gets. With K / D in Eq. 2 the plans that the paper quotes lose.
// Deviation: where D does not divide the micro-batches, the strongest groups take one more.
// Deviation: a group needs not only the sum of memory of Eq. 3b but a division of the layers that
// fits stage by stage (option group_memory), and no more stages than layers.
#include "models/ir/names.h"
#include "planners/autohet/search.h"
#include "planners/autohet/settings.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kAutohet;

ir::EnumNames<AutohetSettings::Grouping> enum_names(AutohetSettings::Grouping) {
  using enum AutohetSettings::Grouping;
  return {{optimum, "optimum"}, {every_count, "every_count"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::Mapping> enum_names(AutohetSettings::Mapping) {
  using enum AutohetSettings::Mapping;
  return {{on, "on"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::LoadBalance> enum_names(AutohetSettings::LoadBalance) {
  using enum AutohetSettings::LoadBalance;
  return {{bottleneck, "bottleneck"}, {pipeline, "pipeline"}, {off, "off"}};
}
ir::EnumNames<AutohetSettings::GroupMemory> enum_names(AutohetSettings::GroupMemory) {
  using enum AutohetSettings::GroupMemory;
  return {{stages, "stages"}, {sum, "sum"}};
}
ir::EnumNames<AutohetSettings::Power> enum_names(AutohetSettings::Power) {
  using enum AutohetSettings::Power;
  return {{layer_time, "layer_time"}, {peak, "peak"}};
}
ir::EnumNames<AutohetSettings::LayerTime> enum_names(AutohetSettings::LayerTime) {
  using enum AutohetSettings::LayerTime;
  return {{powers_of_two, "powers_of_two"}, {sum, "sum"}};
}
ir::EnumNames<AutohetSettings::TensorLinks> enum_names(AutohetSettings::TensorLinks) {
  using enum AutohetSettings::TensorLinks;
  return {{node, "node"}, {nvlink, "nvlink"}};
}
ir::EnumNames<AutohetSettings::RecomputeChoice> enum_names(AutohetSettings::RecomputeChoice) {
  using enum AutohetSettings::RecomputeChoice;
  return {{automatic, "auto"}, {least, "least"}, {most, "most"}};
}

void describe(config::Visitor& v, AutohetSettings& s) {
  v.optional("device_grouping", s.grouping,
             "optimum: for each TP dimension the groupings that maximize Eq. 3. every_count: the "
             "best for each number of groups, all judged by Eq. 1. off: one pipeline over all "
             "GPUs, the baseline of V-B.");
  v.optional("mapping", s.mapping,
             "Node and stage mapping (III-C). off: stages and nodes in the order of the cluster "
             "file, the ablation of V-B.");
  v.optional("load_balance", s.load_balance,
             "Layer partition. bottleneck: least longest stage (Eq. 4), then least sum. pipeline: "
             "least time of Eq. 1. off: even shares, the ablation of V-B.");
  v.optional("group_memory", s.group_memory,
             "What a group needs. stages: a division of the layers that fits on each stage. sum: "
             "as Eq. 3b prints it, the sum of its memory holds the model; groupings that Eq. 4c "
             "then refuses are lost.");
  v.optional("power", s.power,
             "g of Eq. 2. layer_time: layers per second of a TP group by the profile (III-D). "
             "peak: sum of peak FLOP/s.");
  v.optional("layer_time", s.layer_time,
             "powers_of_two: n layers take what the powers of two in n take, measured once from "
             "the first layer on (Eq. 5). sum: each layer its own time; differs for unequal "
             "layers only.");
  v.optional("tensor_links", s.tensor_links,
             "A TP dimension is valid if it divides the GPUs of every node (Algorithm 1, line 2); "
             "nvlink: and if NVLink joins every TP group (III-C).");
  v.optional("recompute", s.recompute,
             "auto: every mode that the job allows, judged by Eq. 1; least or most: only that. "
             "The paper does not say.");
  v.optional("micro_batches", s.micro_batches,
             "K of Eq. 2; 0: global batch / micro-batch size. Not divided by the number of "
             "groups.");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples; must divide the global batch. 0: every size that the job allows, judged by "
             "Eq. 1. The paper does not say.");
  v.optional("activation_transfer", s.transfer,
             "sliced: scatter-gather of activations between stages, as in Megatron-LM, on which "
             "AutoHet builds; or leader_broadcast.");
  v.optional("ties", s.ties,
             "Most groupings with the same value of Eq. 3 that Eq. 1 judges; at least 1.");
  v.optional("search_limit", s.search_limit,
             "Most partial groupings per TP dimension (and size, recompute); beyond it the best "
             "so far counts and the report tells the proved bound. 0: none.");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first by Eq. 1; 1: Eq. 1 decides; 0: all that "
             "fit.");
  v.between("micro_batches", s.micro_batches, std::int64_t{0}, std::int64_t{1'000'000'000});
  v.between("micro_batch_size", s.micro_batch_size, 0, 1'000'000);
  v.between("ties", s.ties, 1, 100'000);
  v.between("search_limit", s.search_limit, std::int64_t{0}, std::int64_t{1} << 50);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

class Autohet final : public Planner {
 public:
  using Settings = AutohetSettings;
  explicit Autohet(AutohetSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return search_autohet(input, settings_, kAutohet.name);
  }

 private:
  AutohetSettings settings_;
};

}  // namespace

const PlannerEntry kAutohet = planner_entry<Autohet>(
    "autohet", "AutoHet, section III (Eq. 1-5, Algorithm 1)",
    "TP dimensions; for each all divisions of the GPUs into pipelines by counts of kinds, exactly; "
    "stage order, nodes and layers of the best of them",
    "differences of links between GPUs of a kind until Eq. 1, unequal batches of pipelines, TP "
    "dimensions that do not divide every node, idle GPUs");

}  // namespace orrery::planners
