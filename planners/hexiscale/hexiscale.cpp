// HexiScale: a graph partition makes the pipelines, a second one the groups of GPUs inside them;
// stages, their order, layers and batches follow greedily; many rounds, best by the paper's cost
// model or, of the best few, by the evaluator. [HexiScale, section 4 and Appendix A]
#include <string>

#include "planners/catalog.h"
#include "planners/hexiscale/search.h"
#include "planners/hexiscale/settings.h"
#include "planners/kit/settings.h"

namespace orrery::planners {

extern const PlannerEntry kHexiscale;

ir::EnumNames<NumPipelines> enum_names(NumPipelines) {
  using enum NumPipelines;
  return {{enumerate, "enumerate"}, {random_walk_public, "random_walk_public"}};
}
ir::EnumNames<PartitionRule> enum_names(PartitionRule) {
  using enum PartitionRule;
  return {{graph, "graph"}, {random, "random"}};
}
ir::EnumNames<CutRule> enum_names(CutRule) {
  using enum CutRule;
  return {{moving_average, "moving_average"},
          {compare_costs, "compare_costs"},
          {minimize, "minimize"},
          {maximize, "maximize"}};
}
ir::EnumNames<EdgeWeight> enum_names(EdgeWeight) {
  using enum EdgeWeight;
  return {{bandwidth, "bandwidth"}, {inverse_public, "inverse_public"}};
}
ir::EnumNames<GroupCount> enum_names(GroupCount) {
  using enum GroupCount;
  return {{uniform, "uniform"}, {binomial_public, "binomial_public"}};
}
ir::EnumNames<Candidates> enum_names(Candidates) {
  using enum Candidates;
  return {{all, "all"}, {public_lists, "public_lists"}};
}
ir::EnumNames<StageOrder> enum_names(StageOrder) {
  using enum StageOrder;
  return {{top_tau, "top_tau"}, {last_path_public, "last_path_public"}};
}
ir::EnumNames<LayerRule> enum_names(LayerRule) {
  using enum LayerRule;
  return {{by_compute, "by_compute"}, {by_memory_public, "by_memory_public"}};
}
ir::EnumNames<BatchRule> enum_names(BatchRule) {
  using enum BatchRule;
  return {{balanced, "balanced"}, {equal_public, "equal_public"}};
}
ir::EnumNames<CostFactors> enum_names(CostFactors) {
  using enum CostFactors;
  return {{paper, "paper"}, {public_code, "public"}};
}
ir::EnumNames<MemoryRule> enum_names(MemoryRule) {
  using enum MemoryRule;
  return {{timeline, "timeline"}, {equation_11, "equation_11"}};
}
ir::EnumNames<RecomputeRule> enum_names(RecomputeRule) {
  using enum RecomputeRule;
  return {{strongest, "strongest"}, {weakest, "weakest"}};
}

void describe(config::Visitor& v, HexiscaleSettings& s) {
  v.optional("rounds", s.rounds,
             "Iterations of both phases, 1 or more. [5.3: converges within 50]");
  v.optional("micro_batch_size", s.micro_batch_size,
             "Samples per micro-batch, 1 or more. [3.1: 1]");
  v.optional("max_imbalance", s.max_imbalance,
             "Largest compute power of a pipeline over the mean, 1 or more. A hyper-parameter "
             "without a value in the paper [4.2]; the plan of its Table 2 needs 1.102.");
  v.optional("group_imbalance", s.group_imbalance,
             "The same for the groups of GPUs inside a pipeline [4.3 step (i)]; large values keep "
             "machines whole.");
  v.optional("smoothing", s.smoothing,
             "Weight of the newest cost in the moving averages, above 0 up to 1. Not in the paper "
             "[4.4].");
  v.optional("tau", s.tau,
             "Neighbors followed in the search for the stage order, 1 or more [4.3 step (iii)]; "
             "no value in the paper.");
  v.optional("group_counts", s.group_counts,
             "Layouts in each round: values of k_i, the number of GPU groups of a pipeline [4.4].");
  v.optional("evaluate_top", s.evaluate_top,
             "Plans that the evaluator judges, best first by the paper's estimate, in turns with "
             "those of searches beside this one with each power of two as the only tensor-parallel "
             "degree, unless tensor_parallel or candidates bind the degrees. 1: one search, and "
             "the estimate alone decides, as in the paper.");
  v.optional("tensor_parallel", s.tensor_parallel,
             "Degree of all stages, a power of two up to 4096, as without asymmetric tensor "
             "parallelism [5.2]: GPUs of a machine beyond full groups stay idle. 0: each stage "
             "has its own.");
  v.optional("partition", s.partition,
             "graph: GPUs of pipelines and groups by graph partition [4.2, 4.3]. random: shuffled "
             "and dealt in equal numbers, the baseline of [5.3, Figure 8].");
  v.optional("num_pipelines", s.num_pipelines,
             "enumerate: D_dp over all values that memory allows [4.4]. random_walk_public: steps "
             "of one in [N/L + 1, N/5] (public code).");
  v.optional("cut", s.cut,
             "Bandwidth between pipelines: moving_average of costs decides for each D_dp [4.4]; "
             "compare_costs: maximize while data parallelism costs more than pipelines; minimize; "
             "maximize.");
  v.optional("edges", s.edges,
             "Edges of the graph of phase 1: bandwidth [4.2] or inverse_public, 10 / (GB/s) "
             "rounded (public code).");
  v.optional("group_count", s.group_count,
             "k_i: uniform, from 1 to the number of machines (at most 16), at one level for all "
             "pipelines, the first time 1; or binomial_public, 1 + Binomial(2, 0.2) for each "
             "(public code).");
  v.optional("candidates", s.candidates,
             "Tensor-parallel groups tried for each machine: all sums of powers of two, or "
             "public_lists (public code).");
  v.optional("stage_order", s.stage_order,
             "top_tau: smallest sum of hops [4.3 step (iii)]. last_path_public: the "
             "lexicographically largest path of each start, then the lowest total bandwidth "
             "(public code).");
  v.optional("layers", s.layers,
             "by_compute: fastest pipeline under the memory limits [3.3, 5.3]. by_memory_public: "
             "in proportion to the memory of the stages (public code).");
  v.optional("batches", s.batches,
             "Micro-batches per pipeline: balanced, the slowest pipeline ends as early as "
             "possible [3.3], or equal_public (public code).");
  v.optional("cost_factors", s.cost_factors,
             "Cost model of the search: paper (Appendix A) or public (public code: factors 1.8 "
             "and 1.1, no latency, vocabulary term, lock step).");
  v.optional("memory", s.memory,
             "Memory in the search: timeline, the activations of 1F1B as the simulator counts "
             "them, or equation_11 [Appendix A]. Finished plans must fit by the timeline in both "
             "cases.");
  v.optional("recompute", s.recompute,
             "Of what the job allows, for all stages: strongest (full, as in the paper: Appendix "
             "A) or weakest, where memory is ample.");
  v.between("rounds", s.rounds, 1, 1'000'000);
  v.between("micro_batch_size", s.micro_batch_size, 1, 1'000'000);
  v.between("max_imbalance", s.max_imbalance, 1.0, 1000.0);
  v.between("group_imbalance", s.group_imbalance, 1.0, 1000.0);
  v.between("smoothing", s.smoothing, 1e-6, 1.0);
  v.between("tau", s.tau, 1, 16);
  v.between("group_counts", s.group_counts, 1, 16);
  v.between("evaluate_top", s.evaluate_top, 1, 1000);
  v.between("tensor_parallel", s.tensor_parallel, 0, 4096);
  check_power_of_two(v, "tensor_parallel", s.tensor_parallel);
}

namespace {

/// Beyond this the graph of devices would not fit in memory.
constexpr std::size_t kMostGraphDevices = 4096;

class Hexiscale final : public Planner {
 public:
  using Settings = HexiscaleSettings;
  explicit Hexiscale(HexiscaleSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    if (input.devices.size() > kMostGraphDevices || input.devices.empty()) {
      return {models::Infeasible{"number of devices",
                                 "HexiScale partitions the complete graph of 1 to 4096 devices, "
                                 "not of " +
                                     std::to_string(input.devices.size())},
              {}};
    }
    return HexiscaleSearch(input, settings_, kHexiscale).run();
  }

 private:
  HexiscaleSettings settings_;
};

}  // namespace

const PlannerEntry kHexiscale = planner_entry<Hexiscale>(
    "hexiscale", "HexiScale, sections 3.2, 4 and Appendix A",
    "number of pipelines, GPUs of each, tensor-parallel groups per machine, stage order, layers "
    "and batch per pipeline",
    "experts (layers count as dense), contention between flows, work of embedding and head",
    /*estimate=*/nullptr, /*takes_lengths=*/true, /*draws=*/true);

}  // namespace orrery::planners
