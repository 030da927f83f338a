#include "tools/commands/twin_steps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "models/base/file.h"
#include "models/base/hash.h"
#include "models/base/text.h"
#include "models/ir/plan.h"
#include "models/spec/library.h"
#include "models/spec/link_calibration.h"
#include "tools/cli/output.h"
#include "tools/commands/execute_program.h"
#include "tools/commands/inputs.h"
#include "tools/commands/run_inputs.h"
#include "tools/commands/tables.h"

namespace orrery::tools {
namespace {

namespace fs = std::filesystem;

constexpr const char* kKeyFile = "twin.key";
/// What a stored reason was written by: one of another form is asked for anew.
constexpr const char* kReasons = "reasons 2";
/// Link class of what `orrery calibrate` measures without a network.

std::string contents(const std::string& path) {
  std::string bytes;
  if (const auto problem = read_file(path, bytes)) throw std::runtime_error(*problem);
  return bytes;
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw std::runtime_error(fmt::format("cannot create {}: {}", folder.string(), error.message()));
  }
}

/// This program with other words, its output in files. Ends with it when interrupted: the child
/// gets the signal, and time to tidy up.
int run_self(const std::vector<std::string>& words, const fs::path& out, const fs::path& err,
             const std::atomic<bool>& interrupted) {
  std::string self = fs::read_symlink("/proc/self/exe").string();
  std::vector<std::string> all = {self};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> argv;
  for (std::string& word : all) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  flush();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent) ::_exit(1);
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    for (const auto& [path, number] : {std::pair(&out, STDOUT_FILENO), {&err, STDERR_FILENO}}) {
      const int file = ::open(path->c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
      if (file < 0 || ::dup2(file, number) < 0) ::_exit(126);
    }
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  if (child < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  bool told = false;
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (ended < 0 && errno != EINTR) return 1;
    if (interrupted && !told) {
      told = true;
      ::kill(child, SIGINT);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

/// The last line of a file that says something.
std::string last_line(const fs::path& path) {
  std::string bytes;
  if (read_file(path.string(), bytes)) return "";
  while (!bytes.empty() && bytes.back() == '\n') bytes.pop_back();
  return bytes.substr(bytes.rfind('\n') + 1);
}

std::string hash_of_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) ? content_hash(contents(path)) : path;
}

/// Everything that decides what a run is.
std::string key_of(const TwinManifest& manifest, const TwinPlace& place, const TwinRun& run) {
  std::string text;
  for (const std::string& file :
       {run.plan, manifest.cluster.value, manifest.model.value, run.job}) {
    text += hash_of_file(file) + "\n";
  }
  text += fmt::format("{} {} {} {} {}\n", place.steps, manifest.seed, place.loopback, run.policy,
                      run.kill);
  for (const auto& [device, factor] : place.slowdowns)
    text += fmt::format("{}={:.9g}\n", device, factor);
  return content_hash(text);
}

std::vector<std::string> place_words(const TwinPlace& place) {
  if (!place.loopback) return {"--netlab"};
  std::vector<std::string> words;
  for (const auto& [device, factor] : place.slowdowns) {
    if (factor == 1) continue;
    words.insert(words.end(), {"--slowdown", fmt::format("{}={:.9g}", device, factor)});
  }
  return words;
}

/// Rank that the recovery of this name kills.
std::int64_t killed_rank(const TwinManifest& manifest, const std::string& name) {
  config::Diagnostics seen;  // The manifest is read: there are none.
  for (const TwinRecovery& recovery : manifest.recoveries) {
    if (recovery.name.value == name) return kill_of(recovery, seen).value_or(TwinKill{}).rank;
  }
  return 0;
}

/// Lines of a text, joined: "a:\n  b\n" is "a: b", others by semicolons.
std::string one_line(const std::string& text) {
  std::string out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find_first_not_of(' ');
    if (first == std::string::npos) continue;
    if (!out.empty()) out += out.back() == ':' ? " " : "; ";
    out += line.substr(first, line.find_last_not_of(' ') + 1 - first);
  }
  return out;
}

/// A planner's plan, or why there is none.
std::optional<ir::Plan> make_plan(const TwinManifest& manifest, const TwinPlan& plan,
                                  const JobSettings& job, std::string& why) {
  config::Diagnostics diagnostics;
  const models::Library library = open_library(diagnostics);
  JudgeSettings judged;
  judged.seed = static_cast<std::int64_t>(manifest.seed);
  experiments::RunSpec spec = make_spec(job, judged, {}, diagnostics);
  diagnostics.raise();
  spec.planner = experiments::PlannerChoice{*plan.planner, plan.options, {}};
  experiments::LoadedRun run = load(spec, library, diagnostics);
  diagnostics.raise();
  const std::vector<experiments::RunReport> reports =
      run_tasks({{plan.name.value, std::move(run), {}}});
  if (reports.front().plan) return reports.front().plan;
  why = "no plan";
  if (const auto& no = reports.front().infeasible) {
    why += fmt::format(" ({}){}", no->constraint,
                       no->witness.empty() ? "" : fmt::format(": for example {}", no->witness));
  }
  why = one_line(why);
  return std::nullopt;
}

/// The reason that was kept for a plan that could not be made from these inputs.
std::optional<std::string> stored_reason(const std::string& note, const std::string& inputs) {
  std::string text;
  if (read_file(note, text) || !text.starts_with(inputs + "\n")) return std::nullopt;
  return text.substr(inputs.size() + 1);
}

/// Marks a run whose plan the executor cannot run, or that has no rank to kill.
void check_plan(const TwinManifest& manifest, const experiments::LoadedRun& loaded, TwinRun& run) {
  const auto lowered =
      lower_for_ranks(loaded, *loaded.plan, static_cast<std::uint64_t>(manifest.seed));
  if (!lowered.problems.empty()) {
    run.skipped = lowered.problems.front();
    return;
  }
  if (run.policy.empty()) return;
  const auto ranks = static_cast<std::int64_t>(lowered.program.ranks.size());
  const auto rank = killed_rank(manifest, run.name);
  if (rank >= ranks) run.skipped = fmt::format("kill: rank {} of {}", rank, ranks);
}

/// make_plans(), or without `make` look_at_plans().
void go_through_plans(const TwinManifest& manifest, JobSettings job, const TwinPlace& place,
                      bool make, std::vector<TwinRun>& runs) {
  std::map<std::string, const TwinPlan*> plans;
  for (const TwinPlan& plan : manifest.plans) plans[plan.name.value] = &plan;
  std::map<std::string, std::string> known;  // plan hash and job -> run
  for (TwinRun& run : runs) {
    job.job = run.job;
    const auto of = plans.find(run.name);
    const bool by_planner = of != plans.end() && of->second->planner.has_value();
    const std::string inputs = content_hash(
        hash_of_file(*job.cluster) + hash_of_file(*job.model) + hash_of_file(*job.job) +
        (by_planner ? of->second->planner->value : "") + std::to_string(manifest.seed) + kReasons);
    const std::string note = run.plan + ".none";
    std::error_code error;
    if (by_planner && !fs::exists(run.plan, error)) {
      if (const auto reason = stored_reason(note, inputs)) {
        run.skipped = *reason;
      } else if (make) {
        if (*place.interrupted) return;
        fmt::print(stderr, "planning {}\n", run.name);
        const auto plan = make_plan(manifest, *of->second, job, run.skipped);
        if (plan) {
          write_file(run.plan, models::dump_plan(*plan));
        } else if (!was_interrupted()) {
          write_file(note, inputs + "\n" + run.skipped);
        }
      }
    }
    if (!run.skipped.empty() || !fs::exists(run.plan, error)) {
      if (run.skipped.empty() && make) run.skipped = "no plan";
      continue;
    }
    const experiments::LoadedRun loaded = load_plans({run.plan}, job, {}).front();
    check_plan(manifest, loaded, run);
    if (!run.skipped.empty() || !run.policy.empty()) continue;
    const auto [same, fresh] =
        known.emplace(models::plan_hash(*loaded.plan) + " " + run.job, run.name);
    if (!fresh) run.skipped = fmt::format("the plan of {}", same->second);
  }
}

}  // namespace

bool is_asked_for(const std::string& name, const std::string& only) {
  const std::vector<std::string> texts = split(only, ',');
  return only.empty() || std::any_of(texts.begin(), texts.end(), [&](const std::string& text) {
           return name.find(text) != std::string::npos;
         });
}

std::vector<TwinRun> twin_runs(const TwinManifest& manifest, const std::string& results,
                               const std::string& only) {
  std::vector<TwinRun> out;
  std::map<std::string, const TwinPlan*> plans;
  const auto plan_file = [&](const TwinPlan& plan) {
    return plan.plan ? plan.plan->value
                     : (fs::path(results) / "plans" / (plan.name.value + ".yaml")).string();
  };
  const auto add = [&](TwinRun run) {
    if (!run.fit && !is_asked_for(run.name, only)) return;
    run.folder = (fs::path(results) / "runs" / run.name).string();
    out.push_back(std::move(run));
  };
  for (const TwinPlan& plan : manifest.plans) {
    plans[plan.name.value] = &plan;
    TwinRun run;
    run.name = plan.name.value;
    run.source = plan.planner ? plan.planner->value : "file";
    run.plan = plan_file(plan);
    run.job = plan.job ? plan.job->value : manifest.job.value;
    run.fit = plan.fit;
    if (plan.seen) run.seen = plan.seen->value;
    add(std::move(run));
  }
  for (const TwinRecovery& recovery : manifest.recoveries) {
    const TwinPlan& plan = *plans.at(recovery.plan.value);
    TwinRun run;
    run.name = recovery.name.value;
    run.source = plan.name.value;
    run.plan = plan_file(plan);
    run.job = plan.job ? plan.job->value : manifest.job.value;
    run.fit = recovery.fit;
    run.policy = recovery.policy.value;
    run.kill = recovery.kill.value;
    add(std::move(run));
  }
  return out;
}

void make_plans(const TwinManifest& manifest, const JobSettings& job, const TwinPlace& place,
                std::vector<TwinRun>& runs) {
  make_folder(fs::path(place.results) / "plans");
  go_through_plans(manifest, job, place, true, runs);
}

void look_at_plans(const TwinManifest& manifest, const JobSettings& job, const TwinPlace& place,
                   std::vector<TwinRun>& runs) {
  go_through_plans(manifest, job, place, false, runs);
}

void find_finished(const TwinManifest& manifest, const TwinPlace& place,
                   std::vector<TwinRun>& runs) {
  for (TwinRun& run : runs) {
    std::error_code error;
    const fs::path key = fs::path(run.folder) / kKeyFile;
    if (!run.skipped.empty() || !fs::exists(key, error)) continue;
    run.finished = contents(key.string()) == key_of(manifest, place, run);
  }
}

std::string execute_run(const TwinManifest& manifest, const TwinPlace& place, TwinRun& run) {
  const fs::path part = run.folder + ".part";
  std::error_code error;
  fs::remove_all(part, error);
  make_folder(part);
  std::vector<std::string> words = {"execute",     run.plan,
                                    "--cluster",   manifest.cluster.value,
                                    "--model",     manifest.model.value,
                                    "--job",       run.job,
                                    "--precision", "fp32",
                                    "--steps",     std::to_string(place.steps),
                                    "--seed",      std::to_string(manifest.seed),
                                    "--out",       part.string(),
                                    "--json"};
  for (const std::string& word : place_words(place)) words.push_back(word);
  if (!run.policy.empty()) {
    words.insert(words.end(), {"--elastic", run.policy, "--kill", run.kill});
  }
  const fs::path err = part / "execute.err";
  const int status = run_self(words, part / "execute.json", err, *place.interrupted);
  if (*place.interrupted) return "interrupted";
  if (status != 0) {
    const std::string why = last_line(err);
    return why.empty() ? fmt::format("exit status {}", status) : why;
  }
  write_file((part / kKeyFile).string(), key_of(manifest, place, run));
  fs::remove_all(run.folder, error);
  fs::rename(part, run.folder);
  run.finished = true;
  return "";
}

ir::Profile over_loopback(ir::Profile profile, const models::Cluster& cluster) {
  std::set<std::string> missing = models::link_classes(cluster);
  for (const ir::LinkSegment& entry : profile.links) missing.erase(entry.link_class);
  for (const ir::CollectiveFactor& entry : profile.collectives) missing.erase(entry.link_class);
  const auto copy = [&](auto& entries) {
    const std::size_t count = entries.size();
    for (const std::string& name : missing) {
      for (std::size_t i = 0; i < count; ++i) {
        if (entries[i].link_class != kLoopback) continue;
        auto entry = entries[i];
        entry.link_class = name;
        entry.provenance.source += fmt::format(", over loopback in place of {}", name);
        entries.push_back(std::move(entry));
      }
    }
  };
  copy(profile.links);
  copy(profile.collectives);
  return profile;
}

ir::Profile calibrate_machine(const TwinManifest& manifest, const JobSettings& job,
                              const TwinPlace& place) {
  config::Diagnostics diagnostics;
  if (manifest.profile) {
    ir::Profile profile = models::load_profile(manifest.profile->value, diagnostics);
    diagnostics.raise();
    return profile;
  }
  const fs::path folder = fs::path(place.results) / "calibration";
  const models::Job loaded = models::load_job(*job.job, diagnostics);
  const models::Cluster cluster = models::load_cluster(
      manifest.cluster.value, open_library(diagnostics), manifest.cluster.at, diagnostics);
  diagnostics.raise();
  const auto measure = [&](const char* name, std::vector<std::string> words) {
    const fs::path out = folder / name;
    std::error_code error;
    if (!fs::exists(out / "profile.yaml", error)) {
      make_folder(out);
      words.insert(words.begin(), "calibrate");
      words.insert(words.end(), {"--model", *job.model, "--sequence-length",
                                 std::to_string(loaded.sequence_length), "--precision", "fp32",
                                 "--out", out.string(), "--no-figure", "--quiet"});
      if (place.quick) words.emplace_back("--quick");
      const int status =
          run_self(words, out / "calibrate.txt", out / "calibrate.err", *place.interrupted);
      if (status != 0) {
        throw std::runtime_error(
            fmt::format("calibrating ({}): {}", name, last_line(out / "calibrate.err")));
      }
    }
    ir::Profile part = models::load_profile((out / "profile.yaml").string(), diagnostics);
    diagnostics.raise();
    return part;
  };
  ir::Profile profile =
      measure("compute", {"--gpu-type", "cpu", "--only", "block,optimizer,memory,op_overhead"});
  std::vector<std::string> network = {"--cluster", *job.cluster, "--only",
                                      "point_to_point,collective"};
  if (!place.loopback) network.emplace_back("--netlab");
  ir::Profile links = measure(place.loopback ? kLoopback : "network", network);
  if (place.loopback) links = over_loopback(std::move(links), cluster);
  profile.name = manifest.name;
  profile.links = links.links;
  profile.collectives = links.collectives;
  write_file((folder / "profile.yaml").string(), models::dump_profile(profile));
  return profile;
}

}  // namespace orrery::tools
