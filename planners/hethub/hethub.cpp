// HetHub: a tree of three levels (uneven pipeline stages over GPU types, uniform data parallelism,
// uniform tensor parallelism), searched depth first; leaves are ranked by a 1F1B predictor with the
// slowest stage first. [HetHub, section 3.3]
//
// Deviation: the paper gives neither the predictor's formulas nor the value of its "upper bound"
// per stage; hethub_predictor.h says what stands in for the former, option stage_bound for the
// latter. Recomputation and ZeRO, of which the paper says nothing, are chosen by the same predictor
// among what the job allows.
#include <memory>

#include "planners/catalog.h"
#include "planners/hethub/search.h"
#include "planners/kit/options.h"

namespace orrery::planners {

extern const PlannerEntry kHethub;

namespace {

std::vector<OptionInfo> options() {
  return {
      {"tensor_parallel", "0", "The degree of all stages; 0: every one. [Table 1: 2]"},
      {"data_parallel", "0",
       "Replicas of all stages; 0: every number that divides the batch. [Table 1: 4]"},
      {"micro_batch_size", "1",
       "Samples per micro-batch [Table 1: 1]; 0: every size that the job allows."},
      {"stage_bound", "0",
       "Bottleneck restriction [3.3.2, rule 2; no value in the paper]: the longest stage may take "
       "this many times the shortest possible longest stage under the same degrees, 1 or more. 0: "
       "no bound but the one that keeps the optimum, that a branch is left when its longest stage "
       "alone takes longer than the plans found."},
      {"layers", "by_type",
       "by_type: non-uniform slicing, layers for each GPU type; even: uniform slicing, all stages "
       "within one layer [4.2.2: baseline]."},
      {"stage_order", "descending",
       "descending: slowest stage first [3.3.2, rule 3]; ascending; cluster: type by type as the "
       "cluster file has them."},
      {"communicator", "cluster",
       "Between vendors: cluster, host-staged where the cluster says so (CPU-based communicator); "
       "rdma: as if they had a common library (GPU-based communicator). [3.1]"},
      {"activation_transfer", "leader_broadcast",
       "leader_broadcast: the whole tensor between leaders [Eq. 1], then to the other members; or "
       "sliced: scatter-gather (Megatron-LM)."},
      {"evaluate_top", "1",
       "Plans that the evaluator judges, best by the predictor first; 1: the predictor alone "
       "decides, as in the paper; 0: all."},
  };
}

class Hethub final : public Planner {
 public:
  explicit Hethub(HethubSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    return hethub_search(kHethub.name, input, settings_);
  }

 private:
  HethubSettings settings_;
};

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  HethubSettings settings;
  settings.tensor = static_cast<int>(reader.integer("tensor_parallel", 0, 1 << 20));
  settings.replicas = static_cast<int>(reader.integer("data_parallel", 0, 1 << 20));
  settings.micro_batch_size = static_cast<int>(reader.integer("micro_batch_size", 0, 1 << 20));
  settings.stage_bound = reader.number("stage_bound", 0, 1e6);
  settings.even = reader.choice<bool>("layers", {{"by_type", false}, {"even", true}});
  settings.order =
      reader.choice<HethubOrder>("stage_order", {{"descending", HethubOrder::descending},
                                                 {"ascending", HethubOrder::ascending},
                                                 {"cluster", HethubOrder::cluster}});
  settings.communicator = reader.choice<HethubCommunicator>(
      "communicator",
      {{"cluster", HethubCommunicator::cluster}, {"rdma", HethubCommunicator::rdma}});
  settings.transfer = reader.choice<ir::ActivationTransfer>(
      "activation_transfer", {{"sliced", ir::ActivationTransfer::sliced},
                              {"leader_broadcast", ir::ActivationTransfer::leader_broadcast}});
  settings.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 0, 1'000'000));
  if (reader.problem()) return *reader.problem();
  if (settings.stage_bound > 0 && settings.stage_bound < 1) {
    return PlannerEntry::BadOption{"stage_bound", "expected 0 or a number from 1 to 1e6"};
  }
  return std::make_unique<Hethub>(settings);
}

}  // namespace

const PlannerEntry kHethub = {
    "hethub",
    "HetHub (Xu et al. 2024), sections 3.1 to 3.3",
    "layers for each GPU type x uniform DP x uniform TP, stages of a type within one layer, "
    "slowest "
    "stage first, under 1F1B",
    "contention between flows, replicas or stages of unequal width, stages of mixed GPU types, "
    "overlap of gradients with the backward pass",
    options,
    make,
};

}  // namespace orrery::planners
