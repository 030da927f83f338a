#include "tests/planners/support.h"

#include <memory>
#include <set>

#include "models/base/check.h"
#include "models/check/validate.h"
#include "models/cost/hexiscale_model.h"
#include "planners/kit/estimate.h"

namespace orrery::planners {

class World::ClosedForm final : public models::Evaluator {
 public:
  explicit ClosedForm(const World& world) : world_(world), estimator_(world.input()) {}
  models::Evaluation evaluate(const ir::Plan& plan) const override {
    models::Evaluation result;
    result.iteration_time = estimator_.estimate(plan);
    result.memory = world_.verdict(plan);
    return result;
  }
  std::string name() const override { return "closed form"; }

 private:
  const World& world_;
  PlanEstimator estimator_;
};

namespace {

/// In its place until the world has built its own evaluator.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override { return {}; }
  std::string name() const override { return "none"; }
};

}  // namespace

World::World(models::Cluster c, const ir::ModelShape& shape, std::int64_t global_batch,
             std::int64_t sequence_length)
    : cluster(std::move(c)),
      topology(cluster),
      job(worlds::make_job(global_batch, sequence_length)),
      workload(models::build_workload(shape, sequence_length, job.dtype)),
      evaluator_(std::make_shared<NoEvaluator>()) {
  evaluator_ = std::make_shared<ClosedForm>(*this);
}

PlannerInput World::input(std::uint64_t seed) const {
  PlannerInput result{cluster, topology, workload, job, profile, *evaluator_, {}, seed, 0, nullptr};
  for (const models::Device& device : cluster.devices) result.devices.push_back(device.id);
  return result;
}

ir::MemoryVerdict World::verdict(const ir::Plan& plan) const {
  return models::check_memory(plan, cluster, workload, job, profile);
}

Seconds World::paper_estimate(const ir::Plan& plan) const {
  const models::HexiscaleModel model(
      cluster, workload, [&](DeviceId a, DeviceId b) { return topology.path(a, b); },
      models::HexiscaleOptions::paper());
  return model.estimate(plan).iteration;
}

std::string World::defects(const ir::Plan& plan) const {
  std::string text;
  for (const models::PlanDefect& d : models::validate(plan, cluster, workload, job)) {
    text += d.path + ": " + d.what + "\n";
  }
  return text;
}

PlannerResult run_planner(const char* name, const PlannerInput& input, const Options& options) {
  const PlannerEntry* entry = find_planner(name);
  ORRERY_CHECK(entry != nullptr, "no planner {}", name);
  return entry->make(options)->plan(input);
}

const ir::Plan* plan_of(const PlannerResult& result) {
  return std::get_if<ir::Plan>(&result.outcome);
}

double estimate_of(const PlannerResult& result) {
  return plan_of(result) == nullptr ? kNever : result.report.estimate->value;
}

void Best::offer(double seconds, bool fits) {
  ++examined;
  rejected += fits ? 0 : 1;
  double& best = fits ? time : forbidden;
  best = std::min(best, seconds);
}

std::string complaint(const World& world, const PlannerInput& input, const PlannerResult& result) {
  if (const auto* no = std::get_if<models::Infeasible>(&result.outcome)) {
    if (no->constraint.empty()) return "Infeasible without a constraint";
    if (no->witness.empty()) return "Infeasible without a witness";
    return "";
  }
  const auto& plan = std::get<ir::Plan>(result.outcome);
  const std::string defects = world.defects(plan);
  if (!defects.empty()) return defects;
  if (!world.verdict(plan).fits()) return world.verdict(plan).explain();
  if (!plan.predicted) return "the plan is not signed";
  const std::set<DeviceId> allowed(input.devices.begin(), input.devices.end());
  for (const DeviceId device : ir::devices_of(plan)) {
    if (!allowed.contains(device)) return "device " + std::to_string(device.value) + " is not its";
  }
  return "";
}

}  // namespace orrery::planners
