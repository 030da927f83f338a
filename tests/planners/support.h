/// Clusters, models and an evaluator for tests of planners, so that no simulator is needed.
#pragma once
#include <string>
#include <vector>

#include "models/cost/memory.h"
#include "models/spec/topology.h"
#include "planners/catalog.h"
#include "planners/planner.h"

namespace orrery::planners {

/// `machines` nodes with `gpus` GPUs of a type each.
struct Machines {
  std::string type;
  double tflops = 100;
  double memory_gib = 24;
  int gpus = 1;
  double inside_gbps = 100;  ///< GB/s between any two GPUs of the node.
  int machines = 1;
};
models::Cluster make_cluster(const std::vector<Machines>& machines, double between_gbps);

/// The machines A, B and C of HexiScale's case study (3.1).
models::Cluster case_study_cluster();
/// The mix of HexiScale's Appendix B, scaled to about `gpus` GPUs; 240: the published one.
models::Cluster mixed_cluster(int gpus);

/// Llama shapes; `layers` replaces the number of layers where it is positive.
ir::ModelShape llama2_13b(int layers = 0);
ir::ModelShape llama_30b();
/// A small model: 1,024 wide, 16 heads.
ir::ModelShape small_model(int layers);

/// All that a planner needs, owned. The evaluator is the closed form of planners/kit/estimate.h
/// with the verdict of check_memory.
class World {
 public:
  World(models::Cluster cluster, const ir::ModelShape& shape, std::int64_t global_batch,
        std::int64_t sequence_length = 4096);
  World(const World&) = delete;

  models::Cluster cluster;
  models::Topology topology;
  models::Job job;
  models::Workload workload;
  ir::Profile profile;

  PlannerInput input(std::uint64_t seed = 1) const;
  ir::MemoryVerdict verdict(const ir::Plan& plan) const;
  /// HexiScale's Eq. 10 with the paper's factors.
  Seconds paper_estimate(const ir::Plan& plan) const;
  /// What validate() has against the plan, one line each.
  std::string defects(const ir::Plan& plan) const;

 private:
  class ClosedForm;
  std::shared_ptr<models::Evaluator> evaluator_;
};

/// Runs the planner of that name; aborts on bad options.
PlannerResult run_planner(const char* name, const PlannerInput& input, const Options& options = {});

}  // namespace orrery::planners
