/// Asking a planner, by name or in Python.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/interfaces/evaluator.h"
#include "planners/planner.h"
#include "tools/python/context.h"

namespace orrery::python {

/// `what`: a name of the catalog, or an object with plan(input). Without `devices` all of the
/// cluster. Throws ConfigError for unknown names and bad options, KeyboardInterrupt after Ctrl-C.
planners::PlannerResult search(std::shared_ptr<Context> context, const py::object& what,
                               const std::map<std::string, std::string>& options,
                               const models::Evaluator& evaluator,
                               const std::optional<std::vector<DeviceId>>& devices,
                               std::uint64_t seed, std::int64_t work_budget);

}  // namespace orrery::python
