// HexiScale: a graph partition makes the pipelines, a second one the groups of GPUs inside them;
// stages, their order, layers and batches follow greedily; many rounds, best by the paper's cost
// model or, of the best few, by the evaluator. [HexiScale, section 4 and Appendix A]
#include <memory>

#include "planners/catalog.h"
#include "planners/hexiscale/search.h"
#include "planners/hexiscale/settings.h"
#include "planners/kit/options.h"

namespace orrery::planners {

extern const PlannerEntry kHexiscale;

namespace {

/// Beyond this the graph of devices would not fit in memory.
constexpr std::size_t kMostDevices = 4096;

std::vector<OptionInfo> options() {
  return {
      {"rounds", "50", "Iterations of both phases, 1 or more. [5.3: converges within 50]"},
      {"micro_batch_size", "1", "Samples per micro-batch, 1 or more. [3.1: 1]"},
      {"max_imbalance", "1.15",
       "Largest compute power of a pipeline over the mean, 1 or more. A hyper-parameter without a "
       "value in the paper [4.2]; the plan of its Table 2 needs 1.102."},
      {"group_imbalance", "2",
       "The same for the groups of GPUs inside a pipeline [4.3 step (i)]; large values keep "
       "machines whole."},
      {"smoothing", "0.3",
       "Weight of the newest cost in the moving averages, above 0 up to 1. Not in the paper "
       "[4.4]."},
      {"tau", "2",
       "Neighbors followed in the search for the stage order, 1 or more [4.3 step (iii)]; no "
       "value in the paper."},
      {"group_counts", "3",
       "Layouts in each round: values of k_i, the number of GPU groups of a pipeline [4.4]."},
      {"evaluate_top", "4",
       "Plans, best by the paper's estimate, of which the evaluator picks the fastest; as many "
       "stand in from searches beside this one with each power of two as the only tensor-parallel "
       "degree, unless tensor_parallel or candidates bind the degrees. 1: one search, and the "
       "estimate alone decides, as in the paper."},
      {"tensor_parallel", "0",
       "Degree of all stages, a power of two up to 4096, as without asymmetric tensor parallelism "
       "[5.2]: GPUs of a machine beyond full groups stay idle. 0: each stage has its own."},
      {"partition", "graph",
       "graph: GPUs of pipelines and groups by graph partition [4.2, 4.3]. random: shuffled and "
       "dealt in equal numbers, the baseline of [5.3, Figure 8]."},
      {"num_pipelines", "enumerate",
       "enumerate: D_dp over all values that memory allows [4.4]. random_walk_public: steps of one "
       "in [N/L + 1, N/5] (public code)."},
      {"cut", "moving_average",
       "Bandwidth between pipelines: moving_average of costs decides for each D_dp [4.4]; "
       "compare_costs: maximize while data parallelism costs more than pipelines; minimize; "
       "maximize."},
      {"edges", "bandwidth",
       "Edges of the graph of phase 1: bandwidth [4.2] or inverse_public, 10 / (GB/s) rounded "
       "(public code)."},
      {"group_count", "uniform",
       "k_i: uniform, from 1 to the number of machines (at most 16), at one level for all "
       "pipelines, the first time 1; or binomial_public, 1 + Binomial(2, 0.2) for each (public "
       "code)."},
      {"candidates", "all",
       "Tensor-parallel groups tried for each machine: all sums of powers of two, or public_lists "
       "(public code)."},
      {"stage_order", "top_tau",
       "top_tau: smallest sum of hops [4.3 step (iii)]. last_path_public: the lexicographically "
       "largest path of each start, then the lowest total bandwidth (public code)."},
      {"layers", "by_compute",
       "by_compute: fastest pipeline under the memory limits [3.3, 5.3]. by_memory_public: in "
       "proportion to the memory of the stages (public code)."},
      {"batches", "balanced",
       "Micro-batches per pipeline: balanced, the slowest pipeline ends as early as possible "
       "[3.3], or equal_public (public code)."},
      {"cost_factors", "paper",
       "Cost model of the search: paper (Appendix A) or public (public code: factors 1.8 and 1.1, "
       "no latency, vocabulary term, lock step)."},
      {"memory", "timeline",
       "Memory in the search: timeline, the activations of 1F1B as the simulator counts them, or "
       "equation_11 [Appendix A]. Finished plans must fit by the timeline in both cases."},
      {"recompute", "strongest",
       "Of what the job allows, for all stages: strongest (full, as in the paper: Appendix A) or "
       "weakest, where memory is ample."},
  };
}

class Hexiscale final : public Planner {
 public:
  explicit Hexiscale(HexiscaleSettings settings) : settings_(settings) {}
  PlannerResult plan(const PlannerInput& input) const override {
    if (input.devices.size() > kMostDevices || input.devices.empty()) {
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

void read_switches(OptionReader& reader, HexiscaleSettings& s) {
  s.num_pipelines = reader.choice<NumPipelines>(
      "num_pipelines", {{"enumerate", NumPipelines::enumerate},
                        {"random_walk_public", NumPipelines::random_walk_public}});
  s.partition = reader.choice<PartitionRule>(
      "partition", {{"graph", PartitionRule::graph}, {"random", PartitionRule::random}});
  s.cut = reader.choice<CutRule>("cut", {{"moving_average", CutRule::moving_average},
                                         {"compare_costs", CutRule::compare_costs},
                                         {"minimize", CutRule::minimize},
                                         {"maximize", CutRule::maximize}});
  s.edges = reader.choice<EdgeWeight>("edges", {{"bandwidth", EdgeWeight::bandwidth},
                                                {"inverse_public", EdgeWeight::inverse_public}});
  s.group_count = reader.choice<GroupCount>(
      "group_count",
      {{"uniform", GroupCount::uniform}, {"binomial_public", GroupCount::binomial_public}});
  s.candidates = reader.choice<Candidates>(
      "candidates", {{"all", Candidates::all}, {"public_lists", Candidates::public_lists}});
  s.stage_order = reader.choice<StageOrder>(
      "stage_order",
      {{"top_tau", StageOrder::top_tau}, {"last_path_public", StageOrder::last_path_public}});
  s.layers = reader.choice<LayerRule>(
      "layers",
      {{"by_compute", LayerRule::by_compute}, {"by_memory_public", LayerRule::by_memory_public}});
  s.batches = reader.choice<BatchRule>(
      "batches", {{"balanced", BatchRule::balanced}, {"equal_public", BatchRule::equal_public}});
  s.cost_factors = reader.choice<CostFactors>(
      "cost_factors", {{"paper", CostFactors::paper}, {"public", CostFactors::public_code}});
  s.recompute = reader.choice<RecomputeRule>(
      "recompute", {{"strongest", RecomputeRule::strongest}, {"weakest", RecomputeRule::weakest}});
  s.memory = reader.choice<MemoryRule>(
      "memory", {{"timeline", MemoryRule::timeline}, {"equation_11", MemoryRule::equation_11}});
}

std::variant<std::unique_ptr<Planner>, PlannerEntry::BadOption> make(const Options& given) {
  OptionReader reader(options(), given);
  HexiscaleSettings s;
  s.rounds = static_cast<int>(reader.integer("rounds", 1, 1'000'000));
  s.micro_batch_size = static_cast<int>(reader.integer("micro_batch_size", 1, 1'000'000));
  s.max_imbalance = reader.number("max_imbalance", 1, 1000);
  s.group_imbalance = reader.number("group_imbalance", 1, 1000);
  s.smoothing = reader.number("smoothing", 1e-6, 1);
  s.tau = static_cast<int>(reader.integer("tau", 1, 16));
  s.group_counts = static_cast<int>(reader.integer("group_counts", 1, 16));
  s.evaluate_top = static_cast<int>(reader.integer("evaluate_top", 1, 1000));
  s.tensor_parallel = static_cast<int>(reader.integer("tensor_parallel", 0, 4096));
  read_switches(reader, s);
  if (reader.problem()) return *reader.problem();
  return std::make_unique<Hexiscale>(s);
}

}  // namespace

const PlannerEntry kHexiscale = {
    "hexiscale",
    "HexiScale, sections 3.2, 4 and Appendix A",
    "number of pipelines, GPUs of each, tensor-parallel groups per machine, stage order, layers "
    "and batch per pipeline",
    "experts (layers count as dense), contention between flows, work of embedding and head",
    options,
    make,
};

}  // namespace orrery::planners
