/// Several jobs on one cluster: the file that names them (`schema: orrery/jobs/1`), and how fast
/// each is alone and beside the others. What `orrery simulate JOBS.yaml` does.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/call.h"
#include "experiments/study/execute.h"
#include "experiments/study/inputs.h"
#include "experiments/study/replay_policy.h"
#include "experiments/study/run_spec.h"
#include "models/base/units.h"
#include "models/config/diagnostics.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

struct JobEntry {
  config::Located<std::string> name;
  config::Located<std::string> model;
  models::Job job;
  config::Position job_at;
  std::optional<config::Located<std::string>> plan;
  std::optional<PlannerChoice> planner;  ///< Exactly one of planner and plan.
  /// Its part of the cluster: names of nodes, numbers of devices. Empty: the devices of its plan.
  std::vector<config::Located<std::string>> nodes;
  Seconds start;                                        ///< When its first iteration begins.
  std::optional<config::Located<ReplayPolicy>> policy;  ///< Of replays; none: what they ask for.
};

/// Relative paths are seen from the file's folder.
struct Jobs {
  config::Located<std::string> cluster;
  std::optional<config::Located<std::string>> profile;
  std::optional<config::Located<std::string>> scale_profile;
  std::vector<JobEntry> jobs;
  std::string folder;  ///< Of the file.
};
void describe(config::Visitor& v, JobEntry& job);
void describe(config::Visitor& v, Jobs& jobs);

/// True if the file's `schema` line names a file of jobs.
bool is_jobs_file(const std::string& path);

/// The job of an entry with a plan need say neither batch nor what is allowed (complete_for_plan).
Jobs load_jobs(const std::string& path, config::Diagnostics& diagnostics);

/// Each job as a run, loaded and checked: no device belongs to two jobs, a plan stays on its job's
/// part of the cluster, and a policy is known and takes its options. Cluster and profile of
/// `settings` take the place of the file's; `judge` holds for all jobs. All problems go to
/// `diagnostics`; use the result only if there are none.
std::vector<LoadedRun> load_job_runs(const Jobs& jobs, const JobSettings& settings,
                                     const JudgeSettings& judge, const models::Library& library,
                                     config::Diagnostics& diagnostics);

/// A job beside the others. With several phases times are the median over them, the lower one of
/// two.
struct JobTogether {
  std::string name;
  std::string model;
  std::string plan;  ///< File or planner.
  std::int64_t devices = 0;
  std::optional<models::Infeasible> infeasible;  ///< No plan was found; the others run without it.
  Seconds alone;                                 ///< Iteration.
  Seconds together;
  std::optional<Seconds> fastest;  ///< Of several phases.
  std::optional<Seconds> slowest;
  double slowdown = 1;  ///< together / alone.
  double tokens_per_second = 0;
  std::int64_t iterations = 0;  ///< That it finished beside the others; 0: it shares no link.
  bool steady = true;           ///< sim::JobPace, in all phases.
  std::vector<std::string> shares_links_with;
};

/// A link that flows of several jobs cross.
struct SharedLink {
  std::string link;
  BytesPerSecond capacity;
  double busy = 0;                       ///< Share of its capacity in the long run.
  std::map<std::string, double> by_job;  ///< What of it is whose.
};

struct JobsTogether {
  std::string cluster;
  std::int64_t phases = 1;
  std::vector<JobTogether> jobs;
  double tokens_per_second = 0;        ///< Of all jobs, as those below.
  double tokens_per_second_alone = 0;  ///< As if none slowed another.
  std::int64_t shared_links = 0;
  std::vector<SharedLink> links;   ///< The busiest of them.
  std::vector<std::string> notes;  ///< What was left out, and which means did not settle.
};
void describe(config::Visitor& v, JobTogether& job);
void describe(config::Visitor& v, SharedLink& link);
void describe(config::Visitor& v, JobsTogether& together);

/// Simulates the jobs side by side. `alone`: what came of each, with its plan. The first phase is
/// as the file says; in each further one all jobs start later by a share, drawn from the seed, of
/// their own iteration.
JobsTogether simulate_together(const Jobs& jobs, const std::vector<LoadedRun>& runs,
                               const std::vector<RunReport>& alone, std::int64_t phases,
                               const Call& call);

}  // namespace orrery::experiments
