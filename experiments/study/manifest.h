/// A manifest: the runs of an experiment and the figure that they end in.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "experiments/study/run_spec.h"
#include "experiments/study/subject.h"
#include "models/config/diagnostics.h"
#include "models/config/value.h"

namespace orrery::experiments {

/// As written. `run` is the base of every run; each axis of `sweep` is a dotted path into it
/// (`model`, `planner.name`, `job.global_batch`, or a path whose value is a map) and its values.
struct Manifest : Subject {
  std::string base;   ///< Assumptions of the paper (assumptions.h) beside or above; empty: none.
  config::Value run;  ///< On top of the base's.
  /// Alternatives of `run` by name: each is a map of dotted paths and their values, and `name`.
  /// Together one more axis of the sweep, called `case`.
  std::vector<config::Located<std::map<std::string, config::Value>>> cases;
  std::map<std::string, config::Located<std::vector<config::Value>>> sweep;
  /// Points of the sweep to leave out: values of some axes, the others are free.
  std::vector<config::Located<std::map<std::string, config::Value>>> exclude;
  config::Located<std::vector<std::int64_t>> seeds{{0}, {}};
  /// Planners that draw no random numbers: they run with the first seed only.
  std::vector<config::Located<std::string>> unseeded;

  std::string hash;  ///< Content hash of the file.
};

void describe(config::Visitor& v, Manifest& manifest);

/// Problems: those of the file, and scripts or published values that are not there.
Manifest load_manifest(const std::string& path, config::Diagnostics& diagnostics);

/// One point of the sweep.
struct PlannedRun {
  RunSpec spec;
  std::vector<std::pair<std::string, std::string>> axes;  ///< (path, value as text).
  std::string hash;                                       ///< Of the effective config (run_spec.h).
};

/// The product of all axes and seeds, axes in the order of their names, last one fastest, then
/// seeds. The seed of a run is that of its planner, and of the simulator's jitter unless
/// `run.simulation.seed` says otherwise. A job may be the path of a job file, seen from the
/// manifest; inside a manifest it needs no `schema`. Problems, each named once and at the axis that
/// brings it: an empty axis, an axis that leads nowhere, a run that names both a planner and a
/// plan, or neither, unknown planners and options, an exclusion that excludes nothing, equal runs.
std::vector<PlannedRun> expand(const Manifest& manifest, config::Diagnostics& diagnostics);

/// JSON Schema (draft 2020-12) of manifests, for editors.
std::string manifest_schema();
/// Markdown tables of the keys of manifests and of runs.
std::string manifest_reference();

}  // namespace orrery::experiments
