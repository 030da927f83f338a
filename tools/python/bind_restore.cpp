// What recoveries are made of: where the state for a plan comes from, and the closed form of moving
// it.
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/transfer_estimate.h"
#include "tools/python/bindings.h"
#include "tools/python/context.h"

namespace orrery::python {
namespace {

/// Iteration times are not asked for here.
class NoEvaluator final : public models::Evaluator {
 public:
  models::Evaluation evaluate(const ir::Plan&) const override {
    ORRERY_CHECK(false, "nothing here asks for an iteration time");
    return {};
  }
  std::string name() const override { return "none"; }
};

planners::PolicyInput input_of(const Context& at, const models::Evaluator& evaluator) {
  return {at.cluster(), at.topology(), at.workload(), at.job(), at.profile(), evaluator, 0, {}, 0};
}

/// Plans that only say where state lies need not be valid, but their devices and blocks exist.
void check_places(const ir::Plan& plan, const Context& at) {
  for (const DeviceId device : ir::devices_of(plan)) {
    if (!device.valid() || device.value >= at.cluster().size()) {
      throw py::index_error("a device that the cluster does not have");
    }
  }
  for (const ir::Pipeline& pipeline : plan.pipelines) {
    for (const ir::Stage& stage : pipeline.stages) {
      for (const ir::Segment& segment : stage.segments) {
        if (!segment.first_block.valid() || segment.last_block.value >= at.workload().size()) {
          throw py::index_error("a block that the model does not have");
        }
      }
    }
  }
}

/// Transfers that were built in code may name devices that are not there.
void check_devices(const std::vector<models::StateTransfer>& transfers,
                   const models::Cluster& cluster) {
  for (const models::StateTransfer& transfer : transfers) {
    for (const DeviceId device : {transfer.source, transfer.destination}) {
      if (device.value >= cluster.size()) throw py::index_error("a transfer of no device");
    }
  }
}

}  // namespace

void bind_restore(py::module_& m) {
  ORRERY_RECORD(m, models::ReshardBytes, "Bytes per parameter of the states that move.", weight,
                master, moments);
  ORRERY_RECORD(m, planners::Restore,
                "Where the state of a plan comes from; `from_` sums bytes by source, `missing` are "
                "nowhere and `witness` names the first of them.",
                transfers, from, missing, witness);
  m.def("weight_bytes", [](const models::Job& job) { return models::weight_bytes(job); });
  m.def("all_state_bytes", [](const models::Job& job) { return models::all_state_bytes(job); });
  m.def("plan_restore", [](const Context& at, const models::JobState& state, const ir::Plan& to,
                           std::int64_t iteration, const std::vector<planners::StateSource>& order,
                           const models::ReshardBytes& bytes) {
    check_places(to, at);
    for (const models::StateReplica& replica : state.replicas) {
      if (replica.layout == nullptr) throw py::value_error("a replica has no layout");
      check_places(*replica.layout, at);
    }
    const NoEvaluator none;
    return planners::plan_restore(input_of(at, none), state, to, {iteration, order, bytes});
  });
  m.def("transfer_estimate",
        [](const Context& at, const std::vector<models::StateTransfer>& transfers) {
          check_devices(transfers, at.cluster());
          const NoEvaluator none;
          return planners::transfer_estimate(input_of(at, none), transfers).value;
        });
}

}  // namespace orrery::python
