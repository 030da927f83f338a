/// Settings of a run of a twin (`command: twin`): a plan that is executed on this machine and
/// predicted, or such a run that loses a device. `orrery twin` carries them out: they share the
/// machine, follow each other, and what is fitted to some of them predicts the others.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "experiments/study/run_spec.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

struct TwinRunSettings {
  config::Located<std::string> cluster;  ///< Name or file, as in all of these.
  config::Located<std::string> model;
  /// File. That of most runs; one of a run's own has the same sequence length and dtype.
  config::Located<std::string> job;
  /// File, of the machine; none: it is measured (orrery calibrate).
  std::optional<config::Located<std::string>> profile;
  std::int64_t steps = 10;
  std::int64_t warm_up = 2;
  std::int64_t seed = 0;
  std::optional<config::Located<std::string>> plan;  ///< File, seen from the study.
  std::optional<PlannerChoice> planner;
  bool fit = false;  ///< The run is for fitting, the others are predicted.
  /// Why it is no unseen run, if the model was changed after a look at it.
  std::optional<config::Located<std::string>> seen;
  /// A run that loses a device has no plan or planner: it begins with the plan of this run.
  std::optional<config::Located<std::string>> from;
  std::optional<config::Located<std::string>> policy;  ///< That says how to go on.
  std::optional<config::Located<std::string>> kill;    ///< RANK@STEP
};

void describe(config::Visitor& v, TwinRunSettings& run);

}  // namespace orrery::experiments
