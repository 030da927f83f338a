// What recoveries are made of: where the state for a plan comes from, and the closed form of moving
// it.
#include "models/reshard/reshard_plan.h"
#include "planners/recovery/kit/checkpointing.h"
#include "planners/recovery/kit/restore.h"
#include "planners/recovery/kit/transfer_estimate.h"
#include "tools/python/bindings.h"
#include "tools/python/context.h"

namespace orrery::python {
namespace {

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

void bind_recovery_kit(py::module_& m) {
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
  m.def("young_interval", [](double cost, double interruptions_per_second) {
    return planners::young_interval(Seconds{cost}, interruptions_per_second).value;
  });
  m.def("expected_ettr",
        [](double interruptions_per_second, double restart, double interval, double cost) {
          return planners::expected_ettr(interruptions_per_second, Seconds{restart},
                                         Seconds{interval}, Seconds{cost});
        });
  m.def("replica_survival",
        [](int nodes, int replicas, int lost, planners::ReplicaPlacement placement) {
          if (nodes < 1 || replicas < 1 || replicas > nodes || lost < 0 || lost > nodes) {
            throw py::value_error("1 <= replicas <= nodes and 0 <= lost <= nodes");
          }
          return planners::replica_survival(nodes, replicas, lost, placement);
        });
}

}  // namespace orrery::python
