#include "experiments/study/jobs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "experiments/study/checks.h"
#include "experiments/study/run_tasks.h"
#include "models/base/check.h"
#include "models/base/rng.h"
#include "models/check/validate.h"
#include "models/config/document.h"
#include "models/config/schema_of.h"
#include "models/lower/lower.h"
#include "models/spec/topology.h"
#include "sim/iteration/together.h"

namespace orrery::experiments {
namespace {

constexpr std::size_t kSharedLinksShown = 10;

/// What the file leaves to the plan of a job (complete_for_plan), and the job files that it names.
void complete_jobs(config::Value& tree, const std::string& folder,
                   config::Diagnostics& diagnostics) {
  for (config::Value::Entry& entry : tree.entries) {
    if (entry.key != "jobs") continue;
    for (config::Value& one : entry.value.items) {
      const config::Value* plan = one.find("plan");
      for (config::Value::Entry& field : one.entries) {
        if (field.key != "job") continue;
        const bool inline_job = field.value.is_map();
        complete_job(field.value, folder, diagnostics);
        if (!inline_job || plan == nullptr || !plan->is_scalar()) continue;
        complete_for_plan(field.value,
                          ReadPlan((std::filesystem::path(folder) / plan->text).string()));
      }
    }
  }
}

/// Where in the plan a device is first used.
std::string path_of(DeviceId device, const ir::Plan& plan) {
  for (std::size_t p = 0; p < plan.pipelines.size(); ++p) {
    const auto& stages = plan.pipelines[p].stages;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      for (std::size_t g = 0; g < stages[s].segments.size(); ++g) {
        const auto& groups = stages[s].segments[g].groups;
        for (std::size_t k = 0; k < groups.size(); ++k) {
          const auto& devices = groups[k].devices;
          if (std::find(devices.begin(), devices.end(), device) == devices.end()) continue;
          return fmt::format("pipelines[{}].stages[{}].segments[{}].groups[{}]", p, s, g, k);
        }
      }
    }
  }
  return "pipelines";
}

/// Reports what is wrong with the device of a job at its place: in the plan, or in the list of
/// nodes.
void report_device(const JobEntry& entry, const LoadedRun& run, const std::string& folder,
                   DeviceId device, const std::string& what, config::Diagnostics& diagnostics) {
  if (run.plan) {
    const std::string path = (std::filesystem::path(folder) / entry.plan->value).string();
    return models::report({{path_of(device, *run.plan), what, ""}}, path, diagnostics);
  }
  for (const config::Located<std::string>& one : entry.nodes) {
    config::Diagnostics known;  // Names were checked.
    if (!devices_named({one}, run.cluster, known).contains(device)) continue;
    return diagnostics.add(one.at, what);
  }
}

/// Each device belongs to one job, and plans keep to their job's part.
void check_devices(const Jobs& jobs, const std::vector<LoadedRun>& runs,
                   config::Diagnostics& diagnostics) {
  std::map<DeviceId, std::size_t> owner;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const JobEntry& entry = jobs.jobs[i];
    const std::vector<DeviceId> used =
        runs[i].plan ? ir::devices_of(*runs[i].plan) : std::vector<DeviceId>{};
    const std::set<DeviceId> part = entry.nodes.empty()
                                        ? std::set<DeviceId>(used.begin(), used.end())
                                        : devices_named(entry.nodes, runs[i].cluster, diagnostics);
    for (const DeviceId device : used) {
      if (part.contains(device)) continue;
      report_device(
          entry, runs[i], jobs.folder, device,
          fmt::format("device {} is not of the nodes of job '{}'", device.value, entry.name.value),
          diagnostics);
      break;
    }
    for (const DeviceId device : part) {
      const auto [other, free] = owner.try_emplace(device, i);
      if (free) continue;
      report_device(entry, runs[i], jobs.folder, device,
                    fmt::format("device {} of job '{}' belongs to job '{}', too", device.value,
                                entry.name.value, jobs.jobs[other->second].name.value),
                    diagnostics);
      break;
    }
  }
}

/// What a job's flows share with those of others, and closed forms that they do not see.
struct Meetings {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<std::vector<std::size_t>> partners;  ///< By job: those with a link in common.
  std::vector<std::string> unseen;                 ///< Sentences.
};

Meetings find_meetings(const std::vector<sim::LinkTraffic>& traffic,
                       const std::vector<std::string>& names, const models::Topology& topology) {
  Meetings all;
  all.groups = sim::sharing_jobs(traffic);
  all.partners.resize(traffic.size());
  for (std::size_t a = 0; a < traffic.size(); ++a) {
    for (std::size_t b = 0; b < traffic.size(); ++b) {
      if (a == b) continue;
      LinkId hidden;
      bool share = false;
      for (const LinkId link : topology.links().ids()) {
        const bool flows = traffic[b].flows[link].value > 0;
        share |= flows && traffic[a].flows[link].value > 0;
        const bool any = flows || traffic[b].closed_forms[link].value > 0;
        if (any && traffic[a].closed_forms[link].value > 0 && !hidden.valid()) hidden = link;
      }
      if (share) all.partners[a].push_back(b);
      if (!hidden.valid()) continue;
      all.unseen.push_back(fmt::format(
          "collectives inside passes of job '{}' cross {}, which '{}' uses too, and take closed "
          "forms: neither job is slowed by that; --inner aggregated simulates them",
          names[a], topology.name_of(hidden), names[b]));
    }
  }
  return all;
}

/// The smaller of the two middle values.
Seconds lower_median(std::vector<Seconds> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2];
}

std::vector<SharedLink> busiest_shared(const std::vector<sim::LinkTraffic>& traffic,
                                       const std::vector<JobTogether*>& jobs,
                                       const models::Topology& topology,
                                       const sim::IterationOptions& options) {
  std::vector<SharedLink> all;
  for (const LinkId link : topology.links().ids()) {
    SharedLink shared{{}, topology.links()[link].bandwidth, 0, {}};
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const Bytes bytes = traffic[i].flows[link];
      if (bytes.value <= 0) continue;
      shared.by_job[jobs[i]->name] = bytes / jobs[i]->together / shared.capacity;
    }
    if (shared.by_job.size() < 2) continue;
    shared.link = topology.name_of(link);
    for (const sim::SlowLink& slow : options.slow_links) {
      if (slow.link != shared.link) continue;
      shared.capacity = shared.capacity / slow.slowdown;
      for (auto& [name, share] : shared.by_job) share *= slow.slowdown;
    }
    for (const auto& [name, share] : shared.by_job) shared.busy += share;
    all.push_back(std::move(shared));
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const SharedLink& a, const SharedLink& b) { return a.busy > b.busy; });
  return all;
}

/// A job that has a plan, lowered.
struct Lowered {
  ir::Program program;
  models::ProgramPrices prices;
};

Lowered lower_run(const LoadedRun& run, const ir::Plan& plan) {
  ir::Program program = models::lower(plan, run.cluster, run.workload, run.spec.job,
                                      {.collapsed = run.spec.collapsed, .seed = run.spec.seed});
  const models::Pricer pricer(run.cluster, run.workload, run.spec.job, run.profile);
  models::ProgramPrices prices(program, pricer);
  return {std::move(program), std::move(prices)};
}

}  // namespace

void describe(config::Visitor& v, JobEntry& job) {
  v.title("One job");
  v.required("name", job.name, "in tables; of one job only");
  v.required("model", job.model, "model of the library, or path to a model file or config.json");
  v.required("job", job.job,
             "batch, sequence length, numbers; or path to a job file. With `plan` neither "
             "`global_batch` nor `allowed` need be given");
  v.optional("plan", job.plan, "path to a plan file; either this or `planner`");
  v.optional("planner", job.planner, "that makes the plan on `nodes`");
  v.optional("nodes", job.nodes,
             "its part of the cluster: names of nodes or numbers of GPUs; absent: what its plan "
             "uses");
  v.optional("start", job.start, "when its first iteration begins");
  v.not_negative("start", job.start);
  v.optional("policy", job.policy,
             "recovery policy of replays, by its name, or with options; absent: the one that the "
             "replay asks for");
  if (!v.reading()) return;
  job.job_at = v.at("job");
  if (job.policy && job.policy->value.name == "all") {
    v.problem("policy", "a job has one policy", "replay --policy all takes every one");
  }
  if (job.planner && job.plan) {
    v.problem("plan", "both `planner` and `plan` are given", "a job has one of them");
  } else if (!job.planner && !job.plan && v.good()) {
    v.problem("", "neither `planner` nor `plan` is given", "a job has one of them");
  } else if (job.planner && job.nodes.empty()) {
    v.problem("planner", "`nodes` is missing: a planner plans for its job's part of the cluster");
  }
}

void describe(config::Visitor& v, Jobs& jobs) {
  v.schema("orrery/jobs", 1);
  v.title("Jobs");
  v.doc("Jobs that run on disjoint parts of one cluster at the same time.");
  v.required("cluster", jobs.cluster, "cluster of the library, or path to a cluster file");
  v.optional("profile", jobs.profile,
             "measured numbers: a profile of the library, or path to a file");
  v.optional("scale_profile", jobs.scale_profile,
             "FROM=TO: the profile's times of one GPU type, scaled, are used for another");
  v.required("jobs", jobs.jobs, "in the order of tables");
  v.not_empty("jobs", jobs.jobs);
  if (!v.reading()) return;
  std::set<std::string> names;
  for (const JobEntry& job : jobs.jobs) {
    if (!job.name.value.empty() && !names.insert(job.name.value).second) {
      v.problem("jobs", fmt::format("two jobs are called '{}'", job.name.value));
    }
  }
}

bool is_jobs_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  return config::schema_of(path).starts_with("orrery/jobs/");
}

Jobs load_jobs(const std::string& path, config::Diagnostics& diagnostics) {
  const std::size_t before = diagnostics.problems().size();
  Jobs jobs;
  jobs.folder = std::filesystem::path(path).parent_path().string();
  config::Value tree = config::load_value(path, diagnostics);
  if (diagnostics.problems().size() != before) return jobs;
  complete_jobs(tree, jobs.folder, diagnostics);
  config::describe_value(tree, jobs, diagnostics);
  return jobs;
}

std::vector<LoadedRun> load_job_runs(const Jobs& jobs, const JobSettings& settings,
                                     const JudgeSettings& judge, const models::Library& library,
                                     config::Diagnostics& diagnostics) {
  for (const JobEntry& entry : jobs.jobs) {
    if (!entry.policy) continue;
    check_policy(*entry.policy, diagnostics);
    check_policy_values(entry.policy->value, entry.policy->at, diagnostics);
  }
  const std::size_t before = diagnostics.problems().size();
  std::vector<LoadedRun> runs;
  for (const JobEntry& entry : jobs.jobs) {
    RunSpec spec;
    judge_by(judge, spec);
    spec.cluster = settings.cluster
                       ? config::Located<std::string>{*settings.cluster, at_setting("cluster")}
                       : beside_or_named(jobs.cluster, jobs.folder);
    spec.model = beside_or_named(entry.model, jobs.folder);
    spec.job = entry.job;
    spec.job_at = entry.job_at;
    spec.plan = entry.plan;
    spec.planner = entry.planner;
    spec.profile = jobs.profile;
    spec.scale_profile = jobs.scale_profile;
    if (settings.profile) {  // Seen from here, not from the file.
      const bool known = library.profiles.contains(*settings.profile);
      spec.profile = {
          known ? *settings.profile : std::filesystem::absolute(*settings.profile).string(),
          at_setting("profile")};
    }
    if (settings.scale_profile) {
      spec.scale_profile = {*settings.scale_profile, at_setting("scale_profile")};
    }
    if (entry.planner) {               // All but its nodes is left out.
      config::Diagnostics of_cluster;  // load_run() reports them.
      const models::Cluster cluster =
          models::load_cluster(spec.cluster.value, library, spec.cluster.at, of_cluster);
      if (of_cluster.empty()) {
        const std::set<DeviceId> part = devices_named(entry.nodes, cluster, diagnostics);
        for (const models::Device& device : cluster.devices) {
          if (part.contains(device.id)) continue;
          spec.hardware.without.push_back({std::to_string(device.id.value), entry.name.at});
        }
      }
    }
    runs.push_back(load_run(spec, jobs.folder, library, diagnostics));
    if (diagnostics.problems().size() != before && runs.size() == 1 &&
        runs.front().cluster.devices.empty()) {
      return runs;  // The cluster is the same for all: once is enough.
    }
  }
  if (diagnostics.problems().size() == before) check_devices(jobs, runs, diagnostics);
  return runs;
}

void describe(config::Visitor& v, JobTogether& job) {
  v.title("A job beside others");
  v.required("name", job.name, "of the file of jobs");
  v.required("model", job.model, "its name");
  v.required("plan", job.plan, "file or planner");
  v.required("devices", job.devices, "that its plan uses");
  v.optional("infeasible", job.infeasible, "why it has no plan; the others run without it");
  v.required("alone_seconds", job.alone, "of an iteration, as simulate says of the plan alone");
  v.required("together_seconds", job.together, "beside the others; of several phases the median");
  v.optional("fastest_seconds", job.fastest, "of several phases");
  v.optional("slowest_seconds", job.slowest, "of several phases");
  v.required("slowdown", job.slowdown, "together / alone");
  v.required("tokens_per_second", job.tokens_per_second, "beside the others");
  v.required("iterations", job.iterations, "simulated beside the others; 0: it shares no link");
  v.required("steady", job.steady, "means over the second half and the quarter before agree");
  v.required("shares_links_with", job.shares_links_with, "jobs");
}

void describe(config::Visitor& v, SharedLink& link) {
  v.title("Shared link");
  v.required("link", link.link, "");
  v.required("capacity", link.capacity, "");
  v.required("busy", link.busy, "share of its capacity in the long run");
  v.required("by_job", link.by_job, "what of it is whose");
}

void describe(config::Visitor& v, JobsTogether& together) {
  v.title("Jobs side by side");
  v.required("cluster", together.cluster, "its name");
  v.required("phases", together.phases, "draws of when the jobs start");
  v.required("jobs", together.jobs, "as in the file");
  v.required("tokens_per_second", together.tokens_per_second, "of all jobs");
  v.required("tokens_per_second_alone", together.tokens_per_second_alone,
             "of all jobs, as if none slowed another");
  v.required("shared_links", together.shared_links, "links that flows of several jobs cross");
  v.required("links", together.links, "the busiest of them");
  v.required("notes", together.notes, "what else to know of these numbers");
}

JobsTogether simulate_together(const Jobs& jobs, const std::vector<LoadedRun>& runs,
                               const std::vector<RunReport>& alone, std::int64_t phases,
                               const Call& call) {
  ORRERY_CHECK(jobs.jobs.size() == runs.size() && runs.size() == alone.size(),
               "{} jobs, {} runs, {} reports", jobs.jobs.size(), runs.size(), alone.size());
  JobsTogether all;
  all.cluster = runs.front().cluster.name;
  all.phases = phases;
  std::vector<std::size_t> planned;  // Indices of jobs that have a plan.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const JobEntry& entry = jobs.jobs[i];
    JobTogether job;
    job.name = entry.name.value;
    job.model = runs[i].workload.name;
    job.plan = entry.plan ? entry.plan->value : entry.planner->name.value;
    job.infeasible = alone[i].infeasible;
    if (alone[i].plan && alone[i].evaluation) {
      planned.push_back(i);
      job.devices = static_cast<std::int64_t>(ir::devices_of(*alone[i].plan).size());
      job.alone = job.together = alone[i].evaluation->iteration_time;
      job.tokens_per_second = alone[i].evaluation->tokens_per_second;
      all.tokens_per_second_alone += job.tokens_per_second;
    }
    all.jobs.push_back(std::move(job));
  }
  if (planned.empty()) return all;
  all = run_in_child<JobsTogether>("jobs side by side", [&] {
    const LoadedRun& first = runs.front();
    const models::Topology topology(first.cluster, first.profile);
    sim::IterationSimulator simulator(first.cluster, topology);
    signal(SIGINT, SIG_DFL);  // SimGrid's own handler ends the process untidily.
    sim::IterationOptions options = first.spec.simulation;
    options.record_spans = options.record_memory = options.record_links = false;
    std::vector<Lowered> lowered;
    std::vector<JobTogether*> of_all;
    std::vector<std::string> names;
    for (const std::size_t i : planned) {
      lowered.push_back(lower_run(runs[i], *alone[i].plan));
      of_all.push_back(&all.jobs[i]);
      names.push_back(all.jobs[i].name);
    }
    std::vector<sim::LinkTraffic> traffic;
    for (const Lowered& one : lowered) {
      traffic.push_back(sim::traffic_of(simulator, {one.program, one.prices, {}}, options));
    }
    const Meetings meetings = find_meetings(traffic, names, topology);
    for (std::size_t j = 0; j < names.size(); ++j) {
      for (const std::size_t other : meetings.partners[j]) {
        of_all[j]->shares_links_with.push_back(names[other]);
      }
    }
    std::vector<std::vector<Seconds>> periods(names.size());
    for (std::int64_t phase = 0; phase < phases; ++phase) {
      const Rng draws = Rng(first.spec.seed).fork(static_cast<std::uint64_t>(phase));
      for (const std::vector<std::size_t>& group : meetings.groups) {
        if (group.size() == 1) continue;
        std::vector<sim::JobProgram> programs;
        for (const std::size_t j : group) {
          Seconds start = jobs.jobs[planned[j]].start;
          if (phase > 0) start += draws.fork(planned[j]).uniform() * of_all[j]->alone;
          programs.push_back({lowered[j].program, lowered[j].prices, start});
        }
        const std::vector<sim::JobPace> paces = run_together(simulator, programs, options);
        for (std::size_t k = 0; k < group.size(); ++k) {
          JobTogether& job = *of_all[group[k]];
          periods[group[k]].push_back(paces[k].period);
          job.iterations += paces[k].iterations;
          job.steady = job.steady && paces[k].steady;
        }
      }
    }
    for (std::size_t j = 0; j < names.size(); ++j) {
      if (periods[j].empty()) continue;
      JobTogether& job = *of_all[j];
      job.together = lower_median(periods[j]);
      job.slowdown = job.together / job.alone;
      job.tokens_per_second /= job.slowdown;
      if (phases == 1) continue;
      job.fastest = *std::min_element(periods[j].begin(), periods[j].end());
      job.slowest = *std::max_element(periods[j].begin(), periods[j].end());
    }
    all.links = busiest_shared(traffic, of_all, topology, options);
    all.shared_links = static_cast<std::int64_t>(all.links.size());
    if (all.links.size() > kSharedLinksShown) all.links.resize(kSharedLinksShown);
    for (const JobTogether& job : all.jobs) all.tokens_per_second += job.tokens_per_second;
    all.notes = meetings.unseen;
    for (const JobTogether& job : all.jobs) {
      if (job.steady) continue;
      all.notes.push_back(fmt::format(
          "the mean iteration of job '{}' beside the others still moves by more than {} % after "
          "{} iterations",
          job.name, 100 * sim::kSteady, job.iterations / phases));
    }
    return all;
  });
  for (const std::string& note : all.notes) call.note(note);
  return all;
}

}  // namespace orrery::experiments
