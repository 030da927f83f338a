// HetHub: a tree of three levels (uneven pipeline stages over GPU types, uniform data parallelism,
// uniform tensor parallelism), searched depth first; leaves are ranked by a 1F1B predictor with the
// slowest stage first. [HetHub, section 3.3]
//
// Deviation: the paper gives neither the predictor's formulas nor the value of its "upper bound"
// per stage; hethub_predictor.h says what stands in for the former, option stage_bound for the
// latter. Recomputation and ZeRO, of which the paper says nothing, are chosen by the same predictor
// among what the job allows.
#include "models/ir/names.h"
#include "planners/catalog.h"
#include "planners/hethub/search.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kHethub;

ir::EnumNames<HethubLayers> enum_names(HethubLayers) {
  return {{HethubLayers::by_type, "by_type"}, {HethubLayers::even, "even"}};
}
ir::EnumNames<HethubOrder> enum_names(HethubOrder) {
  return {{HethubOrder::descending, "descending"},
          {HethubOrder::ascending, "ascending"},
          {HethubOrder::cluster, "cluster"}};
}
ir::EnumNames<HethubCommunicator> enum_names(HethubCommunicator) {
  return {{HethubCommunicator::cluster, "cluster"}, {HethubCommunicator::rdma, "rdma"}};
}

void describe(config::Visitor& v, HethubSettings& s) {
  v.optional("tensor_parallel", s.tensor, "The degree of all stages; 0: every one. [Table 1: 2]");
  v.optional("data_parallel", s.replicas,
             "Replicas of all stages; 0: every number that divides the batch. [Table 1: 4]");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples per micro-batch [Table 1: 1]; 0: every size that the job allows.");
  v.optional("stage_bound", s.stage_bound,
             "Bottleneck restriction [3.3.2, rule 2; no value in the paper]: the longest stage may "
             "take this many times the shortest possible longest stage under the same degrees, 1 "
             "or more. 0: no bound but the one that keeps the optimum, that a branch is left when "
             "its longest stage alone takes longer than the plans found.");
  v.optional("layers", s.layers,
             "by_type: non-uniform slicing, layers for each GPU type; even: uniform slicing, all "
             "stages within one layer [4.2.2: baseline].");
  v.optional("stage_order", s.order,
             "descending: slowest stage first [3.3.2, rule 3]; ascending; cluster: type by type as "
             "the cluster file has them.");
  v.optional("communicator", s.communicator,
             "Between vendors: cluster, host-staged where the cluster says so (CPU-based "
             "communicator); rdma: as if they had a common library (GPU-based communicator). "
             "[3.1]");
  v.optional("activation_transfer", s.transfer,
             "leader_broadcast: the whole tensor between leaders [Eq. 1], then to the other "
             "members; or sliced: scatter-gather (Megatron-LM).");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best by the predictor first; 1: the predictor alone "
             "decides, as in the paper; 0: all.");
  v.between("tensor_parallel", s.tensor, 0, 1 << 20);
  v.between("data_parallel", s.replicas, 0, 1 << 20);
  v.between("micro_batch_size", s.micro_batch_size, 0, 1 << 20);
  if (s.stage_bound != 0) v.between("stage_bound", s.stage_bound, 1.0, 1e6);
  v.between("evaluate_top", s.evaluate_top, 0, 1'000'000);
}

namespace {

class Hethub final : public Planner {
 public:
  using Settings = HethubSettings;
  explicit Hethub(HethubSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return hethub_search(kHethub.name, input, settings_);
  }

 private:
  HethubSettings settings_;
};

}  // namespace

const PlannerEntry kHethub = planner_entry<Hethub>(
    "hethub", "HetHub (Xu et al. 2024), sections 3.1 to 3.3",
    "layers for each GPU type x uniform DP x uniform TP, stages of a type within one layer, "
    "slowest stage first, under 1F1B",
    "contention between flows, replicas or stages of unequal width, stages of mixed GPU types, "
    "overlap of gradients with the backward pass");

}  // namespace orrery::planners
