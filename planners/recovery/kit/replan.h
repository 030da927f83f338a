/// Plans for the devices that are left: spares in the gaps of a plan, or a planner of the catalog,
/// which is asked once for all sets of devices that are equal up to their names.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "models/config/visitor.h"
#include "models/interfaces/recovery_policy.h"
#include "planners/planner.h"
#include "planners/recovery/recovery.h"

namespace orrery::planners {

/// Devices of nodes all of whose devices are in `live` (ascending): what a planner that needs whole
/// nodes may use.
std::vector<DeviceId> whole_nodes(const models::Cluster& cluster,
                                  const std::vector<DeviceId>& live);

/// `live` without `leaving` and without devices slower than `slowest` (1: any that is slow).
std::vector<DeviceId> usable(const models::JobState& state, double slowest = 0);

/// True when all of these devices are in `live` (ascending).
bool all_live(const std::vector<DeviceId>& devices, const std::vector<DeviceId>& live);

/// True when every working device of the plan (ir::working_devices) is in `live` (ascending).
bool runs_on(const ir::Plan& plan, const std::vector<DeviceId>& live);

/// Replaces devices by others of the same type at the same position of an equal node: each node
/// with a device that is not in `live` by an unused node of the same kind that is whole in `live`,
/// in order of their ids; inside a node single devices by unused ones of it. None: no spare left.
std::optional<ir::Plan> with_spares(const ir::Plan& plan, const models::Cluster& cluster,
                                    const std::vector<DeviceId>& live);

/// The user's plan, with spares in the place of devices that are not in `live`; null: there is
/// none, or not enough spares.
models::PlanPointer home_plan(const PolicyInput& input, const std::vector<DeviceId>& live);

/// A planner's settings as one setting: name=value,name=value.
struct PlannerOptions {
  Options values;
};
bool from_scalar(const std::string& text, PlannerOptions& out, std::string& error);
std::string to_scalar(const PlannerOptions& options);

/// Setting `planner`: a name of the catalog.
void describe_planner(config::Visitor& v, std::string& planner, const char* doc);
/// And `planner_options`.
void describe_planner(config::Visitor& v, std::string& planner, PlannerOptions& options,
                      const char* doc);

class Replanner {
 public:
  /// Keeps references. `planner` is a name of the catalog; it must exist and take `options`.
  Replanner(const PolicyInput& input, const std::string& planner, const Options& options = {});

  /// The planner's plan on these devices. Node sets that are equal up to a renaming of nodes of the
  /// same kind at the same position of the fabric get the same plan under that renaming: the
  /// planner is asked once, or not at all where PolicyInput::known_searches has its answer.
  FoundPlan plan_for(const std::vector<DeviceId>& devices) const;

 private:
  struct Memory;
  FoundPlan search(const std::vector<DeviceId>& devices) const;
  const PolicyInput& input_;
  std::shared_ptr<Memory> memory_;
};

}  // namespace orrery::planners
