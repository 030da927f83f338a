#include "experiments/study/replay_jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/hardware.h"
#include "experiments/study/jobs.h"
#include "experiments/study/replay_session.h"
#include "experiments/study/run_tasks.h"
#include "models/spec/library.h"

namespace orrery::experiments {
namespace {

/// What one replay came to for a job.
struct JobFigures {
  std::string problem;
  std::int64_t tokens = 0;
  double ettr = 0;
  double goodput = 0;
  double lost_to_others = 0;  ///< Share of the horizon.
  std::int64_t interruptions = 0;
  double dollars = 0;
  bool priced = false;
};

struct ReplayFigures {
  Seconds horizon;
  std::vector<JobFigures> jobs;
};

void describe(config::Visitor& v, JobFigures& job) {
  v.required("problem", job.problem, "");
  v.required("tokens", job.tokens, "");
  v.required("ettr", job.ettr, "");
  v.required("goodput", job.goodput, "");
  v.required("lost_to_others", job.lost_to_others, "");
  v.required("interruptions", job.interruptions, "");
  v.required("dollars", job.dollars, "");
  v.required("priced", job.priced, "");
}

void describe(config::Visitor& v, ReplayFigures& figures) {
  v.required("horizon", figures.horizon, "");
  v.required("jobs", figures.jobs, "");
}

JobFigures figures_of(const JobOutcome& job) {
  JobFigures figures;
  const sim::ReplayResult& result = job.outcome.result;
  if (job.outcome.infeasible) {
    figures.problem = job.outcome.infeasible->constraint;
    if (!job.outcome.infeasible->witness.empty()) {
      figures.problem += ": " + job.outcome.infeasible->witness;
    }
    return figures;
  }
  figures.tokens = result.tokens;
  figures.ettr = result.ettr;
  figures.goodput = result.goodput;
  figures.lost_to_others = job.lost_to_others / to_seconds(result.horizon);
  figures.interruptions = result.interruptions;
  figures.dollars = result.dollars.value;
  figures.priced = result.priced;
  return figures;
}

/// The case of a job, without a plan.
ReplayCase case_of(const JobEntry& entry, const RunSpec& spec, ReplayCase common) {
  common.name = entry.name.value;
  common.cluster = spec.cluster;
  common.model = spec.model;
  common.job = spec.job;
  common.job_at = spec.job_at;
  common.profile = spec.profile;
  common.scale_profile = spec.scale_profile;
  common.plan.reset();
  return common;
}

/// A job without `nodes` has a plan (describe(JobEntry)).
std::vector<DeviceId> part_of(const JobEntry& entry, const LoadedRun& run) {
  if (entry.nodes.empty()) return ir::devices_of(*run.plan);
  config::Diagnostics known;  // Names were checked.
  const std::set<DeviceId> part = devices_named(entry.nodes, run.cluster, known);
  return {part.begin(), part.end()};
}

/// A mean over seeds of what `value` says of a job.
template <class Value>
Interval over_seeds(const std::vector<ReplayFigures>& seeds, Value value, double least,
                    double most) {
  std::vector<double> values;
  for (const ReplayFigures& one : seeds) values.push_back(value(one));
  return interval_of(values, least, most);
}

ReplayedJob summary_of(std::size_t job, const std::vector<ReplayFigures>& seeds) {
  const double unbounded = std::numeric_limits<double>::infinity();
  ReplayedJob out;
  const auto share = [&](double JobFigures::*figure, bool rest) {
    return over_seeds(
        seeds,
        [&](const ReplayFigures& one) {
          const double value = one.jobs[job].*figure;
          return rest ? 1 - value : value;
        },
        0, 1);
  };
  out.tokens_per_second = over_seeds(
      seeds,
      [&](const ReplayFigures& one) {
        return static_cast<double>(one.jobs[job].tokens) / one.horizon.value;
      },
      0, unbounded);
  out.downtime = share(&JobFigures::ettr, true);
  out.goodput = share(&JobFigures::goodput, false);
  out.lost_to_others = share(&JobFigures::lost_to_others, false);
  double dollars = 0, tokens = 0;
  bool priced = true;
  for (const ReplayFigures& one : seeds) {
    const JobFigures& figures = one.jobs[job];
    if (!figures.problem.empty() && !out.problem) out.problem = figures.problem;
    out.interruptions +=
        static_cast<double>(figures.interruptions) / static_cast<double>(seeds.size());
    dollars += figures.dollars;
    tokens += static_cast<double>(figures.tokens);
    priced = priced && figures.priced;
  }
  out.dollars_per_million = priced && tokens > 0 ? dollars / (tokens * 1e-6) : std::nan("");
  return out;
}

}  // namespace

void describe(config::Visitor& v, ReplayedJob& job) {
  v.title("A job under failures beside others");
  v.required("job", job.job, "its name");
  v.required("policy", job.policy, "its own, or that of the row");
  v.optional("problem", job.problem, "why it does not train");
  v.required("tokens_per_second", job.tokens_per_second, "");
  v.required("downtime", job.downtime, "share of the time without training that counts");
  v.required("goodput", job.goodput, "of its fastest iteration alone");
  v.required("lost_to_others", job.lost_to_others,
             "share of the time: what other jobs add to its iterations");
  v.required("interruptions", job.interruptions, "mean");
  v.required("dollars_per_million_tokens", job.dollars_per_million, "");
}

void describe(config::Visitor& v, ReplayedTogether& together) {
  v.title("Jobs under a policy");
  v.required("policy", together.policy, "of the jobs that name none");
  v.required("tokens_per_second", together.tokens_per_second, "of all jobs");
  v.required("jobs", together.jobs, "as in the file");
}

void describe(config::Visitor& v, ReplayedJobs& jobs) {
  v.title("Jobs replayed");
  v.required("cluster", jobs.cluster, "its name");
  v.required("trace", jobs.trace, "its name");
  v.required("days", jobs.days, "how long");
  v.required("seeds", jobs.seeds, "how many traces");
  v.required("policies", jobs.policies, "by tokens per second of all jobs");
}

int exit_status(const ReplayedJobs& jobs) {
  const auto trains = [](const ReplayedJob& job) { return job.tokens_per_second.mean > 0; };
  const bool any = std::any_of(
      jobs.policies.begin(), jobs.policies.end(), [&](const ReplayedTogether& together) {
        return std::any_of(together.jobs.begin(), together.jobs.end(), trains);
      });
  return any ? 0 : 1;
}

ReplayedJobs replay_jobs(const ReplayJobsSettings& settings, const Call& call,
                         config::Diagnostics problems) {
  const models::Library library = open_library(problems);
  const std::size_t before = problems.problems().size();
  const Jobs jobs = load_jobs(settings.file, problems);
  if (problems.problems().size() != before) problems.raise();
  const std::vector<LoadedRun> runs =
      load_job_runs(jobs, settings.where, JudgeSettings{}, library, problems);
  // What the file says of each job is filled in below.
  config::Value common = settings.replay;
  for (const char* key : {"cluster", "model", "job", "plan", "planner", "policy"}) {
    std::erase_if(common.entries, [&](const config::Value::Entry& e) { return e.key == key; });
  }
  common.append("cluster", config::Value::scalar(jobs.cluster.value));
  common.append("model", config::Value::scalar("-"));
  common.append("job", config::to_value(runs.empty() ? models::Job{} : runs.front().spec.job));
  common.append("policy", config::Value::scalar("checkpoint_restart"));
  ReplayRun common_run;
  config::describe_value(common, common_run, problems);
  for (const config::Located<ReplayPolicy>& policy : settings.policies) {
    check_policy(policy, problems);
    check_policy_values(policy.value, policy.at, problems);
  }
  problems.raise();

  std::vector<RunTask> tasks;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    tasks.push_back({jobs.jobs[i].name.value, runs[i], {}});
  }
  const auto answers = settings.cache.open(call.on_note);
  const std::vector<RunReport> planned = run_tasks(tasks, call, answers.get());
  ReplayedJobs all;
  std::vector<JobAtReplay> at_replay;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const JobEntry& entry = jobs.jobs[i];
    const std::optional<ir::Plan>& plan = runs[i].plan ? runs[i].plan : planned[i].plan;
    LoadedReplayCase loaded =
        load_replay_case(case_of(entry, runs[i].spec, common_run.what), "", library, problems);
    if (!problems.empty()) break;
    if (plan) loaded = with_plan(std::move(loaded), *plan);
    // Where its planner finds none, or the policy cannot run it, the policy begins with its own.
    loaded.spec.planner = entry.planner;
    std::vector<DeviceId> part = part_of(entry, runs[i]);
    if (!loaded.spec.expected_mtbf) {
      loaded.interruptions = loaded.traces.interruptions(
          static_cast<double>(part.size()) / static_cast<double>(loaded.cluster.devices.size()));
    }
    at_replay.push_back({std::make_shared<const LoadedReplayCase>(std::move(loaded)),
                         entry.policy ? entry.policy->value : ReplayPolicy{}, std::move(part)});
  }
  problems.raise();
  if (const std::string& absent = at_replay.front().loaded->traces.absent(); !absent.empty()) {
    problems.add(at_setting("trace"), absent + " is not there",
                 "set ORRERY_DATA to the folder with the traces of others");
    problems.raise();
  }

  const std::size_t seeds = settings.seeds.size();
  std::vector<std::vector<ReplayFigures>> figures(settings.policies.size(),
                                                  std::vector<ReplayFigures>(seeds));
  run_children(
      settings.policies.size() * seeds,
      [&](std::size_t i) {
        return fmt::format("{} seed {}", settings.policies[i / seeds].value.shown(),
                           settings.seeds[i % seeds]);
      },
      [&](std::size_t i) {
        std::vector<JobAtReplay> now = at_replay;
        for (std::size_t j = 0; j < now.size(); ++j) {
          if (!jobs.jobs[j].policy) now[j].policy = settings.policies[i / seeds].value;
        }
        ReplayOptions how = common_run.how;
        how.seed = settings.seeds[i % seeds];
        ReplayFigures out;
        for (const JobOutcome& job : replay_jobs_once(now, how, answers.get())) {
          out.jobs.push_back(figures_of(job));
          if (job.outcome.result.horizon.count > 0) {
            out.horizon = to_seconds(job.outcome.result.horizon);
          }
        }
        return config::dump(out);
      },
      [&](std::size_t i, const std::string& bytes) {
        ReplayFigures& now = figures[i / seeds][i % seeds];
        now = delivered<ReplayFigures>(bytes, "a replay of jobs");
        all.days = std::max(all.days, now.horizon.value / 86400);
      });

  all.cluster = runs.front().cluster.name;
  all.trace = at_replay.front().loaded->traces.name();
  all.seeds = static_cast<std::int64_t>(seeds);
  for (std::size_t p = 0; p < settings.policies.size(); ++p) {
    ReplayedTogether together;
    together.policy = settings.policies[p].value.shown();
    for (std::size_t j = 0; j < jobs.jobs.size(); ++j) {
      together.jobs.push_back(summary_of(j, figures[p]));
      together.jobs.back().job = jobs.jobs[j].name.value;
      together.jobs.back().policy =
          jobs.jobs[j].policy ? jobs.jobs[j].policy->value.shown() : together.policy;
    }
    together.tokens_per_second = over_seeds(
        figures[p],
        [](const ReplayFigures& one) {
          double tokens = 0;
          for (const JobFigures& job : one.jobs) tokens += static_cast<double>(job.tokens);
          return one.horizon.value > 0 ? tokens / one.horizon.value : 0;
        },
        0, std::numeric_limits<double>::infinity());
    all.policies.push_back(std::move(together));
  }
  std::stable_sort(all.policies.begin(), all.policies.end(),
                   [](const ReplayedTogether& a, const ReplayedTogether& b) {
                     return a.tokens_per_second.mean > b.tokens_per_second.mean;
                   });
  return all;
}

}  // namespace orrery::experiments
