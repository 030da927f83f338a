// What a planner's own cost model says about a plan that it did not make: the planners' cost
// classes get the stages, groups and layers of a plan file. Prints one number (seconds) for each
// plan, or "not expressible: why" if the model cannot represent it.
//
//     agreement_estimate PLANNER CLUSTER MODEL JOB.yaml PLAN.yaml...
//
// Planners: autohet (Eq. 1), hethub (its 1F1B predictor), hetu (iteration objective), metis (ATC
// 2024, 4.2). The options are the planners' defaults. agreement.py feeds it the planner's own plan
// too, and stops unless the number is the estimate that the planner reported.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <variant>

#include "models/config/diagnostics.h"
#include "models/interfaces/evaluator.h"
#include "models/spec/library.h"
#include "planners/catalog.h"

namespace orrery::planners {
namespace {

/// Cost models never ask it.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override { return {}; }
  std::string name() const override { return "none"; }
};

int run(std::span<char*> arguments) {
  const PlannerEntry* planner = arguments.size() < 6 ? nullptr : find_planner(arguments[1]);
  if (planner == nullptr || planner->estimate == nullptr) {
    fmt::print(stderr, "usage: {} autohet|hethub|hetu|metis CLUSTER MODEL JOB PLAN...\n",
               arguments[0]);
    return 2;
  }
  config::Diagnostics diagnostics;
  const models::Library library = models::load_library(models::default_library_root(), diagnostics);
  const models::Cluster cluster = models::load_cluster(arguments[2], library, {}, diagnostics);
  const models::Job job = models::load_job(arguments[4], diagnostics);
  const models::Workload workload =
      models::load_workload(arguments[3], job, library, {}, diagnostics);
  diagnostics.raise();
  const models::Topology topology(cluster);
  const ir::Profile profile;
  const NoEvaluator evaluator;
  for (char* path : arguments.subspan(5)) {
    const ir::Plan plan = models::load_plan(path, diagnostics);
    diagnostics.raise();
    PlannerInput input{cluster, topology, workload, job, profile, evaluator, {}, 0, 0, nullptr};
    input.devices = ir::devices_of(plan);
    const auto own = planner->estimate(input, plan);
    if (const auto* no = std::get_if<models::Infeasible>(&own)) {
      fmt::print("not expressible: {}\n", no->witness);
    } else {
      fmt::print("{:.17g}\n", std::get<Seconds>(own).value);
    }
  }
  return 0;
}

}  // namespace
}  // namespace orrery::planners

int main(int count, char** values) {
  try {
    return orrery::planners::run({values, static_cast<std::size_t>(count)});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
