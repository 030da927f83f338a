/// What is printed of replays: their ranking, where the time went, policies that cannot run.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "experiments/study/files.h"
#include "experiments/study/points.h"
#include "experiments/study/replay_ranking.h"
#include "models/base/ids.h"
#include "tools/cli/output.h"
#include "tools/cli/table.h"
#include "tools/commands/intervals.h"
#include "tools/commands/study_report.h"

namespace orrery::tools {
namespace {

using experiments::Interval;
using experiments::PolicyRanking;
using experiments::Standing;
using experiments::Study;
using experiments::StudyResult;
using experiments::Task;

/// What `--json` prints.
struct ReplayDocument {
  std::string study;
  std::string results;
  std::string runs_csv;
  std::vector<std::string> figures;
  std::vector<std::string> problems;
  std::vector<std::string> skipped;
  int total = 0;
  int present = 0;
  int done = 0;
  int failed = 0;
  int missing = 0;
  bool interrupted = false;
  std::vector<Standing> ranking;
  std::vector<experiments::Unable> unable;
};

void describe(config::Visitor& v, ReplayDocument& document) {
  v.required("study", document.study, "");
  v.required("results", document.results, "");
  v.required("runs_csv", document.runs_csv, "");
  v.required("figures", document.figures, "");
  v.required("problems", document.problems, "");
  v.required("skipped", document.skipped, "");
  v.required("total", document.total, "");
  v.required("present", document.present, "");
  v.required("done", document.done, "");
  v.required("failed", document.failed, "");
  v.required("missing", document.missing, "");
  v.required("interrupted", document.interrupted, "");
  v.required("ranking", document.ranking, "");
  v.required("unable", document.unable, "");
}

std::string shown(const Standing& standing) {
  return standing.axes.empty() ? standing.policy
                               : fmt::format("{} {}", standing.policy, standing.axes);
}

/// Everything but training and what was rolled back.
double downtime(const Standing& standing) {
  double share = 0;
  for (const sim::Bucket bucket :
       {sim::Bucket::checkpoint, sim::Bucket::detect, sim::Bucket::decide, sim::Bucket::move_state,
        sim::Bucket::reinitialize, sim::Bucket::idle}) {
    share += standing.wall[index_of(bucket)];
  }
  return share;
}

std::vector<Standing> of_case(const PolicyRanking& ranking, const std::string& name) {
  std::vector<Standing> standings;
  for (const Standing& standing : ranking.standings) {
    if (standing.in_case == name) standings.push_back(standing);
  }
  return standings;
}

/// The traces do not tell it from the one before it in the ranking.
bool is_tied(const Standing& standing) {
  return standing.behind_previous.low <= 0 && standing.behind_previous.high >= 0;
}

/// By more than what one plan varies by from trace to trace.
bool plans_differ(const std::vector<Standing>& standings) {
  constexpr double kNoticed = 1.01;
  double least = std::numeric_limits<double>::infinity(), most = 0;
  for (const Standing& standing : standings) {
    const double own = standing.undisturbed_tokens_per_second;
    if (own > 0) least = std::min(least, own);
    most = std::max(most, own);
  }
  return most > kNoticed * least;
}

/// `common`: the policies began with one plan.
std::string ranking_table(const std::vector<Standing>& standings, bool common) {
  Table table;
  table.number("#").column("policy").number("tokens/s").number("undisturbed");
  table.number("slower than best, %").number("goodput %");
  table.number("ETTR %").number("billion tokens").number("$/M tokens").number("interruptions");
  table.number("downtime %").number("lost iterations");
  std::size_t place = 0;
  bool ties = false;
  for (const Standing& standing : standings) {
    const bool tied = ++place > 1 && is_tied(standing);
    ties |= tied;
    table.row({fmt::format("{}{}", tied ? "~" : "", place), shown(standing),
               interval_cell(standing.tokens_per_second, 1, 0),
               grouped(standing.undisturbed_tokens_per_second, 0),
               place == 1 ? "" : interval_cell(standing.behind, 100, 2),
               interval_cell(standing.goodput, 100, 2), interval_cell(standing.ettr, 100, 2),
               grouped(standing.tokens * 1e-9, 3), grouped(standing.dollars_per_million, 3),
               grouped(standing.interruptions, 1), grouped(100 * downtime(standing), 2),
               grouped(standing.lost_iterations, 1)});
  }
  std::string text = table.text(0, colors());
  if (plans_differ(standings)) {
    text += common
                ? "All begin with one plan; those that they come to later differ (undisturbed: "
                  "tokens/s of the fastest plan of each, as if nothing happened)\n"
                : "Policies begin with different plans (undisturbed: tokens/s of the fastest plan "
                  "of each, as if nothing happened), so that the order is of plans, too; --planner "
                  "gives all the same one\n";
  }
  for (const Standing& standing : standings) {
    if (standing.own_plan.empty()) continue;
    text +=
        fmt::format("{} begins with a plan of its own: {}\n", shown(standing), standing.own_plan);
  }
  for (const Standing& standing : standings) {
    if (standing.untrained.empty()) continue;
    text += fmt::format("{} never trains on {}\n", shown(standing), standing.untrained);
  }
  if (ties) {
    text +=
        "~ not statistically distinguishable from the row above: the interval of their "
        "difference, seed by seed, holds 0\n";
  }
  return text;
}

/// Share of wall time by bucket, and GPU-hours outside of the plan.
std::string bucket_table(const std::vector<Standing>& standings) {
  Table table;
  table.column("policy");
  for (std::size_t b = 0; b < sim::kBuckets; ++b) {
    std::string name = sim::name_of(static_cast<sim::Bucket>(b));
    for (char& c : name) c = c == '_' ? ' ' : c;
    table.number(name + " %");
  }
  table.number("spare GPU-h").number("absent GPU-h");
  for (const Standing& standing : standings) {
    std::vector<std::string> cells = {shown(standing)};
    for (const double share : standing.wall) cells.push_back(grouped(100 * share, 2));
    cells.push_back(grouped(standing.spare_gpu_hours, 0));
    cells.push_back(grouped(standing.absent_gpu_hours, 0));
    table.row(std::move(cells));
  }
  return table.text(0, colors());
}

/// Why each is behind the first: points of the fastest undisturbed plan's throughput behind the
/// first.
std::string owed_table(const std::vector<Standing>& standings) {
  Table table;
  table.column("policy").number("behind");
  for (std::size_t l = 0; l < experiments::kLosses; ++l) {
    std::string name = experiments::name_of(static_cast<experiments::Loss>(l));
    for (char& c : name) c = c == '_' ? ' ' : c;
    table.number(name);
  }
  for (const Standing& standing : standings) {
    std::vector<std::string> cells = {shown(standing)};
    double sum = 0;
    for (const Interval& each : standing.owed) sum += each.mean;
    cells.push_back(grouped(100 * sum, 2));
    for (const Interval& each : standing.owed) cells.push_back(interval_cell(each, 100, 2));
    table.row(std::move(cells));
  }
  return table.text(0, colors()) +
         "points of the throughput of the fastest undisturbed plan; negative: less lost than by "
         "the first\n";
}

/// Policies that have no standing, with the reason: those whose runs failed, or the others.
std::string unable_text(const PolicyRanking& ranking, const std::string& name, bool failed) {
  std::string text;
  for (const experiments::Unable& each : ranking.unable) {
    if (each.in_case != name || (each.status == "failed") != failed) continue;
    text += fmt::format("{}{}: {}\n", each.policy,
                        each.axes.empty() ? "" : fmt::format(" {}", each.axes), each.reason);
  }
  return text;
}

std::string work_text(const StudyResult& result, const PolicyRanking& ranking) {
  const double rest = result.total_seconds - result.planning_seconds - result.evaluation_seconds;
  return fmt::format(
      "took {} to plan ({}), {} to simulate {} ({} asked for), {} to replay\n",
      duration(result.planning_seconds),
      ranking.searches == 1 ? "1 search" : fmt::format("{} searches", ranking.searches),
      duration(result.evaluation_seconds), counted(ranking.iterations_simulated, "iteration"),
      ranking.iterations_asked, duration(std::max(rest, 0.0)));
}

std::string replays_done(const StudyResult& result) {
  std::string text = fmt::format("{} done", counted(result.done, "run"));
  if (result.present > 0) text += fmt::format(", {} were present", result.present);
  if (result.failed > 0) text += fmt::format(", {} failed", result.failed);
  const int left = result.missing - result.done - result.failed;
  if (left > 0) text += fmt::format(", {} left", left);
  return text + "\n" + files_text(result);
}

std::string dry_run_text(const Study& study, const StudyResult& result) {
  Table table;
  table.column("case").column("policy").column("options").number("seed").column("run");
  for (const experiments::Task& run : result.runs) {
    table.row({run.inputs.at("case"), run.inputs.at("policy"), run.inputs.at("options"),
               run.inputs.at("seed"), run.hash});
  }
  std::string text = table.text(0, colors());
  const auto missing = counted(result.missing, "run");
  text += result.estimate_seconds < 0
              ? fmt::format("\ndry run: {} to do; no run was timed yet\n", missing)
              : fmt::format("\ndry run: {} to do, about {}\n", missing,
                            duration(result.estimate_seconds));
  for (const std::string& note : study.notes) {
    text += note + "\n";
  }
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  return text + fmt::format("results would go to {}\n", result.results_folder);
}

const config::Value* setting(const Task& run, const char* outer, const char* inner) {
  const config::Value* value = run.point.settings.find(outer);
  return value == nullptr ? nullptr : value->find(inner);
}

/// A file's trace is the same for all seeds; what differs then comes from random searches alone.
/// Few seeds have no confidence interval (interval_of()).
std::string ranking_title(const Task& run, const Standing& first) {
  if (first.seeds <= 1) return "Ranking, one seed";
  return fmt::format(
      "Ranking, means over {} seeds{}, {}", first.seeds,
      setting(run, "trace", "file") != nullptr ? " of the policies' searches (one trace)" : "",
      std::isfinite(first.tokens_per_second.half) ? "± 95 % confidence" : "least to most");
}

/// The first run of each case.
std::vector<const Task*> cases_of(const StudyResult& result) {
  std::vector<const Task*> cases;
  for (const Task& run : result.runs) {
    const bool known = std::any_of(cases.begin(), cases.end(), [&](const Task* each) {
      return each->inputs.at("case") == run.inputs.at("case");
    });
    if (!known) cases.push_back(&run);
  }
  return cases;
}

std::string replay_text(const Study& study, const StudyResult& result,
                        const PolicyRanking& ranking) {
  std::string text;
  if (!study.title.empty()) text += bold(study.title) + "\n\n";
  for (const Task* run : cases_of(result)) {
    const std::string& name = run->inputs.at("case");
    const std::vector<Standing> standings = of_case(ranking, name);
    const std::string unable = unable_text(ranking, name, false);
    const std::string failed = unable_text(ranking, name, true);
    if (standings.empty() && unable.empty() && failed.empty()) continue;
    text += run->about + "\n\n";
    if (!standings.empty()) {
      text += section(ranking_title(*run, standings.front()),
                      ranking_table(standings, !run->inputs.at("plan_hash").empty()));
      text += fmt::format("\n{}\n", section("Where the wall time goes", bucket_table(standings)));
      if (standings.size() > 1) {
        text += section("Why each is behind the first", owed_table(standings)) + "\n";
      }
    }
    if (!unable.empty()) text += section("Cannot run here", unable) + "\n";
    if (!failed.empty()) text += section("Failed", failed) + "\n";
  }
  for (const std::string& note : study.notes) text += note + "\n";
  for (const std::string& skipped : result.skipped) text += skipped + "\n";
  if (result.total == 0) return text + "no run belongs to this call\n";
  const bool ignored = std::any_of(result.runs.begin(), result.runs.end(), [](const Task& run) {
    return run.inputs.at("background_transfers") == "ignored";
  });
  if (ignored) {
    text +=
        "Copies of checkpoints during training slow no iteration here (background_transfers: "
        "ignored)\n\n";
  }
  return text + work_text(result, ranking) + replays_done(result);
}

ReplayDocument replay_document(const Study& study, const StudyResult& result,
                               const PolicyRanking& ranking) {
  ReplayDocument document;
  document.study = study.name;
  document.results = result.results_folder;
  document.runs_csv = result.runs_csv;
  document.figures = result.figures;
  document.problems = result.problems;
  document.skipped = result.skipped;
  document.total = result.total;
  document.present = result.present;
  document.done = result.done;
  document.failed = result.failed;
  document.missing = result.missing;
  document.interrupted = result.interrupted;
  document.ranking = ranking.standings;
  document.unable = ranking.unable;
  return document;
}

}  // namespace

StudyReport report_replays(const Study& study, const StudyResult& result, bool dry_run) {
  std::vector<std::string> axes;
  for (const std::string& axis : experiments::axis_names(study)) {
    if (axis != "case" && axis != "policy") axes.push_back(axis);
  }
  const PolicyRanking ranking =
      experiments::rank_policies(experiments::read_csv_rows(result.runs_csv), axes);
  const bool any = dry_run || result.total == 0 || !ranking.standings.empty();
  return report_of(dry_run ? dry_run_text(study, result) : replay_text(study, result, ranking),
                   replay_document(study, result, ranking), any ? 0 : 1);
}

}  // namespace orrery::tools
