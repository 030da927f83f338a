/// What recovery policies are made of: their input and their entry of the catalog. A policy is one
/// .cpp or one folder, listed in catalog.cpp; what several policies share is in kit/.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "models/base/units.h"
#include "models/interfaces/evaluator.h"
#include "models/interfaces/recovery_policy.h"
#include "models/ir/plan.h"
#include "models/ir/profile.h"
#include "models/spec/cluster.h"
#include "models/spec/job.h"
#include "models/spec/runtime.h"
#include "models/spec/topology.h"
#include "models/spec/workload.h"
#include "planners/kit/settings.h"
#include "planners/planner.h"

namespace orrery::planners {

/// What kit/state_layouts.h has worked out; not for concurrent use.
class StateMemory;
std::shared_ptr<StateMemory> new_state_memory();

/// Interruptions so far, kept up to date by who asks the policy.
struct InterruptionsSeen {
  std::int64_t count = 0;
  Seconds elapsed;  ///< Of the job, until the last event.
};

/// A plan, or why there is none.
using FoundPlan = std::variant<models::PlanPointer, models::Infeasible>;

/// What searches of planners found, in this run or in another.
class KnownSearches {
 public:
  virtual ~KnownSearches() = default;
  /// What `search` returns, remembered by `question`: all that it depends on besides cluster,
  /// model, profile and evaluator.
  virtual FoundPlan plan(const std::string& question,
                         const std::function<FoundPlan()>& search) const = 0;
};

/// All outlive the policy. But for the expected rate of interruptions nothing about the future is
/// known to a policy.
struct PolicyInput {
  const models::Cluster& cluster;
  const models::Topology& topology;
  const models::Workload& workload;
  const models::Job& job;
  const ir::Profile& profile;
  /// Iteration times of plans on healthy devices; replay's, which remembers what it has simulated.
  const models::Evaluator& evaluator;
  /// Interruptions of the whole job per second that a user would expect (failures and preemptions
  /// of devices in use, planned maintenance left out), for checkpoint intervals and liveput; 0:
  /// unknown. What the user says, or the generator's rate. A trace file names no rate: then the
  /// policy has what it has seen so far (`seen`).
  double interruptions_per_second = 0;
  /// The plan that the user gives; policies that replan start with it, return to it while spare
  /// devices fill its gaps, and keep their own planner for later. None: the policy's planner.
  std::optional<ir::Plan> plan;
  std::uint64_t seed = 0;
  /// Counts how often a planner was asked (kit/replan.h does it); may be null.
  std::int64_t* searches = nullptr;
  /// Copies of the input share it.
  std::shared_ptr<StateMemory> memory = new_state_memory();
  /// What it takes to notice, to start, to connect and to search.
  models::Runtime runtime = {};
  /// Null: not counted, the rate above holds.
  std::shared_ptr<const InterruptionsSeen> seen = nullptr;
  /// Null: every search is made.
  const KnownSearches* known_searches = nullptr;
};

/// A policy, or why this job on this cluster cannot have it.
using MadePolicy = std::variant<std::unique_ptr<models::RecoveryPolicy>, models::Infeasible>;

/// An entry of the catalog.
struct RecoveryEntry {
  const char* name;
  const char* source;    ///< Paper and section.
  const char* recovers;  ///< One line: what it does at a failure.
  const char* needs;     ///< One line: the plan that it needs ("ZeRO off, two pipelines at least").
  const char* loses;     ///< One line: what work is lost.
  const char* slow;      ///< One line: what it does about slow devices.
  /// One line: where the simulated policy differs from its source or leaves something out, and
  /// whom that favors where it is known.
  const char* deviations;
  std::vector<OptionInfo> (*options)() = nullptr;
  /// As PlannerEntry::check().
  config::Diagnostics (*check)(const Options& options) = nullptr;
  /// Takes options in which check() finds nothing wrong.
  MadePolicy (*make)(const PolicyInput& input, const Options& options) = nullptr;
};

/// RecoveryEntry::slow of policies without and with the setting `slowest`.
inline constexpr const char* kKeepsSlowDevices = "trains on at the pace of the slowest device";
inline constexpr const char* kLeavesOutSlowDevices =
    "trains on at the pace of the slowest device; with option slowest, changes to a plan without "
    "it";

/// Completes the entry of a policy P whose settings are the described struct P::Settings. P is made
/// by P::make(input, settings), which returns a MadePolicy, where it has one, else by its
/// constructor from the same arguments.
template <class P>
constexpr RecoveryEntry recovery_entry(RecoveryEntry entry) {
  entry.options = options_of<typename P::Settings>;
  entry.check = check_options<typename P::Settings>;
  entry.make = [](const PolicyInput& input, const Options& given) -> MadePolicy {
    auto settings = read_settings<typename P::Settings>(given);
    if constexpr (requires { P::make(input, std::move(settings)); }) {
      return P::make(input, std::move(settings));
    } else {
      return std::make_unique<P>(input, std::move(settings));
    }
  };
  return entry;
}

}  // namespace orrery::planners
