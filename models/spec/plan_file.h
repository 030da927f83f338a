/// A plan file as a whole (`schema: orrery/plan/1`): the plan, and what it was made for, so that
/// later commands need not be told again.
#pragma once
#include <optional>
#include <string>

#include "models/config/diagnostics.h"
#include "models/config/slots.h"
#include "models/config/visitor.h"
#include "models/ir/plan.h"
#include "models/spec/job.h"

namespace orrery::models {

/// What a planner was given. Names of the library, or paths, in a file seen from its folder.
struct PlanOrigin {
  config::Located<std::string> cluster;
  config::Located<std::string> model;
  Job job;
  std::optional<config::Located<std::string>> profile;
  std::optional<std::string> scale_profile;  ///< FROM=TO: GPU types.
};

struct PlanFile {
  ir::Plan plan;
  std::optional<PlanOrigin> made_for;
};

void describe(config::Visitor& v, PlanOrigin& origin);
void describe(config::Visitor& v, PlanFile& file);

/// Paths in `made_for` come back as seen from the current directory.
PlanFile load_plan_file(const std::string& path, config::Diagnostics& diagnostics);

/// YAML that load_plan_file(path) reads back equal. Paths in `made_for` are those of the current
/// directory; they are written as seen from the folder of `path`.
std::string dump_plan_file(const PlanFile& file, const std::string& path);

}  // namespace orrery::models
