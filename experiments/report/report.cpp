#include "experiments/report/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <utility>

#include "experiments/execution/compare.h"
#include "experiments/execution/run_inputs.h"
#include "experiments/study/exports.h"
#include "experiments/study/files.h"
#include "experiments/study/json.h"
#include "experiments/study/run_tasks.h"
#include "experiments/study/version.h"
#include "models/base/hash.h"
#include "models/config/document.h"

namespace orrery::experiments {
namespace {

namespace fs = std::filesystem;

/// Seeds of a policy whose replay is drawn over time: the first of each, no more than these.
constexpr std::size_t kReplaysDrawn = 60;
/// Up to so many GPUs all pipelines are simulated, so that each GPU has its shares.
constexpr std::size_t kDrawnWhole = 512;

/// The command line that gives these settings: flags whose values are not the defaults.
std::string command_of(const ReportSettings& settings) {
  std::string text = "orrery report";
  for (const std::string& each : settings.what) text += " " + each;
  const auto flag = [&](std::string key, const std::string& value) {
    std::replace(key.begin(), key.end(), '_', '-');
    text += fmt::format(" --{} {}", key, value);
  };
  for (const auto& [key, value] : {std::pair("cluster", settings.job.cluster),
                                   {"model", settings.job.model},
                                   {"job", settings.job.job},
                                   {"profile", settings.job.profile},
                                   {"scale_profile", settings.job.scale_profile}}) {
    if (value) flag(key, *value);
  }
  for (const auto& [key, path] : job_keys()) {
    const auto found = settings.job.changes.find(path);
    if (found != settings.job.changes.end()) flag(key, config::to_flow(found->second));
  }
  const config::Value given = config::to_value(settings.judge);
  const config::Value defaults = config::to_value(JudgeSettings{});
  for (const config::Value::Entry& entry : given.entries) {
    const config::Value* before = defaults.find(entry.key);
    const std::string value = config::to_flow(entry.value);
    if (entry.value.is_null() || (before != nullptr && config::to_flow(*before) == value)) continue;
    flag(entry.key, value);
  }
  if (settings.output) text += " -o " + *settings.output;
  return text;
}

/// Simulates the plan in a child of its own, where its simulator lives.
PlanPage simulated_page(const std::string& name, LoadedRun run) {
  const std::string json = run_child(name, [&] {
    if (run.devices.size() <= kDrawnWhole) run.spec.simulation.fold = sim::FoldMode::off;
    Session session(run);
    const RunOutcome outcome = session.execute(true, nullptr);
    PlanPage page = plan_page(name, session.loaded(), *outcome.plan, outcome.evaluation,
                              outcome.program, outcome.log);
    page.loads = outcome.stages;
    page.prices = outcome.prices;
    std::string simgrid;
    for (const auto& [key, value] : outcome.simgrid) {
      simgrid += fmt::format("{}{}: {}", simgrid.empty() ? "" : ", ", key, value);
    }
    if (!simgrid.empty()) page.sources.push_back({"SimGrid", simgrid, ""});
    return config::dump(page);
  });
  return delivered<PlanPage>(json, name);
}

void add_file(Page& page, const std::string& what, const std::string& path) {
  page.sources.push_back({what, path, content_hash(read_text_file(path))});
}

void add_plans(const ReportSettings& settings, Page& page, config::Diagnostics problems) {
  const std::vector<LoadedRun> runs =
      load_plans(settings.what, settings.job, settings.judge, {}, std::move(problems));
  for (std::size_t i = 0; i < runs.size(); ++i) {
    page.plans.push_back(simulated_page(fs::path(settings.what[i]).stem().string(), runs[i]));
    add_file(page, "plan file", settings.what[i]);
  }
  page.title = fmt::format("{} on {}", runs.front().workload.name, runs.front().cluster.name);
}

/// A run of `command: plan`: its plan is simulated again, as its effective.yaml says.
void add_run(const ReportSettings& settings, const fs::path& folder, Page& page,
             config::Diagnostics problems) {
  const std::string file = (folder / "effective.yaml").string();
  config::Value tree = config::load_value(file, problems);
  problems.raise();
  for (const char* key : {"hashes", "simgrid", "planner", "plan"}) {
    std::erase_if(tree.entries,
                  [&](const config::Value::Entry& entry) { return entry.key == key; });
  }
  const auto replace = [&](const char* key, const Text& given) {
    if (given) tree = config::merge(std::move(tree), key, config::Value::scalar(*given), problems);
  };
  replace("cluster", settings.job.cluster);
  replace("model", settings.job.model);
  replace("profile", settings.job.profile);
  replace("plan", fs::absolute(folder / "plan.yaml").string());
  RunSpec spec;
  config::describe_value(tree, spec, problems);
  problems.raise();
  const models::Library library = open_library(problems);
  LoadedRun run = load_run(spec, "", library, problems);
  problems.raise();
  page.title = fmt::format("{} on {}", run.workload.name, run.cluster.name);
  page.plans.push_back(simulated_page(page.title, std::move(run)));
  for (const char* name : {"plan.yaml", "effective.yaml", "summary.json"}) {
    add_file(page, "file of the run", (folder / name).string());
  }
}

/// A run of `orrery execute --out`: what was measured.
void add_executed(const ReportSettings& settings, Page& page, config::Diagnostics problems) {
  CompareSettings compared;
  compared.run = settings.what.front();
  compared.cluster = settings.job.cluster;
  compared.profile = settings.job.profile;
  const CompareResult result = compare_run(compared, {}, problems);
  problems.raise();
  const LoadedInputs inputs = load_run_inputs(result.run, settings.job.cluster.value_or(""),
                                              settings.job.profile.value_or(""), problems);
  problems.raise();
  for (const GenerationComparison& generation : result.generations) {
    const std::optional<ir::Plan> plan = plan_of_generation(result.run, generation.generation);
    if (!plan) {
      throw std::runtime_error(fmt::format("{}: the plan of generation {} is not among its inputs",
                                           result.run, generation.generation));
    }
    PlanPage drawn =
        plan_page(fmt::format("generation {}, measured", generation.generation), inputs.run, *plan,
                  std::nullopt, generation.program, generation.measured);
    if (generation.comparison) {
      const auto& time = generation.comparison->iteration;
      drawn.sentences.push_back(
          fmt::format("A step took {:.4g} s where the simulator says {:.4g} s ({:+.1f} %).",
                      time.measured, time.predicted, 100 * time.error()));
    } else {
      drawn.sentences.push_back(generation.problem);
    }
    drawn.prices = generation.prices;
    page.plans.push_back(std::move(drawn));
  }
  page.title =
      fmt::format("{}: {} on {}", result.run, inputs.run.workload.name, inputs.run.cluster.name);
  for (const std::string& note : result.notes) page.sentences.push_back(note);
}

std::string cell_of(const CsvRow& row, const char* column) {
  const auto found = row.find(column);
  return found == row.end() ? std::string() : found->second;
}

void add_replays(const std::vector<CsvRow>& rows, const fs::path& folder, Page& page) {
  std::vector<std::string> axes;
  for (const std::string& axis : page.study->axes) {
    if (axis.find('.') != std::string::npos) axes.push_back(axis);
  }
  PolicyRanking ranking = rank_policies(rows, axes);
  std::set<std::string> drawn;
  for (const CsvRow& row : rows) {
    page.horizon_days = std::max(
        page.horizon_days, std::strtod(cell_of(row, "horizon_ns").c_str(), nullptr) / 86400e9);
    if (cell_of(row, "status") != "ok") continue;
    std::string shown;
    for (const std::string& axis : axes) {
      shown += fmt::format("{}{}={}", shown.empty() ? "" : " ", axis.substr(axis.rfind('.') + 1),
                           cell_of(row, axis.c_str()));
    }
    const std::string key = cell_of(row, "case") + "\n" + cell_of(row, "policy") + "\n" + shown;
    if (drawn.size() == kReplaysDrawn || !drawn.insert(key).second) continue;
    page.replays.push_back(
        replay_page(row, shown, (folder / "runs" / cell_of(row, "run")).string()));
  }
  if (!ranking.standings.empty()) {
    page.title = "Recovery policies on " + ranking.standings.front().in_case;
    const bool several = ranking.standings.front().in_case != ranking.standings.back().in_case;
    if (several) page.title += " and others";
    const Standing& best = ranking.standings.front();
    page.sentences.push_back(fmt::format(
        "Over {:.3g} days{}, {} keeps the most: {:.0f} tokens/s in the mean of {} trace{}, {:.1f} "
        "% "
        "of the time in useful iterations (ETTR).",
        page.horizon_days, several ? " on " + best.in_case : "", best.policy,
        best.tokens_per_second.mean, best.seeds, best.seeds == 1 ? "" : "s", 100 * best.ettr.mean));
    if (ranking.standings.size() > 1 && ranking.standings[1].in_case == best.in_case) {
      const Standing& second = ranking.standings[1];
      const Interval& gap = second.behind;
      const bool certain = gap.mean - gap.half > 0;
      page.sentences.push_back(
          fmt::format("{} follows, {:.1f} % slower{}.", second.policy, 100 * gap.mean,
                      second.seeds < 2 ? " on this one trace"
                      : certain        ? ""
                                       : ", a difference that these traces do not make certain"));
    }
  }
  page.ranking = std::move(ranking.standings);
  page.unable = std::move(ranking.unable);
}

void add_study(const fs::path& folder, Page& page) {
  const std::string file = (folder / "runs.csv").string();
  page.title = folder.filename().string();
  const fs::path parent = folder.parent_path().filename();
  if (!parent.empty() && parent != "results") page.title = parent.string() + "/" + page.title;
  add_file(page, "results", file);
  page.study = study_page(parse_csv(read_text_file(file)));
  const std::vector<CsvRow> rows = read_csv_rows(file);
  std::set<std::string> versions;
  std::size_t good = 0;
  std::set<std::pair<std::string, std::string>> inputs;
  for (const CsvRow& row : rows) {
    if (cell_of(row, "status") == "ok") ++good;
    versions.insert(cell_of(row, "version"));
    for (const char* what : {"cluster", "model", "trace", "plan", "profile"}) {
      if (!cell_of(row, what).empty() && inputs.insert({what, cell_of(row, what)}).second) {
        const std::string hash =
            std::string(what) == "model" ? "workload_hash" : std::string(what) + "_hash";
        page.sources.push_back({what, cell_of(row, what), cell_of(row, hash.c_str())});
      }
    }
  }
  for (const std::string& version : versions) page.sources.push_back({"runs made by", version, ""});
  page.sentences.push_back(fmt::format(
      "{} run{}, of which {} came to a result{}{}.", rows.size(), rows.size() == 1 ? "" : "s", good,
      page.study->axes.empty() ? "" : "; what varies: ", fmt::join(page.study->axes, ", ")));
  double shortest = std::numeric_limits<double>::infinity();
  double longest = 0;
  for (const CsvRow& row : rows) {
    const std::string text = cell_of(row, "iteration_time_s");
    if (text.empty()) continue;
    shortest = std::min(shortest, std::strtod(text.c_str(), nullptr));
    longest = std::max(longest, std::strtod(text.c_str(), nullptr));
  }
  if (shortest < longest) {
    page.sentences.push_back(fmt::format("Iterations take {:.4g} to {:.4g} s.", shortest, longest));
  }
  if (!rows.empty() && rows.front().contains("productive_ns")) add_replays(rows, folder, page);
}

}  // namespace

std::string report_template() {
  if (const char* file = std::getenv("ORRERY_REPORT_PAGE")) return file;
  return ORRERY_SOURCE_DIR "/build/report/page.html";
}

Page report_page(const ReportSettings& settings, const Call&, config::Diagnostics problems) {
  Page page;
  page.made_by = "orrery " + program_version();
  page.command = command_of(settings);
  std::error_code error;
  const fs::path first = settings.what.empty() ? fs::path() : fs::path(settings.what.front());
  const bool folder = fs::is_directory(first, error);
  if (folder && settings.what.size() > 1) {
    problems.add({"what", 0, 0}, "a folder is reported alone", "name one folder, or plan files");
  }
  if (!folder) {
    add_plans(settings, page, std::move(problems));
  } else if (fs::exists(first / "runs.csv", error)) {
    problems.raise();
    add_study(fs::weakly_canonical(first), page);
  } else if (fs::exists(first / "summary.json", error) && fs::exists(first / "plan.yaml", error)) {
    add_run(settings, first, page, std::move(problems));
  } else if (fs::exists(first / "inputs", error)) {
    add_executed(settings, page, std::move(problems));
  } else {
    problems.add({first.string(), 0, 0},
                 "is no results folder, no run of a study with a plan, and no executed run",
                 "name a folder with runs.csv, with plan.yaml, or one that `orrery execute --out` "
                 "wrote; or plan files");
    problems.raise();
  }
  if (settings.title) page.title = *settings.title;
  return page;
}

ReportResult report(const ReportSettings& settings, const Call& call,
                    config::Diagnostics problems) {
  const std::string file = report_template();
  std::error_code error;
  if (!fs::exists(file, error)) {
    throw std::runtime_error(fmt::format(
        "{} is not there: `tools/orrery report` makes it, with npm (or set ORRERY_REPORT_PAGE)",
        file));
  }
  const OutputFile output{"output", settings.output};
  std::vector<std::string> inputs = input_files(settings.job);
  inputs.insert(inputs.end(), settings.what.begin(), settings.what.end());
  check_outputs({output}, inputs, problems);
  problems.raise();
  probe_outputs({output});
  ReportResult result;
  result.page = report_page(settings, call);
  result.file = *settings.output;
  // On one line: numbers of long lists would have a line each.
  const std::string json = nlohmann::ordered_json::parse(to_json(result.page)).dump();
  const std::string html = with_data(read_text_file(file), json);
  result.bytes = static_cast<std::int64_t>(html.size());
  write_file(result.file, html);
  return result;
}

void describe(config::Visitor& v, ReportSettings& settings) {
  v.required("what", settings.what,
             "plan files; or a folder: results of a study, one of its runs, or a run that `orrery "
             "execute --out` wrote",
             {.positional = true});
  v.required("output", settings.output, "the HTML file", {.letter = 'o'});
  v.optional("title", settings.title, "of the page");
  describe(v, settings.job);
  describe(v, settings.judge);
}

void describe(config::Visitor& v, ReportResult& result) {
  v.title("Written report");
  v.required("file", result.file, "that was written");
  v.required("bytes", result.bytes, "of the file");
  v.required("page", result.page, "what it shows");
}

}  // namespace orrery::experiments
