/// `command: twin`, as far as it is a study: its settings.
#include <fmt/format.h>

#include <stdexcept>

#include "experiments/study/commands.h"
#include "experiments/study/summary.h"
#include "experiments/study/twin_settings.h"

namespace orrery::experiments {

void describe(config::Visitor& v, TwinRunSettings& run) {
  v.title("Twin");
  v.doc("A plan that is executed on this machine and predicted.");
  v.required("cluster", run.cluster, "whose nodes are emulated");
  v.required("model", run.model, "name or file");
  v.required("job", run.job, "file");
  v.optional("profile", run.profile, "of this machine; absent: it is measured");
  v.optional("steps", run.steps, "that are executed");
  v.optional("warm_up", run.warm_up, "first steps that do not count");
  v.optional("seed", run.seed, "of weights, data, faults and planners");
  v.optional("plan", run.plan, "file, seen from here");
  v.optional("planner", run.planner, "makes the plan (orrery list planners)");
  v.optional("fit", run.fit, "the run is for fitting; the others are predicted");
  v.optional("seen", run.seen,
             "why it is no unseen run: what was changed after a look at it; it is in no mean of "
             "predicted runs");
  v.optional("from", run.from, "of a run that loses a device: the run whose plan it begins with");
  v.optional("policy", run.policy, "that says how to go on (orrery list policies)");
  v.optional("kill", run.kill, "RANK@STEP");
  v.at_least("steps", run.steps, std::int64_t{2});
  v.not_negative("warm_up", run.warm_up);
  if (!v.reading()) return;
  if (run.warm_up >= run.steps) {
    v.problem("warm_up", fmt::format("{} of {} steps leave none", run.warm_up, run.steps));
  }
  const bool loses = run.from || run.policy || run.kill;
  if (loses && !(run.from && run.policy && run.kill)) {
    v.problem("", "a run that loses a device needs `from`, `policy` and `kill`");
  } else if (run.plan.has_value() + run.planner.has_value() + loses != 1 && v.good()) {
    v.problem("", "needs either a plan or a planner");
  }
}

namespace {

/// For checks and counts: what runs them is not a sweep.
TaskList twin_tasks(const Study&, std::vector<Point> points, const models::Library&,
                    const RunnerOptions&, config::Diagnostics& diagnostics) {
  TaskList list;
  list.columns = {"run"};
  for (auto& [point, run] : read_settings<TwinRunSettings>(std::move(points), diagnostics,
                                                           [](const auto&, const auto&) {})) {
    Task task{point,
              Identity{.settings = config::to_value(run), .hashes = {}, .uses_all = true}.hash(),
              point.on("run"),
              "",
              {},
              nullptr};
    task.fill = [](const std::string&, const std::function<void(double)>&) -> RunSeconds {
      throw std::runtime_error("`orrery twin` runs the study of a twin");
    };
    list.tasks.push_back(std::move(task));
  }
  return list;
}

}  // namespace

extern const StudyCommand kTwinStudy;
const StudyCommand kTwinStudy = {.name = "twin",
                                 .summary = "a plan executed on this machine and predicted",
                                 .seeds = {"seed"},
                                 .choice = "planner",
                                 .job_files = false,
                                 .settings = settings_text<TwinRunSettings>(),
                                 .resolve = nullptr,
                                 .table = nullptr,
                                 .tasks = twin_tasks};

}  // namespace orrery::experiments
