/// Several jobs on one cluster against one trace of failures: what `orrery replay JOBS.yaml` does.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "experiments/study/cache_setting.h"
#include "experiments/study/call.h"
#include "experiments/study/inputs.h"
#include "experiments/study/replay_policy.h"
#include "experiments/study/replay_ranking.h"
#include "models/config/diagnostics.h"
#include "models/config/value.h"
#include "models/config/visitor.h"

namespace orrery::experiments {

struct ReplayJobsSettings {
  std::string file;      ///< Of jobs (jobs.h).
  JobSettings where;     ///< Cluster and profile in place of the file's.
  config::Value replay;  ///< Settings of a ReplayRun but what the file says of each job.
  std::vector<config::Located<ReplayPolicy>> policies;  ///< For jobs that name none.
  std::vector<std::int64_t> seeds;
  CacheSetting cache;
};

/// A job under a policy, over all seeds.
struct ReplayedJob {
  std::string job;
  std::string policy;
  std::optional<std::string> problem;  ///< Why it does not train at all, of the first seed.
  Interval tokens_per_second;
  Interval downtime;               ///< Share of the time without training that counts (1 - ETTR).
  Interval goodput;                ///< Of its reference iteration alone [sim/replay/replay.h].
  Interval lost_to_others;         ///< Share of the time: what other jobs add to its iterations.
  double interruptions = 0;        ///< Mean.
  double dollars_per_million = 0;  ///< Of all seeds together; not finite without prices.
};

/// All jobs, those that name no policy under this one.
struct ReplayedTogether {
  std::string policy;
  Interval tokens_per_second;  ///< Of all jobs.
  std::vector<ReplayedJob> jobs;
};

struct ReplayedJobs {
  std::string cluster;
  std::string trace;  ///< Its name.
  double days = 0;
  std::int64_t seeds = 0;
  std::vector<ReplayedTogether> policies;  ///< By tokens per second of all jobs.
};
void describe(config::Visitor& v, ReplayedJob& job);
void describe(config::Visitor& v, ReplayedTogether& together);
void describe(config::Visitor& v, ReplayedJobs& jobs);
/// 1 if no job trains under any policy.
int exit_status(const ReplayedJobs& jobs);

/// Jobs begin with the plan of the file, or of the planner that it names. Each keeps to its part of
/// the cluster: spare GPUs are those of `nodes` that its plan does not use.
ReplayedJobs replay_jobs(const ReplayJobsSettings& settings, const Call& call,
                         config::Diagnostics problems = {});

}  // namespace orrery::experiments
